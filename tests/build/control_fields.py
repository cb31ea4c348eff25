"""Key and value of one control record, packed and unpacked field by field, as `control_records` describes them."""

import struct
from dataclasses import dataclass
from typing import Final

from sparklog.storage_core.record.control_records import ControlType

__all__ = [
    "EndTransactionMarker",
    "pack_end_transaction_marker",
    "unpack_control_type",
    "unpack_end_transaction_marker",
]

_VERSION: Final = 0
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of a transaction: `ABORT` or `COMMIT`, and the epoch of the coordinator that decided it."""

    control_type: ControlType
    coordinator_epoch: int


def unpack_control_type(key: bytes) -> int:
    """Return the type in one control record's key; it need not be one of `ControlType`.

    Raises:
        ValueError: the key is shorter than 4 bytes, or its version is negative.
    """
    return _unpack(_KEY, key, "key")


def unpack_end_transaction_marker(key: bytes, value: bytes) -> EndTransactionMarker:
    """Return what an end-of-transaction marker says.

    Raises:
        ValueError: the key is of another type, or key or value is too short or has a negative version.
    """
    control_type = unpack_control_type(key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise ValueError(f"control record ends no transaction: type={control_type}")
    return EndTransactionMarker(ControlType(control_type), _unpack(_VALUE, value, "value"))


def pack_end_transaction_marker(marker: EndTransactionMarker) -> tuple[bytes, bytes]:
    """Return the key and the value of a marker's record."""
    return _KEY.pack(_VERSION, marker.control_type), _VALUE.pack(_VERSION, marker.coordinator_epoch)


def _unpack(form: struct.Struct, data: bytes, what: str) -> int:
    """Return the field behind the version."""
    if len(data) < form.size:
        raise ValueError(f"control record's {what} has {len(data)} bytes, fewer than {form.size}")
    version, field = form.unpack_from(data)
    if version < _VERSION:
        raise ValueError(f"control record's {what} has version {version}")
    return int(field)
