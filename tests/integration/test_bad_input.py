"""What bad input gets: the whole micro-batch refused with a message that says where, or the row diverted."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.errors import InvalidRecordError
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import contents, in_process, open_store, read_store, rows

_NOW_MS = 1_700_000_000_000
_SECRET = b"the-content-of-a-row"
_TOPICS: dict[str, dict[str, object]] = {
    "orders": {"partitions": 3},
    "changes": {"partitions": 2, "cleanup.policy": "compact", "max.message.bytes": 400},
    "packed": {"partitions": 1, "max.message.bytes": 400, "compression.type": "zstd"},
    "recent": {
        "partitions": 2,
        "message.timestamp.before.max.ms": 1_000,
        "message.timestamp.after.max.ms": 500,
    },
}


@dataclass(frozen=True, slots=True)
class _Bad:
    """A row that can't become a record, and what the message says of it."""

    name: str
    row: dict[str, Any]
    says: str
    options: dict[str, Any] = field(default_factory=dict)


def _good(offset: int) -> dict[str, Any]:
    return {
        "topic": "orders",
        "partition": None,
        "offset": offset,
        "timestamp": _NOW_MS,
        "key": b"k",
        "value": _SECRET,
        "headers": None,
    }


_INCOMPRESSIBLE = bytes(hash((n, "x")) & 0xFF for n in range(900))
_HEADERS = [{"key": "a", "value": b"1"}, {"key": None, "value": _SECRET}]
_BAD = [
    _Bad("null topic", {"topic": None}, "column 'topic' is null: row=2"),
    _Bad("unknown topic", {"topic": "orders2"}, "column 'topic' names an unknown topic: topic=orders2"),
    _Bad("empty topic", {"topic": ""}, "column 'topic' is an illegal topic name: topic="),
    _Bad("illegal topic", {"topic": "a/b"}, "column 'topic' is an illegal topic name: topic=a/b"),
    _Bad("illegal topic of two lines", {"topic": "a\nb"}, r"column 'topic' is an illegal topic name: topic='a\nb'"),
    _Bad("partition too large", {"partition": 3}, "column 'partition' is out of range: topic=orders partition=3"),
    _Bad("partition negative", {"partition": -1}, "column 'partition' is out of range: topic=orders partition=-1"),
    _Bad(
        "partition above int32",
        {"partition": 2**32},
        "column 'partition' is out of range: topic=orders partition=4294967296",
    ),
    _Bad("null timestamp", {"timestamp": None}, "column 'timestamp' is null or could not be parsed: topic=orders"),
    _Bad("negative timestamp", {"timestamp": -2}, "column 'timestamp' is out of range: topic=orders"),
    _Bad(
        "timestamp too old",
        {"topic": "recent", "timestamp": _NOW_MS - 1_001},
        "column 'timestamp' is out of range: topic=recent partition=0",
    ),
    _Bad(
        "timestamp in the future",
        {"topic": "recent", "timestamp": _NOW_MS + 501},
        "column 'timestamp' is out of range: topic=recent partition=0",
    ),
    _Bad(
        "no key in a compacted topic",
        {"topic": "changes", "key": None},
        "column 'key' is null, and the topic is compacted: topic=changes row=2",
    ),
    _Bad(
        "value too large",
        {"topic": "changes", "value": bytes(400)},
        "column 'value' makes the record larger than max.message.bytes: topic=changes partition=0",
    ),
    _Bad(
        "key too large",
        {"topic": "changes", "key": bytes(500)},
        "column 'value' makes the record larger than max.message.bytes: topic=changes partition=1",
    ),
    _Bad(
        "value too large even compressed",
        {"topic": "packed", "value": _INCOMPRESSIBLE, "partition": 0},
        "column 'value' makes the record larger than max.message.bytes: topic=packed partition=0",
    ),
    _Bad("null header key", {"headers": _HEADERS}, "column 'headers' hold a null key: topic=orders"),
    _Bad("null offset", {"offset": None}, "column 'offset' is null or out of range", {"offsets": "preserved"}),
    _Bad("negative offset", {"offset": -1}, "column 'offset' is null or out of range", {"offsets": "preserved"}),
    _Bad("largest offset", {"offset": 2**63 - 1}, "column 'offset' is null or out of range", {"offsets": "preserved"}),
    _Bad("repeated offset", {"offset": 11}, "column 'offset' goes back or repeats", {"offsets": "preserved"}),
    _Bad("offset going back", {"offset": 4}, "column 'offset' goes back or repeats", {"offsets": "preserved"}),
    _Bad("committed offset", {"offset": 3}, "column 'offset' goes back or repeats", {"offsets": "preserved"}),
]


def _rows(*lines: dict[str, Any]) -> pa.RecordBatch:
    names = {name for line in lines for name in line}
    return rows(**{name: [line.get(name) for line in lines] for name in names})


