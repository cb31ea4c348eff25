"""The content of a control record, in the words of Kafka's dump tool.

| type | name            | value                                                                                      |
|------|-----------------|--------------------------------------------------------------------------------------------|
| 0, 1 | ABORT, COMMIT   | i16 version, i32 coordinator epoch                                                         |
| 2    | LEADER_CHANGE   | i16 version, i32 leader, voters, granting voters; from version 1 on voters have a directory |
| 3    | SNAPSHOT_HEADER | i16 version, i64 last contained log timestamp                                              |
| 4    | SNAPSHOT_FOOTER | i16 version                                                                                |
| 5    | KRAFT_VERSION   | i16 version, i16 KRaft version                                                             |
| 6    | KRAFT_VOTERS    | i16 version, voters with directory, endpoints and supported versions                       |

Types 2 to 6 are messages of Kafka's generated kind: arrays and strings have an unsigned varint length plus 1, and each
struct ends in tagged fields, of which these have none.

Source: Kafka ControlRecordType, DumpLogSegments; KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any, Final

__all__ = ["control_text"]

_TYPES: Final = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)
_LABELS: Final = {
    2: "LeaderChange: ",
    3: "SnapshotHeader ",
    4: "SnapshotFooter ",
    5: "KRaftVersion ",
    6: "KRaftVoters ",
}
_MARKER: Final = struct.Struct(">hi")


def control_text(key: bytes, value: bytes) -> str:
    """Return the content of a control record; its type alone where its value is damaged or its type is unknown.

    Args:
        key: i16 version, i16 type, and perhaps more.
        value: see the table above.
    """
    number = int.from_bytes(key[2:4], signed=True) if len(key) >= 4 else -1
    name = _TYPES[number] if 0 <= number < len(_TYPES) else "UNKNOWN"
    try:
        if number in (0, 1):
            return f"endTxnMarker: {name} coordinatorEpoch: {_MARKER.unpack_from(value)[1]}"
        if number in _LABELS:
            message = _MESSAGES[number](_Fields(value))
            return _LABELS[number] + json.dumps(message, separators=(",", ":"), ensure_ascii=False)
    except (struct.error, ValueError):
        pass
    return f"controlType: {name}({number})"


class _Fields:
    """Reads a generated message's fields, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, layout: str) -> int:
        """Return the next fixed-size number."""
        (value,) = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return int(value)

    def raw(self, size: int) -> bytes:
        """Return the next bytes."""
        if not 0 <= size <= len(self._data) - self._position:
            raise ValueError("a length reaches past the message")
        self._position += size
        return self._data[self._position - size : self._position]

    def length(self) -> int:
        """Return the next unsigned varint minus 1."""
        value = shift = 0
        while True:
            (byte,) = self.raw(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 28:
                return value - 1

    def text(self) -> str:
        """Return the next string."""
        return self.raw(self.length()).decode()

    def uuid(self) -> str:
        """Return the next id as Kafka prints it."""
        return base64.urlsafe_b64encode(self.raw(16)).decode().rstrip("=")

    def items(self, read: Callable[[_Fields], dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the next array."""
        count = self.length()
        if count > len(self._data):
            raise ValueError("an array's length lies")
        return [read(self) for _ in range(count)]

    def end(self) -> None:
        """Pass a struct's tagged fields, of which there are none."""
        if self.length() != -1:
            raise ValueError("unknown tagged fields")


def _leader_change(fields: _Fields) -> dict[str, Any]:
    version = fields.number(">h")

    def voter(fields: _Fields) -> dict[str, Any]:
        found: dict[str, Any] = {"voterId": fields.number(">i")}
        if version >= 1:
            found["voterDirectoryId"] = fields.uuid()
        fields.end()
        return found

    leader = fields.number(">i")
    voters, granting = fields.items(voter), fields.items(voter)
    fields.end()
    return {"version": version, "leaderId": leader, "voters": voters, "grantingVoters": granting}


def _snapshot_header(fields: _Fields) -> dict[str, Any]:
    found = {"version": fields.number(">h"), "lastContainedLogTimestamp": fields.number(">q")}
    fields.end()
    return found


def _snapshot_footer(fields: _Fields) -> dict[str, Any]:
    found = {"version": fields.number(">h")}
    fields.end()
    return found


def _kraft_version(fields: _Fields) -> dict[str, Any]:
    found = {"version": fields.number(">h"), "kRaftVersion": fields.number(">h")}
    fields.end()
    return found


def _kraft_voters(fields: _Fields) -> dict[str, Any]:
    found: dict[str, Any] = {"version": fields.number(">h"), "voters": fields.items(_voter)}
    fields.end()
    return found


def _voter(fields: _Fields) -> dict[str, Any]:
    found: dict[str, Any] = {
        "voterId": fields.number(">i"),
        "voterDirectoryId": fields.uuid(),
        "endpoints": fields.items(_endpoint),
        "kRaftVersionFeature": _supported(fields),
    }
    fields.end()
    return found


def _endpoint(fields: _Fields) -> dict[str, Any]:
    found: dict[str, Any] = {"name": fields.text(), "host": fields.text(), "port": fields.number(">H")}
    fields.end()
    return found


def _supported(fields: _Fields) -> dict[str, Any]:
    found = {"minSupportedVersion": fields.number(">h"), "maxSupportedVersion": fields.number(">h")}
    fields.end()
    return found


_MESSAGES: Final[dict[int, Callable[[_Fields], dict[str, Any]]]] = {
    2: _leader_change,
    3: _snapshot_header,
    4: _snapshot_footer,
    5: _kraft_version,
    6: _kraft_voters,
}
