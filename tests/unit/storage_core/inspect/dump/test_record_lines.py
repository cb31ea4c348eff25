import json
from typing import Any

import pyarrow as pa
import pytest

from sparklog.storage_core.inspect.dump.record_lines import record_lines
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.record.schema import RECORD_SCHEMA
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.golden import GoldenLog, golden_logs

_LOG = TopicPartition("t", 3)
_PLACE = {"topic": "t", "partition": 3}


@pytest.mark.parametrize("golden", golden_logs())
def test_record_lines_when_broker_wrote_the_log_then_expected_objects(golden: GoldenLog) -> None:
    """A line is the object that the golden logs' own consumer wrote, field for field."""
    reader = LogReader(golden.directory, log_start_offset=golden.expected["log_start_offset"])

    lines = [line for batch in reader.read(reader.log_start_offset) for line in record_lines(_LOG, batch)]

    assert [json.loads(line) for line in lines] == [_PLACE | record for record in golden.expected["records"]]


def test_record_lines_when_batch_is_a_slice_then_only_its_rows() -> None:
    """A slice's lines are those of its rows; null and empty differ; an absent leader epoch is null."""
    rows: list[dict[str, Any]] = [
        {
            "offset": n,
            "timestamp": -1,
            "timestamp_type": 1,
            "leader_epoch": -1,
            "key": key,
            "value": b"v",
            "headers": [],
        }
        for n, key in enumerate([b"skipped", b"", None])
    ]
    batch = pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA).slice(1)

    assert list(record_lines(_LOG, batch)) == [
        '{"topic":"t","partition":3,"offset":1,"timestamp":-1,"timestamp_type":"LogAppendTime","leader_epoch":null,"key":"","value":"dg==","headers":[]}',
        '{"topic":"t","partition":3,"offset":2,"timestamp":-1,"timestamp_type":"LogAppendTime","leader_epoch":null,"key":null,"value":"dg==","headers":[]}',
    ]


def test_record_lines_when_no_rows_then_no_lines() -> None:
    """An empty batch has no lines."""
    assert list(record_lines(_LOG, pa.RecordBatch.from_pylist([], RECORD_SCHEMA))) == []
