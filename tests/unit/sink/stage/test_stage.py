"""One staging task: what it writes, what it reports, what it leaves after a failure."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.sink.stage.partitioner import StageTopic
from sparklog.sink.stage.report import REPORT_DDL
from sparklog.sink.stage.stage_rows import StagePlan, stage
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.build.sink_store import rows

_SMALL = EncodeOptions(batch_size_bytes=300, max_message_bytes=500)
_ZSTD = EncodeOptions(batch_size_bytes=300, codec="zstd", level=1)
_TOPICS = (
    StageTopic(name="a", first_log=0, partitions=2, options=_SMALL, needs_key=False),
    StageTopic(name="b", first_log=2, partitions=3, options=_ZSTD, needs_key=False),
)


def _plan(folder: Path, **changes: Any) -> StagePlan:
    settings: dict[str, Any] = {
        "directory": str(folder / "staging"),
        "topics": _TOPICS,
        "fixed_topic": None,
        "preserved": False,
        "quarantine": False,
        "now_ms": 1000,
        "buffer_bytes": 1 << 20,
    }
    return StagePlan(**{**settings, **changes})


def _stage(plan: StagePlan, *batches: pa.RecordBatch, task: int = 3) -> dict[str, Any]:
    (output,) = list(stage(plan, task, batches))
    report: dict[str, Any]
    (report,) = output.to_pylist()
    return report


def _staged(folder: Path, report: dict[str, Any]) -> list[tuple[int, bytes]]:
    """Return (log, value) of every staged record, in the order reported, after checking what was reported of it."""
    data = (folder / "staging" / report["file"]).read_bytes()
    found, end = [], 0
    for batch in pa.ipc.open_stream(report["batches"]).read_all().to_pylist():
        assert batch["position"] == end
        end += batch["size"]
        records = decode_batches(data[batch["position"] : end])
        assert records.num_rows == batch["records_count"] == batch["last_offset_delta"] + 1
        assert records.column("offset").to_pylist() == list(range(records.num_rows))
        assert max(records.column("timestamp").to_pylist()) == batch["max_timestamp"]
        found += [(batch["log"], value) for value in records.column("value").to_pylist()]
    assert end == len(data)
    return found


def _lines(first: int, last: int, topic: str = "ab") -> pa.RecordBatch:
    numbers = range(first, last)
    return rows(
        topic=[topic[n % len(topic)] for n in numbers],
        partition=[n // 2 % 2 for n in numbers],
        value=[b"%05d" % n for n in numbers],
    )


@pytest.mark.parametrize("buffer_bytes", [1, 500, 1 << 20])
def test_stage_when_rows_come_in_many_batches_then_each_log_keeps_their_order(
    tmp_path: Path, buffer_bytes: int
) -> None:
    """However little is held back at a time, no row is lost, and none overtakes another of its log."""
    batches = [_lines(n, n + 37) for n in range(0, 740, 37)]

    report = _stage(_plan(tmp_path, buffer_bytes=buffer_bytes), *batches)

    staged = _staged(tmp_path, report)
    for log in range(5):
        values = [value for each, value in staged if each == log]
        assert values == [b"%05d" % n for n in range(740) if n % 2 * 2 + n // 2 % 2 == log]
    assert (report["task"], report["records"], report["quarantined"]) == (3, 740, 0)
    assert report["failure"] is report["invalid_row"] is report["quarantine"] is None


def test_stage_when_rows_are_held_then_small_batches_are_not_one_batch_each(tmp_path: Path) -> None:
    """Batches fill up to the topic's size over as many Arrow batches as it takes."""
    report = _stage(_plan(tmp_path), *[_lines(n, n + 1, "a") for n in range(400)])

    batches = pa.ipc.open_stream(report["batches"]).read_all()
    assert batches.num_rows < 400 / 10


def test_stage_when_there_is_no_row_then_writes_no_file(tmp_path: Path) -> None:
    """An empty split is reported all the same."""
    report = _stage(_plan(tmp_path), _lines(0, 0))

    assert (report["file"], report["records"]) == (None, 0)
    assert pa.ipc.open_stream(report["batches"]).read_all().num_rows == 0
    assert not (tmp_path / "staging").exists()


def test_stage_when_run_twice_then_no_attempt_touches_the_others_file(tmp_path: Path) -> None:
    """Speculative and repeated attempts of one task write side by side."""
    first, second = (_stage(_plan(tmp_path), _lines(0, 50)) for _ in range(2))

    assert first["file"] != second["file"]
    assert _staged(tmp_path, first) == _staged(tmp_path, second)


def test_stage_when_a_row_is_bad_then_reads_all_its_input_and_leaves_no_file(tmp_path: Path) -> None:
    """A worker that leaves input unread is killed."""
    read = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            read.append(number)
            yield _lines(0, 30) if number != 2 else rows(topic=["a", "x"], partition=[0, 0], value=["", ""])

    (output,) = list(stage(_plan(tmp_path, buffer_bytes=1), 0, batches()))

    report = output.to_pylist()[0]
    assert read == [0, 1, 2, 3, 4]
    assert (report["invalid_row"], report["invalid_topic"], report["invalid_partition"]) == (61, "x", 0)
    assert list((tmp_path / "staging").iterdir()) == []


def test_stage_when_the_disk_refuses_then_reports_it_and_leaves_no_file(tmp_path: Path) -> None:
    """The task does not fail, so that it is not tried again four times; the driver says what happened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        report = _stage(_plan(tmp_path, quarantine=True), _lines(0, 900), rows(topic=["x"], partition=[0], value=[""]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert report["failure"].startswith("File too large: path=")
    assert list((tmp_path / "staging").iterdir()) == []


def test_stage_when_the_folder_cannot_be_made_then_reports_it(tmp_path: Path) -> None:
    """A file lies where the staging folder should be."""
    (tmp_path / "staging").write_text("")

    report = _stage(_plan(tmp_path), _lines(0, 9))

    assert "File exists" in report["failure"] or "Not a directory" in report["failure"]


def test_stage_when_rows_are_quarantined_then_names_their_reason_and_place(tmp_path: Path) -> None:
    """A Parquet file with all columns, `reason`, `row` and `batch_id`, whatever showed the problem, early or late."""
    plan = _plan(tmp_path, quarantine=True, buffer_bytes=1)
    bad = rows(topic=["a", None, "a", "b"], partition=[0, 0, 5, 1], value=["good", "1", "2", "good"])
    large = rows(topic=["a", "a", "b"], partition=[0, 0, 0], value=["good", bytes(600), bytes(600)])

    report = _stage(plan, bad, large)

    table = pq.read_table(tmp_path / "staging" / report["quarantine"])
    assert table.column_names == ["topic", "partition", "value", "reason", "row", "batch_id"]
    assert table.select(["reason", "row"]).to_pylist() == [
        {"reason": "topic is null", "row": 1},
        {"reason": "partition is out of range", "row": 2},
        {"reason": "value makes the record larger than max.message.bytes", "row": 5},
    ]
    assert (report["records"], report["quarantined"]) == (4, 3)
    assert [log for log, _ in _staged(tmp_path, report)] == [0, 3, 0, 2]


def test_stage_reports_what_spark_was_told(tmp_path: Path) -> None:
    """Names and types of the report are those of its DDL."""
    (output,) = list(stage(_plan(tmp_path), 0, [_lines(0, 3)]))

    types = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    expected = [line.split() for line in REPORT_DDL.split(",")]
    assert [(field.name, field.type) for field in output.schema] == [(name, types[kind]) for name, kind in expected]
