"""Batches that brokers wrote, against what their own consumers read."""

import base64
from typing import Any

import pytest

from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from tests.build.golden import GoldenLog, golden_logs
from tests.build.record_cases import records_of
from tests.plain.legacy_scalar import decode_log

_TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _row(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "timestamp_type": _TIMESTAMP_TYPES[record["timestamp_type"]],
        "leader_epoch": -1 if record["leader_epoch"] is None else record["leader_epoch"],
        "key": _bytes(record["key"]),
        "value": _bytes(record["value"]),
        "headers": [{"key": name, "value": _bytes(content)} for name, content in record["headers"]],
    }


@pytest.mark.parametrize("log", golden_logs())
def test_decode_when_a_broker_wrote_the_log_then_records_are_its_consumers(log: GoldenLog) -> None:
    """Every record of every segment is what a Java consumer read; every CRC is right; the plain decoder agrees."""
    rows: list[dict[str, Any]] = []
    for path in sorted(log.directory.glob("*.log")):
        data = path.read_bytes()
        scan = scan_batches(data)
        decoded = decode_batches(data, scan)
        decoded.validate(full=True)
        assert (scan.valid_bytes, check_crcs(data, scan).tolist()) == (len(data), [])
        assert list(zip(records_of(decoded), decoded.column("timestamp_type").to_pylist(), strict=True)) == decode_log(
            data
        )
        rows += decoded.to_pylist()

    start = log.expected["log_start_offset"]
    assert [row for row in rows if row["offset"] >= start] == [_row(record) for record in log.expected["records"]]
