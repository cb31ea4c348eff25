"""The verbs `retain` and `delete-records`, as a user runs them."""

from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.verbs.retain import execute_retention
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.retain_logs import LogRetention, plan_logs
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import keep_topic_configs
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.retained_store import COUNT, LOG, START_MS, names, state_of, write_aged
from tests.build.sink_store import contents, open_store
from tests.sparklog_command import Sparklog

_LOCKS = ("maintenance.lock", "writer.lock")


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store whose log is to keep 1200 bytes."""
    return write_aged(memory_path / "store", {"retention.bytes": 1200})


def test_retain_when_not_executed_then_a_row_per_segment_and_nothing_changed(sparklog: Sparklog, store: Path) -> None:
    """A plan names each segment with its reason."""
    before = contents(store)
    ran = sparklog("retain", store)

    assert ran.code == 0
    assert f"{names(store)[0]}" in ran.out
    assert "size: the log has" in ran.out
    assert "--execute does it" in ran.out
    assert contents(store) == before


def test_retain_when_executed_then_reads_start_behind_what_is_gone(sparklog: Sparklog, store: Path) -> None:
    """Offsets, records, description and check follow."""
    assert sparklog("retain", store, "--execute").code == 0

    start = state_of(store).log_start_offset
    assert sparklog("offsets", store, "aged:0", "--time", "earliest").out == f"aged:0:{start}\n"
    assert sparklog("offsets", store, "aged:0", "--time", 0).out == f"aged:0:{start}\n"
    read = sparklog("read", store, "aged:0").out.splitlines()
    assert [line.split("\t")[3] for line in read] == [str(number) for number in range(start, COUNT)]
    assert sparklog("verify", store).code == 0
    assert "nothing to delete" in sparklog("retain", store).out


def test_retain_when_asked_for_json_then_one_object(sparklog: Sparklog, store: Path) -> None:
    """Logs of which there is nothing to say are only counted."""
    (planned,) = sparklog("retain", store, "--json").objects
    (done,) = sparklog("retain", store, "--execute", "--json").objects

    assert [planned["executed"], done["executed"]] == [False, True]
    assert planned["logs"][0]["deletions"] == done["logs"][0]["deletions"]
    assert (done["logs_checked"], len(done["logs"]), done["logs"][0]["waiting_files"]) == (2, 1, 0)
    assert done["logs"][0]["log_start_offset"] == state_of(store).log_start_offset


def test_retain_when_a_sink_runs_then_says_what_stays(sparklog: Sparklog, memory_path: Path) -> None:
    """The active segment is the sink's to roll."""
    settings = {"retention.ms": 1, "file.delete.delay.ms": 0}
    store = write_aged(memory_path / "store", settings)
    with closing(open_store(store, {LOG.topic: {"partitions": 2, **settings}}, topic=LOG.topic)):
        ran = sparklog("retain", store, "--execute")

    assert ran.code == 0
    assert "the active segment is due" in ran.out
    assert state_of(store).log_start_offset == state_of(store).active_base_offset


def test_retain_when_a_log_is_named_then_only_that(sparklog: Sparklog, store: Path) -> None:
    """Topic and partition, or all of a topic."""
    assert "nothing to delete in 1 logs" in sparklog("retain", store, "aged:1").out
    assert "no log of that name" in sparklog("retain", store, "other").err


def test_retain_when_a_log_fails_then_exit_code_one(sparklog: Sparklog, store: Path) -> None:
    """The others are done."""
    (store / "logs" / "aged-1").rename(store / "away")
    ran = sparklog("retain", store, "--execute")

    assert ran.code == 1
    assert "aged-1: failed" in ran.out
    assert state_of(store).log_start_offset > 0


def test_retain_when_another_maintenance_runs_then_refused(sparklog: Sparklog, store: Path) -> None:
    """Two at once would count and remove each other's files."""
    with maintaining(store):
        ran = sparklog("retain", store, "--execute")

    assert ran.code == 3
    assert "another maintenance run holds the store" in ran.err


def test_retain_when_the_folder_is_no_store_then_wrong_use(sparklog: Sparklog, store: Path) -> None:
    """A broker deletes what is a broker's."""
    assert sparklog("retain", store / "logs").code == 2


def test_delete_records_when_planned_then_says_what_is_not_shown_any_more(sparklog: Sparklog, store: Path) -> None:
    """Records below the offset, and whole segments of them."""
    before = contents(store)
    ran = sparklog("delete-records", store, "aged:0", "--before", 50)

    assert (ran.code, contents(store)) == (0, before)
    assert "aged-0 will start at offset 50, not 0: readers will skip offsets 0..49 (50)" in ran.out
    assert "ends at offset 33, the log starts at 50" in ran.out


