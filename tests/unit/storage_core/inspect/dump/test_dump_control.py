import struct

import pytest

from sparklog.storage_core.inspect.dump.control import control_text

_ID = bytes(range(16))
_ID_TEXT = "AAECAwQFBgcICQoLDA0ODw"


def _key(number: int) -> bytes:
    return struct.pack(">hh", 0, number)


def _voter(number: int) -> bytes:
    endpoint = b"\x0bCONTROLLER" + b"\x0alocalhost" + struct.pack(">H", 9093) + b"\0"
    return struct.pack(">i", number) + _ID + b"\2" + endpoint + struct.pack(">hh", 0, 1) + b"\0\0"


@pytest.mark.parametrize(
    ("number", "value", "text"),
    [
        (0, struct.pack(">hi", 0, 11), "endTxnMarker: ABORT coordinatorEpoch: 11"),
        (1, struct.pack(">hi", 0, -1) + b"later", "endTxnMarker: COMMIT coordinatorEpoch: -1"),
        (
            2,
            struct.pack(">hi", 0, 1) + b"\3" + struct.pack(">iBiB", 1, 0, 2, 0) + b"\2" + struct.pack(">iBB", 1, 0, 0),
            'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1},{"voterId":2}],'
            '"grantingVoters":[{"voterId":1}]}',
        ),
        (
            2,
            struct.pack(">hi", 1, 7) + b"\2" + struct.pack(">i", 7) + _ID + b"\0\1\0",
            f'LeaderChange: {{"version":1,"leaderId":7,"voters":[{{"voterId":7,"voterDirectoryId":"{_ID_TEXT}"}}],'
            '"grantingVoters":[]}',
        ),
        (3, struct.pack(">hqB", 0, 5, 0), 'SnapshotHeader {"version":0,"lastContainedLogTimestamp":5}'),
        (4, struct.pack(">hB", 0, 0), 'SnapshotFooter {"version":0}'),
        (5, struct.pack(">hhB", 0, 1, 0), 'KRaftVersion {"version":0,"kRaftVersion":1}'),
        (
            6,
            struct.pack(">h", 0) + b"\2" + _voter(3) + b"\0",
            f'KRaftVoters {{"version":0,"voters":[{{"voterId":3,"voterDirectoryId":"{_ID_TEXT}","endpoints":'
            '[{"name":"CONTROLLER","host":"localhost","port":9093}],'
            '"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}',
        ),
        (9, b"", "controlType: UNKNOWN(9)"),
    ],
)
def test_control_text_when_type_is_known_then_kafkas_words(number: int, value: bytes, text: str) -> None:
    """Every type has its words; one that is not known has its number."""
    assert control_text(_key(number) + b"more", value) == text


@pytest.mark.parametrize("number", range(7))
def test_control_text_when_value_is_cut_then_the_type_alone(number: int) -> None:
    """A damaged value is no reason to end."""
    assert control_text(_key(number), b"\0").startswith("controlType: ")
    assert control_text(_key(number), b"\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff").count("\n") == 0
    assert control_text(b"\0", b"") == "controlType: UNKNOWN(-1)"
