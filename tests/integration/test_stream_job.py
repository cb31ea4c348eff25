"""`run_stream` on a real local Spark, in the process of the test."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from sparklog.pipeline.settings.stream_settings import load_settings
from sparklog.pipeline.streaming.job import run_stream
from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.storage_core.errors import InvalidConfigError, InvalidRecordError, LogStorageError, StoreLockedError
from sparklog.storage_core.log.read.log_reader import LogReader

pytestmark = pytest.mark.spark

_ROWS = [{"id": number, "name": f"n{number}", "at": f"2024-01-01 00:00:{number:02}"} for number in range(40)]
_SCHEMA = "id int, name string, at string"

Stream = Callable[..., list[str]]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """Run a job over `data` below the test's folder; return the lines it reported."""

    def stream(*overrides: str, **changes: object) -> list[str]:
        settings: dict[str, object] = {
            "store": str(tmp_path / "store"),
            "checkpoint": str(tmp_path / "checkpoint"),
            "source": {"format": "csv", "path": str(tmp_path / "data"), "schema": _SCHEMA, "options": {"header": True}},
            "records": {"topic": "'t'", "key": "name", "value": "to_json(struct(*))"},
            "trigger": {"available_now": True},
            "topics": {"t": {"partitions": 2}},
        }
        path = tmp_path / "settings.yaml"
        path.write_text(yaml.safe_dump(settings | changes))
        lines: list[str] = []
        run_stream(load_settings(path, overrides), lines.append)
        return lines

    return stream


def _write_csv(folder: Path, name: str, rows: Iterable[Mapping[str, object]]) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "name", "at"])
        writer.writeheader()
        writer.writerows(rows)


def _values(tmp_path: Path, topic: str = "t", partitions: int = 2) -> list[str]:
    """Return every value of a topic, sorted; offsets must be dense from 0 in each log."""
    found: list[str] = []
    for partition in range(partitions):
        reader = LogReader(tmp_path / "store" / "logs" / f"{topic}-{partition}")
        offsets: list[int] = []
        for batch in reader.read(0):
            offsets += batch.column("offset").to_pylist()
            found += [value.decode() for value in batch.column("value").to_pylist()]
        assert offsets == list(range(len(offsets)))
    return sorted(found)


def _expected(rows: Iterable[Mapping[str, object]]) -> list[str]:
    return sorted(json.dumps(row, separators=(",", ":")) for row in rows)


def test_run_stream_when_run_again_then_nothing_is_added(stream: Stream, tmp_path: Path) -> None:
    """Every row of the source is in the log once, however often the job runs; each run says what it added."""
    _write_csv(tmp_path / "data", "a.csv", _ROWS[:25])
    _write_csv(tmp_path / "data", "b.csv", _ROWS[25:])

    first = stream("source.options.maxFilesPerTrigger=1")
    second = stream()

    assert [line.split(":")[0] for line in first] == ["batch 0", "batch 1", "done"]
    assert first[-1] == "done: 40 records in 2 micro-batches"
    assert second == ["done: 0 records in 0 micro-batches"]
    assert _values(tmp_path) == _expected(_ROWS)


def test_run_stream_when_files_were_added_then_only_they_are_read(stream: Stream, tmp_path: Path) -> None:
    """A later run continues where the one before ended."""
    _write_csv(tmp_path / "data", "a.csv", _ROWS[:25])
    stream()
    _write_csv(tmp_path / "data", "b.csv", _ROWS[25:])

    assert stream()[-1] == "done: 15 records in 1 micro-batches"
    assert _values(tmp_path) == _expected(_ROWS)


def test_run_stream_when_commit_entry_is_lost_then_replay_is_reported(stream: Stream, tmp_path: Path) -> None:
    """A micro-batch that Spark runs again though the store has it changes nothing."""
    _write_csv(tmp_path / "data", "a.csv", _ROWS)
    stream()
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink()

    lines = stream()

    assert lines[0] == "batch 0: was committed before, nothing to do"
    assert _values(tmp_path) == _expected(_ROWS)


def test_run_stream_when_schema_is_absent_then_inferred(stream: Stream, tmp_path: Path) -> None:
    """A csv source without a schema is read once to infer it."""
    _write_csv(tmp_path / "data", "a.csv", _ROWS)

    stream("source.schema=null", "records.value=cast(id + 1 as string)")

    assert _values(tmp_path) == sorted(str(row["id"] + 1) for row in _ROWS)  # type: ignore[operator]


def test_run_stream_when_source_is_json_then_read(stream: Stream, tmp_path: Path) -> None:
    """A json source has one object a line."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text("\n".join(json.dumps(row) for row in _ROWS))

    stream("source.format=json", "source.options=null")

    assert _values(tmp_path) == _expected(_ROWS)


def test_run_stream_when_source_is_parquet_then_read_with_its_own_schema(stream: Stream, tmp_path: Path) -> None:
    """A parquet source brings its schema."""
    (tmp_path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(_ROWS), tmp_path / "data" / "a.parquet")

    stream("source.format=parquet", "source.options=null", "source.schema=null")

    assert _values(tmp_path) == _expected(_ROWS)


def test_run_stream_when_source_is_text_then_a_line_is_a_value(stream: Stream, tmp_path: Path) -> None:
    """A text source has one column, `value`."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("one\ntwo\n")

    stream(
        "source.format=text",
        "source.options=null",
        "source.schema=null",
        "records.value=value",
        "records.key=null",
    )

    assert _values(tmp_path) == ["one", "two"]


