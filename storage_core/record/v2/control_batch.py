"""A control batch of one record: what no consumer gets, such as a transaction's marker or a snapshot's header.

Source: Kafka MemoryRecords.writeSnapshotHeaderRecord, ControlRecordType.
"""

import numpy as np

from sparklog.storage_core.record.attributes import CONTROL_BIT
from sparklog.storage_core.record.batch_probe import V2_CRC
from sparklog.storage_core.record.schema import binary_column
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, encode_batches
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, HEADER_DTYPE
from sparklog.storage_core.record.v2.record_columns import RecordColumns

__all__ = ["encode_control_batch"]


def encode_control_batch(key: bytes, value: bytes, offset: int, timestamp_ms: int, leader_epoch: int) -> bytes:
    """Return a v2 batch of one record without a producer; the key is its version and type, int16 each."""
    columns = RecordColumns(
        key=binary_column([key]),
        value=binary_column([value]),
        timestamp=np.array([timestamp_ms], np.int64),
        offset=np.array([offset], np.int64),
    )
    options = EncodeOptions(partition_leader_epoch=leader_epoch)
    data = encode_batches(columns, np.zeros(1, np.int64), np.array([0, 1], np.int64), options).data
    header = data[:HEADER_BYTES].view(HEADER_DTYPE)
    header["attributes"] |= CONTROL_BIT
    header["crc"] = V2_CRC.update(data[V2_CRC.covers_from :].data)
    return data.tobytes()
