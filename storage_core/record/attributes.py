"""The attribute bits of a batch: codec, timestamp type, transactional, control, delete horizon.

| bits | meaning                                                                |
|------|------------------------------------------------------------------------|
| 0-2  | codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5-7 are illegal        |
| 3    | timestamp type: 0 CreateTime, 1 LogAppendTime                          |
| 4    | transactional                                                          |
| 5    | control batch                                                          |
| 6    | `base_timestamp` holds the delete horizon                              |
| 7-15 | unused; written as 0, ignored when read                                |

Source: Kafka DefaultRecordBatch; KIP-98, KIP-534.
"""

from typing import Final

from sparklog.storage_core.log_config import CODECS

__all__ = [
    "CODEC_MASK",
    "CONTROL_BIT",
    "DELETE_HORIZON_BIT",
    "LOG_APPEND_TIME_BIT",
    "TRANSACTIONAL_BIT",
    "codec_name",
    "pack_attributes",
]

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40


def codec_name(attributes: int) -> str | None:
    """Return the codec's name, or None for one of the three illegal numbers."""
    number = attributes & CODEC_MASK
    return CODECS[number] if number < len(CODECS) else None


def pack_attributes(codec: str, *, log_append_time: bool = False, transactional: bool = False) -> int:
    """Return the attribute bits of a data batch.

    Args:
        codec: one of `CODECS`.
        log_append_time: whether the batch has the time of the append.
        transactional: whether the batch belongs to a transaction.
    """
    bits = CODECS.index(codec)
    bits |= LOG_APPEND_TIME_BIT if log_append_time else 0
    bits |= TRANSACTIONAL_BIT if transactional else 0
    return bits