def test_run_stream_when_topic_is_a_column_then_rows_go_to_their_topics(stream: Stream, tmp_path: Path) -> None:
    """A topic expression picks a declared topic per row, a partition expression its log."""
    _write_csv(tmp_path / "data", "a.csv", _ROWS)

    stream(
        "records.topic=if(id < 10, 't', 'u')",
        "records.partition=id % 2",
        "records.value=cast(id as string)",
        "topics.u.partitions=2",
    )

    assert len(_values(tmp_path, "t")) == 10
    assert len(_values(tmp_path, "u")) == 30
    (batch,) = LogReader(tmp_path / "store" / "logs" / "t-1").read(0)
    assert batch.column("value").to_pylist() == [b"1", b"3", b"5", b"7", b"9"]


def test_run_stream_when_timestamp_is_a_text_then_ms_of_it(stream: Stream, tmp_path: Path) -> None:
    """A text in Spark's timestamp format, without a zone, is UTC."""
    _write_csv(tmp_path / "data", "a.csv", _ROWS[:1])

    stream("records.timestamp=at", "topics.t.partitions=1")

    (batch,) = LogReader(tmp_path / "store" / "logs" / "t-0").read(0)
    assert batch.column("timestamp").to_pylist() == [1704067200000]


def test_run_stream_when_a_timestamp_does_not_parse_then_refused_as_a_whole(stream: Stream, tmp_path: Path) -> None:
    """One bad row fails its micro-batch: the error is the sink's own, and no record is visible."""
    _write_csv(tmp_path / "data", "a.csv", [*_ROWS[:3], {"id": 9, "name": "x", "at": "soon"}])

    with pytest.raises(InvalidRecordError, match="column 'timestamp'") as caught:
        stream("records.timestamp=at")

    assert "soon" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert _values(tmp_path) == []


def test_run_stream_when_bad_rows_are_quarantined_then_counted(stream: Stream, tmp_path: Path) -> None:
    """With `on_invalid: quarantine` bad rows go to the folder and are counted in the progress line."""
    _write_csv(tmp_path / "data", "a.csv", [*_ROWS[:3], {"id": 9, "name": "x", "at": "soon"}])

    lines = stream(
        "records.timestamp=at", "records.on_invalid=quarantine", f"quarantine={tmp_path / 'q'}", "topics.t.partitions=1"
    )

    assert "batch 0: 3 records" in lines[0]
    assert "1 quarantined" in lines[0]
    assert len(_values(tmp_path, partitions=1)) == 3
    assert sum(pq.read_table(file).num_rows for file in (tmp_path / "q").rglob("*.parquet")) == 1


def test_run_stream_when_a_task_fails_in_spark_then_one_line(stream: Stream, tmp_path: Path) -> None:
    """A row that an expression itself dies of is told in one line, without Java's stack trace."""
    _write_csv(tmp_path / "data", "a.csv", _ROWS)

    with pytest.raises(LogStorageError, match=r"the query failed: \[DIVIDE_BY_ZERO\]") as caught:
        stream("records.value=cast(1 / (id - id) as string)")

    assert "\n" not in str(caught.value)


def test_run_stream_when_source_is_missing_then_named_and_no_store_made(stream: Stream, tmp_path: Path) -> None:
    """A source that Spark refuses is wrong use; nothing was made yet."""
    with pytest.raises(InvalidConfigError, match=r"source: \[PATH_NOT_FOUND\]"):
        stream()

    assert not (tmp_path / "store").exists()


def test_run_stream_when_store_is_new_but_checkpoint_is_not_then_refused(stream: Stream, tmp_path: Path) -> None:
    """A checkpoint that has come further than the store would leave rows out: refused before a store is made."""
    _write_csv(tmp_path / "data", "a.csv", _ROWS)
    stream()

    with pytest.raises(InvalidConfigError, match="the checkpoint is ahead of the store"):
        stream(f"store={tmp_path / 'other'}")
    assert not (tmp_path / "other").exists()


def test_run_stream_when_another_writer_holds_the_store_then_refused(stream: Stream, tmp_path: Path) -> None:
    """A store has one writer."""
    _write_csv(tmp_path / "data", "a.csv", _ROWS)
    stream()
    lock = WriterLock.acquire(tmp_path / "store" / "writer.lock")
    try:
        with pytest.raises(StoreLockedError, match="another writer holds the store"):
            stream()
    finally:
        lock.release()


def test_run_stream_when_the_query_itself_is_unfit_then_sparks_reason_in_one_line(
    stream: Stream, tmp_path: Path
) -> None:
    """What Spark refuses at the start of the query is wrong use."""
    _write_csv(tmp_path / "data", "a.csv", _ROWS)

    with pytest.raises(InvalidConfigError, match="Spark refuses the query: ") as caught:
        stream("records.value=cast(count(1) as string)", "records.key=null")

    assert "\n" not in str(caught.value)
