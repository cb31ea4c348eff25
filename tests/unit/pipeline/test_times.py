"""Times on the command line: ms, ISO 8601, dates, and durations before now; seconds are not taken for ms."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.build.sink_store import in_process, open_store, rows
from tests.sparklog_command import Sparklog

_START = datetime(2023, 11, 14, 22, 0, tzinfo=UTC)
_HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with topic `t`: 48 records, one an hour, and two of the last hours."""
    store = tmp_path_factory.mktemp("times") / "store"
    start_ms, now_ms = int(_START.timestamp() * 1000), int(datetime.now(UTC).timestamp() * 1000)
    times = [*(start_ms + _HOUR_MS * n for n in range(48)), now_ms - 5 * _HOUR_MS, now_ms - _HOUR_MS // 2]
    writer = open_store(store, {"t": {"segment.bytes": 1_000_000}}, topic="t")
    writer.append("q", 0, in_process(rows(value=[str(n) for n in range(50)], timestamp=times)))
    writer.close()
    return store


@pytest.mark.parametrize(
    ("time", "offset"),
    [
        ("1700020800000", 17 - 11),
        ("2023-11-15T04:00:00Z", 6),
        ("2023-11-15T04:00Z", 6),
        ("2023-11-15T06:00+02:00", 6),
        ("2023-11-15T04:00:00.001Z", 7),
        ("2023-11-15T04:00", 6),
        ("2023-11-15", 2),
        ("-1h", 49),
        ("-1d", 48),
        ("-90m", 49),
        ("-20000s", 48),
        ("-500w", 0),
        ("1000", 0),
        ("20261199", 0),
    ],
)
def test_verbs_when_time_has_any_form_then_the_first_record_that_late(
    sparklog: Sparklog, store: Path, time: str, offset: int
) -> None:
    """All verbs read the same forms of a time; a date is midnight in UTC, and so is a time without a zone UTC."""
    assert sparklog("offsets", store, "t", "--time", time).out == f"t:0:{offset}\n"
    assert sparklog("read", store, "t", "--from-time", time, "--max", 1).out.startswith(f"t:0:{offset}\t")
    planned = sparklog("delete-records", store, "t:0", "--before-time", time)
    assert re.search(rf"^t-0 (will start|starts) at offset {offset}\b", planned.out)


@pytest.mark.parametrize(
    ("verb", "option"), [("offsets", "--time"), ("read", "--from-time"), ("delete-records", "--before-time")]
)
@pytest.mark.parametrize(
    ("time", "says"),
    [
        ("1700020800", "1700020800 is 1970-01-20T16:13:40.800Z in ms, 2023-11-15T04:00:00.000Z in seconds"),
        ("yesterday", "'yesterday' is not a time: "),
        ("2023-13-01", "'2023-13-01' is not a time: "),
        ("1h", "'1h' is not a time: "),
        ("-1M", "'-1M' is not a time: write 2026-11-20T10:00Z, 2026-11-20, -1h before now (ms, s, m, h, d, w), or ms"),
        ("20261120", "20261120 is 1970-01-01T05:37:41.120Z in ms, 2026-11-20T00:00:00.000Z as a date: "),
        ("1795125600000000", "beyond the year 9999 in ms, 2026-11-19T22:00:00.000Z in microseconds: "),
        ("1795125600000000000", "in ms, 2026-11-19T22:00:00.000Z in nanoseconds: "),
        ("99999999999999999999999", "99999999999999999999999 is beyond the year 9999 in ms: "),
        ("1960-01-01", "'1960-01-01' is before 1970"),
    ],
)
def test_verbs_when_time_makes_no_sense_then_wrong_use_with_the_reason(
    sparklog: Sparklog, store: Path, verb: str, option: str, time: str, says: str
) -> None:
    """Seconds, which would be taken for a day in January 1970, are refused with both readings."""
    ran = sparklog(verb, store, "t:0", option, time)

    assert ran.code == 2
    assert says in ran.err


def test_read_when_as_json_then_each_record_has_topic_and_partition(sparklog: Sparklog, store: Path) -> None:
    """Records of several logs can be told apart."""
    record = sparklog("read", store, "t", "--max", 1, "--json").objects[0]

    assert list(record)[:3] == ["topic", "partition", "offset"]
    assert (record["topic"], record["partition"], record["offset"]) == ("t", 0, 0)


def test_retain_when_segments_are_old_then_reasons_in_days_and_sizes_for_people(
    sparklog: Sparklog, tmp_path: Path
) -> None:
    """People read days and MB, machines ms and bytes."""
    now = datetime.now(UTC)
    old_ms, new_ms = (int((now - timedelta(days=days)).timestamp() * 1000) for days in (4.8, 0))
    topics = {"t": {"segment.bytes": 4000, "retention.ms": 86_400_000, "batch.size": 1000}}
    writer = open_store(tmp_path / "store", topics, topic="t")
    times = [old_ms] * 10 + [new_ms] * 10
    writer.append("q", 0, in_process(rows(value=["x" * 900] * 20, timestamp=times)))
    writer.close()

    text = sparklog("retain", tmp_path / "store").out
    (log,) = sparklog("retain", tmp_path / "store", "--json").objects[0]["logs"]

    when = old_ms // 1000
    iso = f"{datetime.fromtimestamp(when, UTC):%Y-%m-%dT%H:%M:%S}"
    assert f"time: its latest record is 4.8 days old ({iso}" in text
    assert "retention.ms is 1 day" in text
    assert re.search(r"planned: \d segments of 1 logs, \d+\.\d kB; --execute does it", text)
    assert log["deletions"][0]["largest_timestamp_ms"] == old_ms
    assert isinstance(log["deletions"][0]["size_bytes"], int)


def test_describe_when_for_people_then_sizes_have_units(sparklog: Sparklog, store: Path) -> None:
    """A table has sizes such as 3.1 kB; JSON has bytes."""
    assert re.search(r" \d+(\.\d)? (kB|bytes) ", sparklog("describe", store).out)
    assert isinstance(sparklog("describe", store, "--json").objects[0]["logs"][0]["size_bytes"], int)
