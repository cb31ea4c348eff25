import base64
import shutil
from pathlib import Path
from typing import Any

import pytest

from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.golden import GoldenLog, golden_logs

_TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    return {
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "timestamp_type": _TIMESTAMP_TYPES[record["timestamp_type"]],
        "leader_epoch": None if record["leader_epoch"] < 0 else record["leader_epoch"],
        "key": text(record["key"]),
        "value": text(record["value"]),
        "headers": [[header["key"], text(header["value"])] for header in record["headers"]],
    }


def _offsets(reader: LogReader, start: int, **options: Any) -> list[int]:
    return [offset for batch in reader.read(start, **options) for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("golden", golden_logs())
def test_read_when_broker_wrote_the_log_then_every_record_as_its_consumer_saw_it(golden: GoldenLog) -> None:
    """The records of a broker's log equal what its consumer read, control batches and removed offsets passed over."""
    expected = golden.expected
    reader = LogReader(golden.directory, log_start_offset=expected["log_start_offset"])

    records = [_plain(record) for batch in reader.read(reader.log_start_offset) for record in batch.to_pylist()]

    assert records == expected["records"]
    assert reader.log_end_offset == expected["high_watermark"]


@pytest.mark.parametrize("removed", [(), ("*.txnindex",), ("*.snapshot",), ("*.txnindex", "*.snapshot", "*index")])
@pytest.mark.parametrize("golden", golden_logs())
def test_read_committed_when_broker_wrote_the_log_then_as_its_consumer_with_and_without_indexes(
    golden: GoldenLog, removed: tuple[str, ...], tmp_path: Path
) -> None:
    """A read_committed consumer's records and end come from the log alone as well as from the files beside it."""
    expected = golden.expected
    directory = Path(shutil.copytree(golden.directory, tmp_path / golden.directory.name, copy_function=shutil.copyfile))
    for path in {path for pattern in removed for path in directory.glob(pattern)}:
        path.unlink()
    reader = LogReader(directory, log_start_offset=expected["log_start_offset"])
    committed = expected["read_committed_offsets"]

    assert reader.last_stable_offset == expected["last_stable_offset"]
    for start in {reader.log_start_offset, *range(reader.log_start_offset, reader.log_end_offset, 7)}:
        found = _offsets(reader, start, isolation="read_committed", chunk_bytes=200)
        assert found == [offset for offset in committed if offset >= start]


@pytest.mark.parametrize("golden", golden_logs())
def test_offset_for_time_when_broker_wrote_the_log_then_the_brokers_answer(golden: GoldenLog) -> None:
    """A lookup by time answers what the broker answered."""
    reader = LogReader(golden.directory, log_start_offset=golden.expected["log_start_offset"])

    for asked, offset, timestamp in golden.expected["offsets_for_times"]:
        assert reader.offset_for_time(asked) == (None if offset is None else (offset, timestamp)), asked


@pytest.mark.parametrize("golden", golden_logs())
def test_read_when_started_at_any_offset_then_the_records_from_there(golden: GoldenLog) -> None:
    """Whatever the indexes say, a read from an offset gives exactly the records at or after it."""
    reader = LogReader(golden.directory, log_start_offset=golden.expected["log_start_offset"])
    offsets = [record["offset"] for record in golden.expected["records"]]

    for start in range(reader.log_start_offset, reader.log_end_offset + 1):
        found = _offsets(reader, start)
        assert found == [offset for offset in offsets if offset >= start]


@pytest.mark.parametrize("golden", golden_logs())
def test_offset_of_max_timestamp_when_broker_wrote_the_log_then_first_of_the_latest(golden: GoldenLog) -> None:
    """The record with the largest timestamp is found, the first of several."""
    reader = LogReader(golden.directory, log_start_offset=golden.expected["log_start_offset"])
    found = reader.offset_of_max_timestamp()
    latest = max(record["timestamp"] for record in golden.expected["records"])
    first = next(record["offset"] for record in golden.expected["records"] if record["timestamp"] == latest)

    if latest < 0:  # format v0
        assert found is None
    else:
        assert found is not None
        assert found == (first, latest) or found[1] > latest  # a transaction marker may be later than every record


@pytest.mark.parametrize("golden", golden_logs("v2-transactional-open"))
def test_offset_for_time_when_read_committed_then_nothing_from_the_last_stable_offset_on(golden: GoldenLog) -> None:
    """The record that a look-up finds must lie below the last stable offset; a later one is never tried."""
    reader = LogReader(golden.directory)
    stable = golden.expected["last_stable_offset"]

    for asked, offset, timestamp in golden.expected["offsets_for_times"]:
        is_stable = offset is not None and offset < stable
        assert reader.offset_for_time(asked, "read_committed") == ((offset, timestamp) if is_stable else None)
    assert reader.offset_of_max_timestamp("read_committed") is None
