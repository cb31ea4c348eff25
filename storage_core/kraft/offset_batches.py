"""Renders consumer groups' offsets as the batches of a log of `__consumer_offsets`.

Source: Kafka OffsetCommitKey.json, OffsetCommitValue.json.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from sparklog.storage_core.kraft.group_offsets import GroupOffset
from sparklog.storage_core.record.schema import binary_column
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, encode_batches
from sparklog.storage_core.record.v2.record_columns import RecordColumns

__all__ = ["render_offsets"]

_KEY_VERSION: Final = 1
_VALUE_VERSION: Final = 3
_NO_EPOCH: Final = -1


def render_offsets(offsets: Sequence[GroupOffset], commit_ms: int) -> bytes:
    """Return batches from offset 0 on with the offsets of groups of one partition; no bytes for none."""
    count = len(offsets)
    columns = RecordColumns(
        key=binary_column([*map(_key, offsets)]),
        value=binary_column([_value(each, commit_ms) for each in offsets]),
        timestamp=np.full(count, commit_ms, np.int64),
        offset=np.arange(count, dtype=np.int64),
    )
    options = EncodeOptions(partition_leader_epoch=0)
    rows, groups = np.arange(count, dtype=np.int64), np.array([0, count], np.int64)
    return encode_batches(columns, rows, groups, options).data.tobytes()


def _key(each: GroupOffset) -> bytes:
    partition = each.partition.to_bytes(4)
    return _int16(_KEY_VERSION) + _string(each.group) + _string(each.topic) + partition


def _value(each: GroupOffset, commit_ms: int) -> bytes:
    epoch = _NO_EPOCH.to_bytes(4, signed=True)
    return _int16(_VALUE_VERSION) + each.offset.to_bytes(8) + epoch + _string(each.metadata) + commit_ms.to_bytes(8)


def _string(text: str) -> bytes:
    data = text.encode()
    return _int16(len(data)) + data


def _int16(value: int) -> bytes:
    return value.to_bytes(2)
