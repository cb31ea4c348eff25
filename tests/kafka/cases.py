"""The records of the matrix: every codec and level, every shape of key, value, header and timestamp, small segments.

Rows are made once, here, from a seed; what a client must read follows from them alone and never from our own reader.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import pyarrow as pa

from sparklog.storage_core.log_config import CODECS
from tests.kafka.consumed import CREATE_TIME, LOG_APPEND_TIME, Consumed, Log

__all__ = [
    "PARTITIONS",
    "TOPICS",
    "Row",
    "broker_settings",
    "expected_logs",
    "frame_table",
    "matrix_rows",
    "micro_batches",
    "topic_settings",
]

PARTITIONS = 3
"""Partitions of every topic; the last one gets no record."""

_SMALL = {"segment.bytes": 8_000, "batch.size": 1_500, "index.interval.bytes": 1_000, "retention.ms": -1}
_LARGE = {"segment.bytes": 1 << 20, "batch.size": 300_000}  # several blocks of snappy and lz4 in a batch
_HOUR_MS = 3_600_000

TOPICS: Mapping[str, Mapping[str, object]] = {
    "m.none": {},
    "m.gzip": {"compression.type": "gzip"},
    "m.gzip.9": {"compression.type": "gzip", "compression.gzip.level": 9},
    "m.snappy": {"compression.type": "snappy"},
    "m.lz4": {"compression.type": "lz4"},
    "m.lz4.17": {"compression.type": "lz4", "compression.lz4.level": 17},
    "m.zstd": {"compression.type": "zstd"},
    "m.zstd.fast": {"compression.type": "zstd", "compression.zstd.level": -5},
    "m.zstd.19": {"compression.type": "zstd", "compression.zstd.level": 19},
    "m.append-time.none": {"message.timestamp.type": "LogAppendTime"},
    "m.append-time.lz4": {"message.timestamp.type": "LogAppendTime", "compression.type": "lz4"},
    "m.rolled-by-time": {"segment.bytes": 1 << 20, "segment.ms": _HOUR_MS, "compression.type": "snappy"},
    "m.rolled-by-index": {"segment.bytes": 1 << 20, "segment.index.bytes": 120, "index.interval.bytes": 100},
    "m.default": {"segment.bytes": 1 << 30, "batch.size": 16_384, "index.interval.bytes": 4096},
    **{f"m.large.{codec}": {**_LARGE, "compression.type": codec} for codec in ("uncompressed", *CODECS[1:])},
}
"""Kafka's settings of each topic, over `_SMALL`."""

_START_MS = 1_700_000_000_000
_PLAIN_TIMES = ("m.rolled-by-time", "m.default", "m.zstd")  # without odd ones, so that lookups depend on every entry
_ODD_TIMESTAMPS = (-1, 0, 1, _START_MS - 30 * 24 * _HOUR_MS, 253_402_300_799_999, -1, -1)
_KEYS: Sequence[bytes | None] = (None, b"", b"k", "kéy-Ω".encode(), b"\x00\xff\xfe", b"a longer key " * 4)
_HEADERS: Sequence[tuple[tuple[str, bytes | None], ...]] = (
    (),
    (),
    (("trace", b"1"),),
    (("trace", b"1"), ("trace", None), ("trace", b"")),
    (("näme-☃", b"\x00\xff"), ("", b"empty name")),
)


class Row(NamedTuple):
    """One input row; the names are those of the sink's columns."""

    topic: str
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def topic_settings() -> dict[str, dict[str, object]]:
    """Return the topics as a sink takes them."""
    return {name: {**_SMALL, **settings, "partitions": PARTITIONS} for name, settings in TOPICS.items()}


def broker_settings() -> dict[str, dict[str, object]]:
    """Return the topics as a broker takes them: what the sink alone reads is left out, and segments are not its own."""
    ours = ("partitions", "batch.size", "segment.bytes")
    return {
        topic: {name: value for name, value in settings.items() if name not in ours}
        for topic, settings in topic_settings().items()
    }


def matrix_rows() -> list[Row]:
    """Return all rows, the logs in turn: each of them gets its rows in the order of its clock."""
    rng = random.Random(20_240_229)
    logs = [list(_log_rows(topic, number, rng)) for topic in TOPICS for number in range(PARTITIONS - 1)]
    return [row for turn in zip_longest(*logs) for row in turn if row is not None]


def micro_batches(rows: Sequence[Row], count: int) -> list[Sequence[Row]]:
    """Cut rows into consecutive micro-batches."""
    size = -(-len(rows) // count)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def frame_table(rows: Sequence[Row]) -> pa.Table:
    """Return rows as the table that a Spark frame is made of."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("timestamp", pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", headers),
        ]
    )
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[5] = [[{"key": name, "value": value} for name, value in pairs] for pairs in columns[5]]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def expected_logs(rows: Sequence[Row]) -> dict[Log, list[Consumed]]:
    """Return what every client must read: offsets dense from 0, in the order of the rows.

    A timestamp the log sets itself is left at 0.
    """
    logs: dict[Log, list[Consumed]] = {(topic, number): [] for topic in TOPICS for number in range(PARTITIONS)}
    for row in rows:
        log = logs[row.topic, row.partition]
        appended = TOPICS[row.topic].get("message.timestamp.type") == "LogAppendTime"
        timestamp, kind = (0, LOG_APPEND_TIME) if appended else (row.timestamp, CREATE_TIME)
        log.append(Consumed(len(log), timestamp, kind, row.key, row.value, row.headers))
    return logs


def _log_rows(topic: str, partition: int, rng: random.Random) -> Iterator[Row]:
    is_large = ".large." in topic
    clock = _START_MS
    for number in range(20 if is_large else 350):
        clock += rng.randrange(-20_000, 60_000)
        odd = topic not in _PLAIN_TIMES and rng.random() < 0.05
        timestamp = rng.choice(_ODD_TIMESTAMPS) if odd else clock
        value = (_large_value if is_large else _value)(partition, number, rng)
        yield Row(topic, partition, timestamp, rng.choice(_KEYS), value, rng.choice(_HEADERS))


def _value(partition: int, number: int, rng: random.Random) -> bytes | None:
    """Return text in partition 0, bytes in partition 1, and now and then nothing, or null."""
    if number % 23 == 0:
        return (None, b"")[number % 2]
    if partition:
        return rng.randbytes(rng.randrange(1, 300))
    return f"value {number}\n{'Ωmega and más ' * rng.randrange(12)}\x00".encode()


def _large_value(partition: int, number: int, rng: random.Random) -> bytes:
    """Return up to 200,000 bytes: what compresses well in partition 0, what does not in partition 1."""
    size = rng.randrange(200_000)
    return rng.randbytes(size) if partition else (b"compressible %d " % number * size)[:size]
