"""Opens wrappers of formats v0 and v1: their entries and offsets.

| rule                | format v0    | format v1                                                          |
|---------------------|--------------|--------------------------------------------------------------------|
| inner offsets       | absolute     | relative: the last one stands for the wrapper's own                |
| wrapper at offset 0 | as any other | inner offsets are absolute: an old client left the wrapper's unset |
| wrapper below last  | as any other | damage                                                             |
| timestamps          | none         | each entry's own, or the wrapper's if that is LogAppendTime        |

Inner entries have the wrapper's format and no codec, and there is at least one. A partial one at the end is skipped, as
by Kafka's consumer: the wrapper's CRC covers it, so it was written like that.

Source: Kafka AbstractLegacyRecordBatch; KIP-31, KIP-32.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from sparklog.storage_core.errors import CorruptBatchError
from sparklog.storage_core.log_config import CODECS
from sparklog.storage_core.record.attributes import CODEC_MASK
from sparklog.storage_core.record.batch_probe import MAGIC_AT
from sparklog.storage_core.record.compression import decompress, decompress_v0
from sparklog.storage_core.record.legacy.header import FIXED_BYTES, LEGACY_ATTRIBUTES_AT

__all__ = ["LEGACY_CODECS", "InnerSet", "open_wrapper", "survey_wrapper"]

LEGACY_CODECS: Final = CODECS[:4]
"""Codecs of wrappers, by number."""

_LENGTH: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class InnerSet:
    """The entries of a wrapper.

    Attributes:
        data: the entries back to back, decompressed.
        count: number of complete ones.
        base_offset: to add to each stored offset.
    """

    data: bytes | memoryview
    count: int
    base_offset: int


def open_wrapper(entry: memoryview, offset: int, max_bytes: int, position: int) -> InnerSet:
    """Return the entries of a wrapper, with checked CRCs.

    Args:
        max_bytes: limit of its decompressed bytes.

    Raises:
        CorruptBatchError: the wrapper or an entry in it is damaged, or there is none.
    """
    return _open(entry, offset, max_bytes, position, 1)


def survey_wrapper(entry: memoryview, offset: int, max_bytes: int, position: int) -> InnerSet:
    """Return the entries of a wrapper without a check of their CRCs, for tools that show damage.

    Arguments and errors as of `open_wrapper`.
    """
    return _open(entry, offset, max_bytes, position, 0)


def _open(entry: memoryview, offset: int, max_bytes: int, position: int, checks_crcs: int) -> InnerSet:
    from sparklog.storage_core.record.legacy.kernels import LEGACY_FAILURES, survey_set

    magic, codec = entry[MAGIC_AT], LEGACY_CODECS[entry[LEGACY_ATTRIBUTES_AT] & CODEC_MASK]
    stream = _value(entry, FIXED_BYTES[magic], position)
    data = (decompress if magic else decompress_v0)(codec, stream, max_bytes, position)
    failure, count, last_offset = survey_set(np.frombuffer(data, np.uint8), magic, checks_crcs)
    if failure:
        raise CorruptBatchError(LEGACY_FAILURES[failure], position)
    if not count:
        raise CorruptBatchError("a wrapper holds no message", position)
    if magic == 0 or offset == 0:
        return InnerSet(data, count, 0)
    if not 0 <= last_offset <= offset:
        raise CorruptBatchError(f"a wrapper's offset is below its last message's: {offset} {last_offset}", position)
    return InnerSet(data, count, offset - last_offset)


def _value(entry: memoryview, key_length_at: int, position: int) -> memoryview:
    """Return a wrapper's value; its key is ignored, as in Kafka."""
    from sparklog.storage_core.record.legacy.kernels import LEGACY_FAILURES

    value_length_at = key_length_at + _LENGTH.size
    value_length_at += max(_LENGTH.unpack_from(entry, key_length_at)[0], 0)
    start = value_length_at + _LENGTH.size
    if start > len(entry):
        raise CorruptBatchError(LEGACY_FAILURES[2], position)
    size = _LENGTH.unpack_from(entry, value_length_at)[0]
    if size < 0:
        raise CorruptBatchError("a wrapper has no value", position)
    if size > len(entry) - start:
        raise CorruptBatchError(LEGACY_FAILURES[3], position)
    return entry[start : start + size]
