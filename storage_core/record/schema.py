"""The Arrow columns of decoded records.

Source: Kafka's consumer record; field names as its dump tool and clients use them.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = [
    "CREATE_TIME",
    "HEADERS_TYPE",
    "LOG_APPEND_TIME",
    "NO_TIMESTAMP",
    "NO_TIMESTAMP_TYPE",
    "RECORD_SCHEMA",
    "binary_column",
    "int64s",
]

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
NO_TIMESTAMP_TYPE: Final = -1
"""The timestamp type of a record of format v0, which has no timestamp."""

NO_TIMESTAMP: Final = -1
"""Timestamp of a record without one."""

HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
)

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),  # ms since the epoch, -1 none
        pa.field("timestamp_type", pa.int8(), nullable=False),  # 0 CreateTime, 1 LogAppendTime, -1 none
        pa.field("leader_epoch", pa.int32(), nullable=False),  # -1 none
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE, nullable=False),
    ]
)


def binary_column(values: Sequence[bytes]) -> pa.Array:
    """Return a column of values without nulls; `pa.array` would import pandas."""
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )


def int64s(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return a column of integers without nulls, read-only; `to_numpy` would import pandas."""
    return np.from_dlpack(column).astype(np.int64, copy=False)