def test_delete_records_when_executed_then_the_log_starts_there(sparklog: Sparklog, store: Path) -> None:
    """The start lies inside a segment; reads and look-ups begin at it."""
    assert sparklog("delete-records", store, "aged:0", "--before", 50, "--execute").code == 0

    assert names(store)[0] == f"{33:020}.log"
    assert sparklog("read", store, "aged:0", "--max", 1).out.startswith("aged:0:50\t")
    assert sparklog("offsets", store, "aged:0", "--time", START_MS).out == "aged:0:50\n"
    assert "outside" in sparklog("read", store, "aged:0", "--from", 49).err
    assert sparklog("verify", store).code == 0
    again = sparklog("delete-records", store, "aged:0", "--before", 40, "--execute")
    assert (again.code, state_of(store).log_start_offset) == (0, 50)
    assert "starts at offset 50 already" in again.out


@pytest.mark.parametrize(
    ("time", "offset"), [(START_MS + 49_500, 50), (START_MS + 50_000, 50), (253_402_300_799_999, COUNT), (0, 0)]
)
def test_delete_records_when_given_a_time_then_the_first_record_of_it_stays(
    sparklog: Sparklog, store: Path, time: int, offset: int
) -> None:
    """Where every record is earlier, none stays."""
    (planned,) = sparklog("delete-records", store, "aged:0", "--before-time", time, "--json").objects

    assert planned["logs_checked"] == 1
    assert (planned["logs"][0]["log_start_offset"] if planned["logs"] else 0) == offset


def test_delete_records_when_before_the_end_then_the_log_is_empty_and_goes_on(sparklog: Sparklog, store: Path) -> None:
    """-1 stands for the high watermark; the active segment stays until it is rolled, as in a broker."""
    assert sparklog("delete-records", store, "aged:0", "--before", -1, "--execute").code == 0

    state = state_of(store)
    assert state.log_start_offset == state.log_end_offset == COUNT
    assert sparklog("read", store, "aged:0").out == ""
    assert len(names(store)) == 1
    assert sparklog("verify", store).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("aged:0", "--before", COUNT + 1), 1, f"offset={COUNT + 1} log_start_offset=0 log_end_offset={COUNT}"),
        (("aged:0", "--before", -2), 1, "offset is outside the log"),
        (("aged", "--before", 1), 1, "give TOPIC:PARTITION"),
        (("aged:7", "--before", 1), 1, "no log of that name"),
        (("aged:0",), 2, "one of --before and --before-time"),
        (("aged:0", "--before", 1, "--before-time", 1), 2, "one of --before and --before-time"),
    ],
)
def test_delete_records_when_it_makes_no_sense_then_refused(
    sparklog: Sparklog, store: Path, arguments: tuple[object, ...], code: int, message: str
) -> None:
    """What is asked for is named, and nothing is changed."""
    before = contents(store, without=_LOCKS)
    ran = sparklog("delete-records", store, *arguments, "--execute")

    assert ran.code == code
    assert message in ran.err
    assert contents(store, without=_LOCKS) == before


def test_delete_records_when_the_policy_is_compact_then_refused(sparklog: Sparklog, memory_path: Path) -> None:
    """A compacted log keeps the newest record of each key, wherever it lies."""
    store = memory_path / "store"
    with closing(open_store(store, {LOG.topic: {"cleanup.policy": "compact"}})):
        pass
    ran = sparklog("delete-records", store, "aged:0", "--before", 0)

    assert ran.code == 2
    assert "cleanup.policy=compact" in ran.err


def test_retain_when_interrupted_while_it_waits_then_the_next_run_removes_the_files(
    sparklog: Sparklog, memory_path: Path
) -> None:
    """Nothing is undone, and nobody has to look closely: the locks are signed off by then."""
    store = write_aged(memory_path / "store", {"retention.bytes": 1200, "file.delete.delay.ms": 60_000})
    waited: list[tuple[int, int]] = []

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    def plan(found: Store) -> list[LogRetention]:
        return plan_logs(found, SystemClock())

    with pytest.raises(KeyboardInterrupt):
        execute_retention(store, plan, SystemClock(), lambda *told: waited.append(told), interrupt)

    assert [files for files, _ in waited] == [len(names(store, ".deleted"))] != [0]
    assert [(store / name).read_bytes() for name in _LOCKS] == [b"", b""]
    assert sparklog("verify", store).code == 0
    assert "wait to be removed" in sparklog("retain", store).out
    keep_topic_configs(Store.find(store), {LOG.topic: LogConfig(retention_ms=-1, file_delete_delay_ms=0)}, UNSHARED)
    assert sparklog("retain", store, "--execute").code == 0
    assert names(store, ".deleted") == []
