import base64
from typing import Any

import pytest

from storage_core.log.log_reader import LogReader
from tests.golden import GoldenLog, golden_logs


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    return {
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "timestamp_type": ("CreateTime", "LogAppendTime")[record["timestamp_type"]],
        "leader_epoch": None if record["leader_epoch"] < 0 else record["leader_epoch"],
        "key": text(record["key"]),
        "value": text(record["value"]),
        "headers": [[header["key"], text(header["value"])] for header in record["headers"]],
    }


@pytest.mark.parametrize("golden", golden_logs())
def test_read_when_broker_wrote_the_log_then_every_record_as_its_consumer_saw_it(golden: GoldenLog) -> None:
    """The records of a broker's log equal what its consumer read, control batches and removed offsets passed over."""
    expected = golden.expected
    reader = LogReader(golden.directory, log_start_offset=expected["log_start_offset"])

    records = [_plain(record) for batch in reader.read(reader.log_start_offset) for record in batch.to_pylist()]

    assert records == expected["records"]
    assert reader.log_end_offset == expected["high_watermark"]


@pytest.mark.parametrize("golden", golden_logs())
def test_offset_for_time_when_broker_wrote_the_log_then_the_brokers_answer(golden: GoldenLog) -> None:
    """A lookup by time answers what the broker answered."""
    reader = LogReader(golden.directory, log_start_offset=golden.expected["log_start_offset"])

    for asked, offset, timestamp in golden.expected["offsets_for_times"]:
        assert reader.offset_for_time(asked) == (None if offset is None else (offset, timestamp)), asked


@pytest.mark.parametrize("golden", golden_logs())
def test_read_when_started_at_any_offset_then_the_records_from_there(golden: GoldenLog) -> None:
    """Whatever the indexes say, a read from an offset gives exactly the records at or after it."""
    reader = LogReader(golden.directory, log_start_offset=golden.expected["log_start_offset"])
    offsets = [record["offset"] for record in golden.expected["records"]]

    for start in range(reader.log_start_offset, reader.log_end_offset + 1):
        found = [offset for batch in reader.read(start) for offset in batch.column("offset").to_pylist()]
        assert found == [offset for offset in offsets if offset >= start]


@pytest.mark.parametrize("golden", golden_logs())
def test_offset_of_max_timestamp_when_broker_wrote_the_log_then_first_of_the_latest(golden: GoldenLog) -> None:
    """The record with the largest timestamp is found, the first of several."""
    reader = LogReader(golden.directory, log_start_offset=golden.expected["log_start_offset"])
    found = reader.offset_of_max_timestamp()

    assert found is not None
    latest = max(record["timestamp"] for record in golden.expected["records"])
    first = next(record["offset"] for record in golden.expected["records"] if record["timestamp"] == latest)
    assert found == (first, latest) or found[1] > latest  # a transaction marker may be later than every record
