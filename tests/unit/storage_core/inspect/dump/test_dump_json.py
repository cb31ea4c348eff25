import io
import json
from pathlib import Path
from typing import Any

import pytest

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.inspect.dump.dump_log import DumpOptions, dump_log
from tests.build.golden import GoldenLog, golden_logs, golden_root


def _objects(files: list[Path], **options: Any) -> list[dict[str, Any]]:
    out = io.StringIO()
    dump_log(files, DumpOptions(json=True, **options), out, io.StringIO())
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("golden", golden_logs())
def test_dump_json_when_broker_wrote_the_log_then_its_records_in_their_batches(golden: GoldenLog) -> None:
    """Every record that a consumer read is there, in a batch of its own file; a line of text has an object."""
    files = sorted(golden.directory.glob("*.log"))
    objects = _objects(files, print_data_log=True)
    records = [each for each in objects if each["type"] == "record" and not each.get("control")]
    batches = {(each["file"], each["position"]): each for each in objects if each["type"] == "batch"}
    names = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    start = golden.expected["log_start_offset"]

    assert [{name: each[name] for name in names} for each in records if each["offset"] >= start] == [
        {name: each[name] for name in names} for each in golden.expected["records"]
    ]
    assert {(each["file"], each["batch_position"]) for each in records} <= batches.keys()
    assert all(each["is_valid"] for each in batches.values())
    lines = [line for line in golden.dump.splitlines() if line.startswith(("baseOffset: ", "offset: ", "| "))]
    shown = [line for line in lines if "magic:" in line or line.startswith("| ")]
    assert len(shown) == len(batches) + sum(each["type"] == "record" for each in objects)


@pytest.mark.parametrize("golden", golden_logs("v2-transactional*"))
def test_dump_json_when_files_are_indexes_then_an_object_per_entry(golden: GoldenLog) -> None:
    """Each kind of file has its kind of object, and contents are left out unless asked for."""
    files = sorted(path for path in golden.directory.iterdir() if path.suffix in (".txnindex", ".snapshot", ".index"))
    kinds = {each["type"] for each in _objects(files)}

    assert {"producer", "empty_index"} <= kinds
    assert kinds <= {"producer", "empty_index", "aborted_transaction", "offset_entry"}
    (log,) = golden.directory.glob("*.log")
    record = next(each for each in _objects([log], deep_iteration=True) if each["type"] == "record")
    assert "key" not in record
    assert record["key_size"] > 0


def test_dump_json_when_file_is_a_checkpoint_then_control_records_are_told() -> None:
    """A snapshot of the metadata log has records that say what it is."""
    objects = _objects([golden_root() / "bootstrap.checkpoint"], deep_iteration=True)

    assert objects[0]["type"] == "checkpoint"
    assert [each["control"].split()[0] for each in objects if each.get("control")] == [
        "SnapshotHeader",
        "SnapshotFooter",
    ]


@pytest.mark.parametrize(
    "options",
    [{"skip_record_metadata": True}, {"key_decoder_class": "org.apache.kafka.tools.api.StringDecoder"}],
)
def test_dump_options_when_json_can_not_honour_one_then_refused(options: dict[str, Any]) -> None:
    """What would change nothing in JSON is a clear error."""
    with pytest.raises(InvalidConfigError, match="--json"):
        DumpOptions(json=True, **options)
