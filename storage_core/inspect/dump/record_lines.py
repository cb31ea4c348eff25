"""Records as lines of JSON: one object a line, binary content in base64.

`{"topic":"t","partition":0,"offset":0,"timestamp":1700000000000,"timestamp_type":"CreateTime","leader_epoch":0,
"key":"aw==","value":null,"headers":[["h","eA=="]]}`; a null is null, and so is the leader epoch of a batch that has
none. A record of format v0 has timestamp -1 and the type `NoTimestampType`.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.storage_core.record.schema import int64s
from sparklog.storage_core.topic_partition import TopicPartition
from sparklog.storage_core.visible_text import visible_json

__all__ = ["base64_texts", "header_texts", "record_lines"]

_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime", "NoTimestampType")  # the last one is number -1


def record_lines(log: TopicPartition, records: pa.RecordBatch) -> Iterator[str]:
    """Yield the line of each record, without its newline.

    Args:
        log: that they are of.
        records: of `RECORD_SCHEMA`.
    """
    place = f'{{"topic":{visible_json(json.dumps(log.topic, ensure_ascii=False))},"partition":{log.partition},'
    numbers = (int64s(records.column(name)).tolist() for name in records.schema.names[:4])
    keys, values = base64_texts(records.column("key")), base64_texts(records.column("value"))
    headers = header_texts(records.column("headers"))
    for offset, timestamp, kind, epoch, key, value, header in zip(*numbers, keys, values, headers, strict=True):
        yield (
            f'{place}"offset":{offset},"timestamp":{timestamp},"timestamp_type":"{_TIMESTAMP_TYPES[kind]}",'
            f'"leader_epoch":{"null" if epoch < 0 else epoch},"key":{key},"value":{value},"headers":{header}}}'
        )


def base64_texts(column: pa.Array) -> list[str]:
    """Return each value of a binary column in base64 and quotes, or `null`; straight from the column's buffers."""
    if not len(column):
        return []
    validity, offsets, data = column.buffers()
    borders = np.frombuffer(offsets, np.int32, count=len(column) + 1, offset=4 * column.offset).tolist()
    view = memoryview(data if data is not None else b"")
    encode = binascii.b2a_base64
    texts = [f'"{encode(view[start:end], newline=False).decode("ascii")}"' for start, end in pairwise(borders)]
    if column.null_count:
        is_valid = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
        for row in np.flatnonzero(is_valid[column.offset :][: len(column)] == 0).tolist():
            texts[row] = "null"
    return texts


def header_texts(column: pa.ListArray) -> list[str]:
    """Return each record's headers as a list of pairs."""
    if column.offsets[0].equals(column.offsets[-1]):
        return ["[]"] * len(column)
    return [_header_list(each) for each in column.to_pylist()]


def _header_list(headers: list[dict[str, Any]]) -> str:
    return f"[{','.join(map(_header_pair, headers))}]"


def _header_pair(header: dict[str, Any]) -> str:
    value = header["value"]
    text = "null" if value is None else f'"{binascii.b2a_base64(value, newline=False).decode("ascii")}"'
    return f"[{visible_json(json.dumps(header['key'], ensure_ascii=False))},{text}]"
