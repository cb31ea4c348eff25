"""Reading a store as of a cut: the same records as then, or an error that names log and cause."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.pipeline.places.past_logs import past_of
from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.reader.data_source import KafkaLogSource
from sparklog.pipeline.reader.read_task import read_task
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.operations.truncate_logs import truncate_logs
from sparklog.sink.past.cuts import CutTable, cuts_path
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.cut_store import HOUR_MS, LOG, MINUTE_MS, NOON_MS, append_by_clock, forget_past
from tests.build.ledger_rows import change_row
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, numbers, open_store
from tests.sparklog_command import Sparklog

_MINUTES = [10, 70, 130, 190]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ten numbers an hour; the ledger's own past is gone."""
    append_by_clock(tmp_path / "s", _MINUTES)
    forget_past(tmp_path / "s")
    return tmp_path / "s"


def _hour(number: int) -> str:
    return iso_time(NOON_MS + number * HOUR_MS)


def _values(sparklog: Sparklog, store: Path, *options: str) -> list[int]:
    done = sparklog("read", store, "t", *options)
    assert done.code == 0, done.err
    return [*_numbers(done.out)]


def _numbers(out: str) -> Iterator[int]:
    return (int(line.split("\t")[3]) for line in out.splitlines())


@pytest.mark.parametrize(("hour", "count"), [(1, 10), (2, 20), (3, 30), (9, 30)])
def test_read_when_as_of_a_time_then_the_records_of_then(
    store: Path, sparklog: Sparklog, hour: int, count: int
) -> None:
    """A time means the newest cut that is not later, and after the newest commit the store itself."""
    assert _values(sparklog, store, "--as-of", _hour(hour)) == [*range(count)]
    assert _values(sparklog, store, "--as-of", "-0s") == [*range(40)]  # the ledger's commits are of today


def test_read_when_as_of_a_version_then_the_records_of_its_cut(store: Path, sparklog: Sparklog) -> None:
    """A version that the ledger has dropped may be that of a cut."""
    version = CutTable(cuts_path(store)).read(NOON_MS + 2 * HOUR_MS).ledger_version

    assert _values(sparklog, store, "--as-of", str(version)) == [*range(20)]
    assert f"as of cut of {_hour(2)}, ledger version {version}" in (
        sparklog("offsets", store, "t", "--as-of", str(version)).err
    )


@pytest.mark.parametrize(
    ("as_of", "reason"),
    [
        (_hour(0), "the oldest cut is of " + _hour(1)),
        ("1", "describe --cuts lists them"),
        ("99", "newest_version="),
        ("1h", "'1h' is not a time"),
    ],
)
def test_read_when_there_is_no_such_state_then_what_there_is_is_named(
    store: Path, sparklog: Sparklog, as_of: str, reason: str
) -> None:
    """A state that was never kept is a wrong argument."""
    done = sparklog("read", store, "t", "--as-of", as_of)

    assert (done.code, done.out) == (2, "")
    assert reason in done.err


def test_read_when_no_cut_was_ever_written_then_the_setting_is_named(tmp_path: Path, sparklog: Sparklog) -> None:
    """Who has none learns how to get them."""
    append_by_clock(tmp_path / "s", [10, 70], every="never")
    forget_past(tmp_path / "s")

    assert "there are no cuts: a stream writes them with the setting cuts.every" in (
        sparklog("read", tmp_path / "s", "t", "--as-of", "1").err
    )


def test_verbs_when_as_of_a_cut_then_they_agree_with_that_moment(store: Path, sparklog: Sparklog) -> None:
    """Offsets, sizes and segments are those of the state, although the segment has grown since."""
    offsets = sparklog("offsets", store, "t", "--as-of", _hour(2))
    described = json.loads(sparklog("describe", store, "t", "--as-of", _hour(2), "--json").out)
    largest = sparklog("offsets", store, "t", "--as-of", _hour(2), "--time", "max-timestamp").out
    text = sparklog("describe", store, "--as-of", _hour(2)).out

    assert offsets.out == "t:0:20\n"
    assert 0 <= int(largest.split(":")[2]) < 20
    [log] = described["logs"]
    assert (log["log_end_offset"], log["state"], log["offsets"]["log_end_offset"]["offset"]) == (20, "whole", 20)
    now = json.loads(sparklog("describe", store, "t", "--json").out)["logs"][0]
    then = CutTable(cuts_path(store)).read(NOON_MS + 2 * HOUR_MS).rows.states[LOG]
    assert log["size_bytes"] == then.active_size_bytes < now["size_bytes"]
    assert log["max_timestamp_ms"] == then.max_timestamp_ms < now["max_timestamp_ms"]
    assert f"cut of {_hour(2)}, ledger version" in text


def test_read_when_retention_has_passed_a_cut_then_refused_and_the_oldest_that_is_left_is_named(
    store: Path, sparklog: Sparklog, caplog: pytest.LogCaptureFixture
) -> None:
    """A state whose records are gone is an error; one that has lost its beginning is read from there, and warned of."""
    change_row(store, LOG, log_start_offset=25)

    passed = sparklog("read", store, "t", "--as-of", _hour(2))
    shortened = sparklog("read", store, "t", "--as-of", _hour(3))

    assert (passed.code, passed.out) == (2, "")
    assert "log=t-0: its records were deleted since, the log starts at 25" in passed.err
    assert f"the oldest cut that can be read is of {_hour(3)}" in passed.err
    assert [*_numbers(shortened.out)] == [*range(25, 30)]
    assert "log=t-0: the records of offsets 0..24 were deleted since" in caplog.text