def _open(folder: Path, **options: Any) -> StoreWriter:
    return open_store(folder / "store", _TOPICS, clock=ManualClock(_NOW_MS), **options)


def _values(folder: Path) -> list[bytes | None]:
    return [record.value for log in read_store(folder / "store").values() for record in log]


@pytest.mark.parametrize("bad", _BAD, ids=lambda bad: bad.name)
def test_micro_batch_when_a_row_is_bad_then_fails_as_a_whole_and_says_where(memory_path: Path, bad: _Bad) -> None:
    """The message names topic, partition, column and row; no byte of the store changes, and no content is shown."""
    with closing(_open(memory_path, **bad.options)) as writer:
        writer.append("query", 0, in_process(_rows(_good(2), _good(3))))
        before = contents(memory_path / "store")
        batches = [_rows(_good(10), _good(11)), _rows(_good(12) | bad.row, _good(13))]

        with pytest.raises(InvalidRecordError) as refusal:
            writer.append("query", 1, in_process(batches, _rows(_good(20))))

        message = str(refusal.value)
        assert message.startswith("invalid row: ")
        assert bad.says in message
        assert message.endswith(" row=2 of input split 0")
        assert _SECRET.decode() not in message
        assert "\n" not in message
        assert contents(memory_path / "store") == before
        assert writer.append("query", 1, in_process(batches[0])).records == 2


@pytest.mark.parametrize("bad", _BAD, ids=lambda bad: bad.name)
def test_micro_batch_when_bad_rows_are_quarantined_then_holds_all_others(memory_path: Path, bad: _Bad) -> None:
    """A diverted row lies in a Parquet file with its reason and position, once, and is counted."""
    with closing(_open(memory_path, on_invalid="quarantine", **bad.options)) as writer:
        writer.append("query", 0, in_process(_rows(_good(2), _good(3))))
        broken = _good(12) | bad.row
        split = in_process([_rows(_good(10), _good(11)), _rows(broken, _good(13))], _rows(_good(20)))

        metrics = writer.append("query", 1, split)
        replayed = writer.append("query", 1, split)

    assert (metrics.records, metrics.quarantined) == (4, 1)
    assert (replayed.replayed, replayed.quarantined) == (True, 0)
    assert _values(memory_path) == [_SECRET] * 6
    (diverted,) = _quarantined(memory_path / "store" / "quarantine")
    assert diverted["row"] == 2
    assert diverted["value"] == broken["value"]
    column, _, what = diverted["reason"].partition(" ")
    assert bad.says.startswith(f"column '{column}' {what}")


