"""Routing of rows: explicit partition, Kafka's hash of the key, turns for rows without either."""

import pyarrow as pa
import pytest

from sparklog.sink.stage.invalid_rows import InvalidReason
from sparklog.sink.stage.partitioner import Router, StageTopic, binary_layout, epoch_ms
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions
from tests.build.sink_store import rows
from tests.plain.plain_murmur2 import murmur2

_OPTIONS = EncodeOptions(batch_size_bytes=200)
_TOPICS = (
    StageTopic(name="a", first_log=0, partitions=3, options=_OPTIONS, needs_key=False),
    StageTopic(name="b", first_log=3, partitions=5, options=_OPTIONS, needs_key=True, oldest_ms=100, newest_ms=200),
    StageTopic(name="c", first_log=8, partitions=1, options=_OPTIONS, needs_key=False),
)


def _route(batch: pa.RecordBatch, fixed_topic: int | None = None, turn: int = 0) -> list[int]:
    logs: list[int] = Router(_TOPICS, fixed_topic, 150, turn).route(batch).log.tolist()
    return logs


def _reasons(batch: pa.RecordBatch, fixed_topic: int | None = None) -> list[str | None]:
    reason = Router(_TOPICS, fixed_topic, 150, 0).route(batch).reason.tolist()
    return [InvalidReason(code).column if code else None for code in reason]


def test_route_when_partition_is_given_then_the_key_does_not_matter() -> None:
    """A null partition leaves the choice to the key."""
    key_log = (murmur2(b"k") & 0x7FFFFFFF) % 3

    assert _route(rows(topic=["a", "a", "b"], partition=[2, None, 4], key=["k", "k", "k"], value=["", "", ""])) == [
        2,
        key_log,
        7,
    ]


def test_route_when_rows_have_keys_then_goes_where_kafkas_producer_sends_them() -> None:
    """`murmur2(key) & 0x7fffffff mod partitions`, for keys of any length and any bytes."""
    keys = [bytes(range(n % 256))[-n % 41 :] + b"\xff" * (n % 5) for n in range(200)]

    logs = _route(rows(key=keys, value=keys), fixed_topic=1)

    assert logs == [3 + (murmur2(key) & 0x7FFFFFFF) % 5 for key in keys]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_route_when_columns_are_sliced_or_large_then_reads_the_right_bytes(kind: pa.DataType) -> None:
    """A column may start in the middle of its buffers."""
    column = pa.array(["unused", *(f"key-{n}" for n in range(20))], kind)
    batch = pa.RecordBatch.from_pydict({"key": column, "value": column}).slice(1)

    assert _route(batch, 0) == [(murmur2(b"key-%d" % n) & 0x7FFFFFFF) % 3 for n in range(20)]


def test_route_when_rows_have_no_key_then_stays_until_a_batch_is_full() -> None:
    """A row costs its value and 21 bytes; each topic takes turns of its own, also from one Arrow batch to the next."""
    router = Router(_TOPICS, None, 150, 1)
    batch = rows(topic=["a", "c"] * 10, value=[bytes(79)] * 20)

    logs = [log for _ in range(2) for log in router.route(batch).log.tolist() if log != 8]

    assert logs == [1, 2, 2, 0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2]


def test_route_when_a_row_has_several_problems_then_reports_the_first_in_order_of_columns() -> None:
    """Topic before timestamp before key before headers before partition."""
    batch = rows(
        topic=[None, "x", "b", "b", "b", "b"],
        partition=[-1, 9, 9, 9, 9, 1],
        timestamp=[None, None, None, 150, 150, 150],
        key=[None, None, None, None, "k", "k"],
        value=["v"] * 6,
    )

    assert _reasons(batch) == ["topic", "topic", "timestamp", "key", "partition", None]


def test_route_when_timestamps_are_at_the_borders_then_takes_them() -> None:
    """Both ends of the range belong to it, and -1 is no timestamp at all."""
    batch = rows(timestamp=[99, 100, 200, 201, -1, -2], key=["k"] * 6, value=["v"] * 6)

    assert _reasons(batch, 1) == ["timestamp", None, None, "timestamp", None, "timestamp"]


def test_route_when_there_is_no_timestamp_column_then_takes_the_time_of_the_micro_batch() -> None:
    """Every row of it has the same."""
    routed = Router(_TOPICS, 0, 150, 0).route(rows(value=["a", "b"]))

    assert routed.timestamp.tolist() == [150, 150]


def test_partition_of_tells_what_the_row_asks_for() -> None:
    """For messages: whatever else is wrong with the row."""
    router = Router(_TOPICS, None, 150, 0)

    def partition(**columns: object) -> int | None:
        return router.partition_of(rows(**{name: [value] for name, value in columns.items()}))

    assert partition(topic="a", partition=77, key="k", value="") == 77
    assert partition(topic="b", partition=None, key="k", value="") == (murmur2(b"k") & 0x7FFFFFFF) % 5
    assert partition(topic="b", key=None, value="") is None
    assert partition(topic="b", value="") is None
    assert partition(topic="nowhere", key="k", value="") is None


@pytest.mark.parametrize(
    ("unit", "ticks", "expected"),
    [("us", [-1, 0, 999, 1000, -1001], [-1, 0, 0, 1, -2]), ("ms", [-5, 7], [-5, 7]), ("ns", [-1, 1_999_999], [-1, 1])],
)
def test_epoch_ms_rounds_down(unit: str, ticks: list[int], expected: list[int]) -> None:
    """Also before 1970, as Java's Instant.toEpochMilli does."""
    assert epoch_ms(pa.array([*ticks, None], pa.timestamp(unit, tz="UTC"))).tolist() == [*expected, 0]


def test_binary_layout_when_all_are_null_then_there_are_no_bytes() -> None:
    """Arrow gives such a column no data buffer."""
    data, starts, sizes = binary_layout(pa.array([None, None], pa.binary()))

    assert (sizes.tolist(), starts.tolist(), len(data)) == ([-1, -1], [0, 0], 1)
