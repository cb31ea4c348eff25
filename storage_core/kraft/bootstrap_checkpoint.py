"""`bootstrap.checkpoint`: the metadata that a new cluster's controller takes over at its first start.

A v2 log: a control batch with the snapshot's header, batches of metadata records, a control batch with its footer. A
broker checks neither CRCs nor the footer of this file: one that was cut would lose topics without a word.

Source: Kafka BootstrapDirectory, RecordsSnapshotWriter, SnapshotHeaderRecord.json, SnapshotFooterRecord.json.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from sparklog.storage_core.record.schema import binary_column
from sparklog.storage_core.record.v2.batch_encode import EncodeOptions, encode_batches
from sparklog.storage_core.record.v2.control_batch import encode_control_batch
from sparklog.storage_core.record.v2.record_columns import RecordColumns

__all__ = ["BOOTSTRAP_CHECKPOINT", "render_bootstrap_checkpoint"]

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"

_HEADER_KEY: Final = bytes([0, 0, 0, 3])
_FOOTER_KEY: Final = bytes([0, 0, 0, 4])
_FOOTER: Final = bytes(3)
_BATCH_BYTES: Final = 1 << 20
"""A broker takes batches of at most 8 MiB."""


def render_bootstrap_checkpoint(records: Sequence[bytes], timestamp_ms: int) -> bytes:
    """Return the file's bytes.

    Args:
        records: values of metadata records, features first, each topic before its partitions.
        timestamp_ms: of the snapshot.
    """
    count = len(records)
    columns = RecordColumns(
        key=None,
        value=binary_column(records),
        timestamp=np.full(count, timestamp_ms, np.int64),
        offset=np.arange(1, count + 1, dtype=np.int64),
    )
    options = EncodeOptions(batch_size_bytes=_BATCH_BYTES, partition_leader_epoch=0)
    data = encode_batches(columns, np.arange(count, dtype=np.int64), np.array([0, count], np.int64), options).data
    header = bytes(2) + timestamp_ms.to_bytes(8, signed=True) + bytes(1)
    return b"".join(
        (
            encode_control_batch(_HEADER_KEY, header, 0, timestamp_ms, 0),
            data.tobytes(),
            encode_control_batch(_FOOTER_KEY, _FOOTER, count + 1, timestamp_ms, 0),
        )
    )