def _quarantined(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_micro_batch_when_several_rows_are_bad_then_the_first_one_is_named(memory_path: Path) -> None:
    """Also where the first one shows only when it is encoded, and a later one at once."""
    with closing(_open(memory_path)) as writer:
        lines = [_good(0) for _ in range(9)]
        lines[7] = lines[7] | {"topic": "nowhere"}
        lines[5] = lines[5] | {"topic": "changes", "value": bytes(500)}
        lines[4] = lines[4] | {"topic": "changes", "value": bytes(600), "key": b"another"}

        with pytest.raises(InvalidRecordError, match=r"topic=changes partition=\d row=4 of input split 0"):
            writer.append("query", 0, in_process([_rows(*lines[:3]), _rows(*lines[3:])]))


def test_micro_batch_when_splits_are_bad_then_the_first_split_is_named(memory_path: Path) -> None:
    """Splits are looked at in their order, whichever failed first."""
    with closing(_open(memory_path)) as writer:
        splits = [_rows(_good(0)), _rows(_good(0), _good(0) | {"topic": None}), _rows(_good(0) | {"topic": None})]

        with pytest.raises(InvalidRecordError, match="row=1 of input split 1"):
            writer.append("query", 0, in_process(*splits))


def test_micro_batch_when_every_row_is_quarantined_then_is_committed(memory_path: Path) -> None:
    """A micro-batch of which nothing is left counts as done."""
    with closing(_open(memory_path, on_invalid="quarantine")) as writer:
        bad = in_process(_rows(*[_good(0) | {"topic": "nowhere"}] * 5))

        metrics = writer.append("query", 0, bad)

        assert (metrics.records, metrics.quarantined, metrics.logs) == (0, 5, 0)
        assert writer.append("query", 0, bad).replayed
    assert len(_quarantined(memory_path / "store" / "quarantine")) == 5
    assert _values(memory_path) == []


def test_quarantine_when_many_rows_are_too_large_then_takes_exactly_those(memory_path: Path) -> None:
    """Rows of all sizes around the limit: what fits stays in order, what does not is diverted in order."""
    sizes = [*range(200, 420), *range(420, 200, -1)] * 3
    values = [b"%06d" % number + _INCOMPRESSIBLE[:size] for number, size in enumerate(sizes)]
    lines = [_good(0) | {"topic": "packed", "value": value} for value in values]
    with closing(_open(memory_path, on_invalid="quarantine")) as writer:
        metrics = writer.append("query", 0, in_process([_rows(*lines[:500]), _rows(*lines[500:])]))

    kept = [int((value or b"")[:6]) for value in _values(memory_path)]
    diverted = [row["row"] for row in _quarantined(memory_path / "store" / "quarantine")]
    assert kept == sorted(kept)
    assert diverted == sorted(diverted)
    assert sorted(kept + diverted) == list(range(len(sizes)))
    assert max(sizes[n] for n in kept) < min(sizes[n] for n in diverted)
    assert metrics.quarantined == len(diverted) > 300


@pytest.mark.parametrize("on_invalid", ["fail", "quarantine"])
def test_topic_when_it_is_not_utf8_then_is_an_illegal_name(memory_path: Path, on_invalid: str) -> None:
    """Spark casts any bytes to a string."""
    topic = pa.array([b"orders", b"\xff\xfe"], pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_pydict({"topic": topic, "value": pa.array([b"1", b"2"])})
    with closing(_open(memory_path, on_invalid=on_invalid)) as writer:
        if on_invalid == "quarantine":
            assert writer.append("query", 0, in_process(batch)).quarantined == 1
            return
        with pytest.raises(InvalidRecordError, match=r"illegal topic name: topic='\\ufffd\\ufffd' row=1"):
            writer.append("query", 0, in_process(batch))


def _offsets(*values: int) -> pa.RecordBatch:
    return _rows(*[_good(value) | {"partition": 0, "value": b"%d" % value} for value in values])


def test_preserved_offsets_when_they_go_back_across_splits_then_the_row_is_named(memory_path: Path) -> None:
    """No task can see it, and yet the message says which row of which split."""
    with closing(_open(memory_path, offsets="preserved")) as writer:
        before = contents(memory_path / "store")
        splits = [_offsets(1, 2, 30), _offsets(10, 31, 32), _offsets(33)]

        with pytest.raises(InvalidRecordError, match=r"goes back.*topic=orders partition=0 row=0 of input split 1"):
            writer.append("query", 0, in_process(*splits))

        assert contents(memory_path / "store") == before


@pytest.mark.parametrize(
    ("splits", "kept"),
    [
        ([(5, 9, 7, 8, 10), (11,)], [5, 9, 10, 11]),
        ([(100, *range(1, 100)), (101,)], [100, 101]),
        ([(1, 2, 30), (10, 31, 29, 32), (5, 33)], [1, 2, 30, 31, 32, 33]),
        ([(1, 50), (20, 21), (30, 60)], [1, 50, 60]),
        ([(1,), (), (1, 2)], [1, 2]),
    ],
)
def test_preserved_offsets_when_quarantined_then_the_log_never_goes_back(
    memory_path: Path, splits: Sequence[Sequence[int]], kept: list[int]
) -> None:
    """Whatever is not above all before it is diverted, inside a split, across splits and across micro-batches."""
    with closing(_open(memory_path, offsets="preserved", on_invalid="quarantine")) as writer:
        metrics = writer.append("query", 0, in_process(*[_offsets(*split) if split else [] for split in splits]))
        again = writer.append("query", 1, in_process(_offsets(kept[0], kept[-1], kept[-1] + 1)))

    log = read_store(memory_path / "store")["orders-0"]
    assert [record.offset for record in log] == [*kept, kept[-1] + 1]
    assert [record.value for record in log] == [b"%d" % offset for offset in [*kept, kept[-1] + 1]]
    assert metrics.quarantined == sum(map(len, splits)) - len(kept)
    assert again.quarantined == (2 if len(kept) > 1 else 1)


def test_null_value_is_a_tombstone(memory_path: Path) -> None:
    """A null value needs no leave, also in a compacted topic; an absent timestamp column means now."""
    with closing(_open(memory_path, topic="changes")) as writer:
        writer.append("query", 0, in_process(rows(key=["a", "a"], value=["1", None])))

    records = [record for log in read_store(memory_path / "store").values() for record in log]
    assert [(record.key, record.value, record.timestamp) for record in records] == [
        (b"a", b"1", _NOW_MS),
        (b"a", None, _NOW_MS),
    ]


def test_empty_micro_batch_is_committed(memory_path: Path) -> None:
    """A micro-batch without a row, or without a split, is done once it is recorded."""
    with closing(_open(memory_path)) as writer:
        assert writer.append("query", 0, in_process()).records == 0
        assert writer.append("query", 1, in_process([], _rows(_good(0)).slice(0, 0))).records == 0

        assert writer.append("query", 1, in_process(_rows(_good(0)))).replayed