def test_read_when_older_cuts_lack_the_topic_then_none_of_them_is_named(store: Path, sparklog: Sparklog) -> None:
    """A cut can be read if it has all the logs that were asked for."""
    clock = ManualClock(NOON_MS + 200 * MINUTE_MS)
    with closing(open_store(store, {"u": {}}, topic="u", clock=clock)) as writer:
        for batch_id in range(3):
            writer.append("u", batch_id, in_process(numbers(0, 10)))
            clock.advance(HOUR_MS)
    forget_past(store)
    change_row(store, TopicPartition("u", 0), log_start_offset=10)

    refused = sparklog("read", store, "u", "--as-of", _hour(4))

    assert refused.code == 2
    assert f"the oldest cut that can be read is of {_hour(5)}" in refused.err


def test_read_when_a_truncation_has_passed_a_cut_then_an_older_one_may_be_left(store: Path, sparklog: Sparklog) -> None:
    """Only a truncation can pass a cut and leave those before it."""
    truncate_logs(store, lambda _: {LOG: 15}, ManualClock(NOON_MS + 230 * MINUTE_MS))
    forget_past(store)

    refused = sparklog("read", store, "t", "--as-of", _hour(3))

    assert f"truncated since, below its end 30; the oldest cut that can be read is of {_hour(1)}" in refused.err


def test_read_when_a_compaction_has_passed_a_cut_then_refused(store: Path, sparklog: Sparklog) -> None:
    """It may have dropped records for later ones: only a cut at or above its end is whole."""
    change_row(store, LOG, compacted_offset=20)

    assert _values(sparklog, store, "--as-of", _hour(2)) == [*range(20)]
    refused = sparklog("offsets", store, "t", "--as-of", _hour(1))
    assert (refused.code, refused.out) == (2, "")
    assert f"compaction may have dropped records for later ones; the oldest cut that can be read is of {_hour(2)}" in (
        refused.err
    )


def test_describe_when_cuts_are_asked_for_then_each_with_what_is_left_of_it(store: Path, sparklog: Sparklog) -> None:
    """The table says why a cut can't be read, and the last line from when on all can."""
    change_row(store, LOG, log_start_offset=15)

    shown = sparklog("describe", store, "--cuts")
    found = json.loads(sparklog("describe", store, "t", "--cuts", "--json").out)["cuts"]

    assert [(each["offsets"], each["state"]) for each in found] == [
        (10, "passed"),
        (20, "shortened"),
        (30, "shortened"),
    ]
    assert [each["cut_ms"] for each in found] == [NOON_MS + hour * HOUR_MS for hour in (1, 2, 3)]
    assert f"3 cuts, 2 can be read, the oldest of {_hour(2)}" in shown.out
    assert "its records were deleted since, the log starts at 15" in shown.out


def test_describe_when_a_cut_has_passed_then_says_so_and_describes_the_others(store: Path, sparklog: Sparklog) -> None:
    """A description refuses nothing."""
    change_row(store, LOG, log_start_offset=25)

    shown = sparklog("describe", store, "t", "--as-of", _hour(2))

    assert shown.code == 0
    assert "passed: t-0: its records were deleted since, the log starts at 25" in shown.out


def test_describe_when_a_cut_is_of_the_future_then_warned(store: Path, sparklog: Sparklog) -> None:
    """Until that time no sink writes another one."""
    table = CutTable(cuts_path(store))
    assert "future" not in sparklog("describe", store, "--cuts").out
    table.add(replace(table.read(NOON_MS + HOUR_MS), cut_ms=NOON_MS + 10**12), UNSHARED)

    assert "warning: a cut is of the future" in sparklog("describe", store, "--cuts").out


def test_past_logs_when_overtaken_while_they_are_read_then_the_answer_is_an_error(store: Path) -> None:
    """A compaction tells of itself before it begins, so a reader that looks afterwards can't miss it."""
    view = open_logs(store, AsOf(timestamp_ms=NOON_MS + HOUR_MS))
    past = past_of(view, view.logs)
    assert past is not None
    past.require_readable()

    change_row(store, LOG, compacted_offset=20)

    with pytest.raises(InvalidConfigError, match=r"^cut of .* can't be read any more: log=t-0: compaction may have"):
        past.require_readable()


def test_frame_when_overtaken_while_a_task_reads_then_the_task_fails(store: Path) -> None:
    """Not a short answer."""
    source = KafkaLogSource({"path": str(store), "asOfTimestamp": str(NOON_MS + HOUR_MS)})
    reader = source.reader(source.schema())
    [task] = reader.partitions()
    assert sum(rows.num_rows for rows in read_task(task)) == 10

    change_row(store, LOG, compacted_offset=20)

    with pytest.raises(InvalidConfigError, match="compaction may have dropped"):
        list(read_task(task))
    with pytest.raises(InvalidConfigError, match="compaction may have dropped"):
        reader.partitions()


def test_plain_folder_when_as_of_is_given_then_refused(store: Path, sparklog: Sparklog) -> None:
    """A broker's folder has no past."""
    for verb in (("read", "t"), ("offsets", "t"), ("describe",)):
        done = sparklog(verb[0], store / "logs", *verb[1:], "--as-of", "-1h")
        assert (done.code, "earlier versions exist only in a store" in done.err) == (2, True)
    assert sparklog("describe", store / "logs", "--cuts").code == 2
    assert sparklog("describe", store, "--cuts", "--as-of", "1").code == 2
