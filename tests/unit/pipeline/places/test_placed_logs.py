"""Where tools and readers find the logs of a store: offline ones are named, moved ones are found."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.reader.log_bounds import find_bounds
from sparklog.pipeline.reader.options import parse_options
from sparklog.pipeline.reader.plan import plan_tasks
from sparklog.pipeline.reader.store_watch import StoreWatch
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.opening.access import writing
from sparklog.sink.operations.move_log import move_log
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError, LogDirOfflineError
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import contents, in_process, open_store, read_log, rows
from tests.build.written_log import Batch, write_log
from tests.sparklog_command import Sparklog

_LOG = TopicPartition("t", 1)


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A closed store: `t-0` in `logs`, `t-1` on a disk that is gone, one record each."""
    return _take_disk_away(_write(memory_path / "store"))


def _write(store: Path) -> Path:
    log_dirs = ("logs", str(store.parent / "disk"))
    with closing(open_store(store, {"t": {"partitions": 2}}, topic="t", log_dirs=log_dirs)) as writer:
        writer.append("q", 0, in_process(rows(partition=[0, 1], value=["x", "y"], timestamp=[1, 2])))
    return store


def _take_disk_away(store: Path) -> Path:
    (store.parent / "disk").rename(store.parent / "unplugged")
    return store


def _bring_disk_back(store: Path) -> None:
    (store.parent / "unplugged").rename(store.parent / "disk")


def test_describe_when_a_log_is_offline_then_says_so_with_what_the_ledger_knows(
    sparklog: Sparklog, store: Path
) -> None:
    """The other log is described as ever."""
    ran, text = sparklog("describe", store, "--json"), sparklog("describe", store)

    online, offline = json.loads(ran.out)["logs"]
    assert (ran.code, text.code) == (0, 0)
    assert online["size_bytes"] > 0
    assert "offline" not in online
    assert (offline["offline"], offline["log_start_offset"], offline["log_end_offset"]) == ("does not exist", 0, 1)
    assert f"offline: {store.parent}/disk/t-1: does not exist" in text.out


def test_read_when_one_of_two_logs_is_offline_then_the_other_is_printed_before_the_error(
    sparklog: Sparklog, store: Path
) -> None:
    """Exit code 1, and one line that names directory, reason and log."""
    for name in ("read", "offsets"):
        ran = sparklog(name, store, "t", *(["--time", "earliest"] if name == "offsets" else []))

        assert (ran.code, len(ran.out.splitlines())) == (1, 1)
        message = f"log directory is offline: log_dir={store.parent}/disk reason=does not exist log=t-1"
        assert ran.err == f"error: {message}\n"


def test_verify_when_a_log_is_offline_then_not_sound_and_named(sparklog: Sparklog, store: Path) -> None:
    """What can't be looked at is not sound."""
    ran = sparklog("verify", store)

    assert ran.code == 1
    assert "missing: t-1/t-1 offsets=0..0 its log directory is offline: " in ran.out


def test_repair_when_a_log_is_offline_then_nothing_is_made_there_nor_declared_lost(
    sparklog: Sparklog, store: Path
) -> None:
    """A disk that is not mounted is no loss; the others are repaired."""
    (store / "logs" / "t-0" / f"{0:020}.index").write_bytes(b"damaged!")

    ran = sparklog("repair", store, "--execute")

    assert ran.code == 1
    assert "1 steps done" in ran.out
    assert not (store.parent / "disk").exists()
    assert not (store / "control" / "lost_ranges").exists()
    _bring_disk_back(store)
    assert sparklog("verify", store).code == 0


def test_repair_when_a_disk_is_not_mounted_then_its_empty_folder_stays_empty(sparklog: Sparklog, store: Path) -> None:
    """No meta.properties below the mount point, nor checkpoint files."""
    (store.parent / "disk").mkdir()

    assert sparklog("repair", store, "--execute").code == 1

    assert contents(store.parent / "disk") == {}


def test_repair_when_a_lost_disk_is_replaced_then_its_records_are_written_down_as_lost_and_writing_goes_on(
    sparklog: Sparklog, store: Path
) -> None:
    """Only once the new folder is declared to be the store's: an empty one may be a mount point."""
    properties = (store / "logs" / "meta.properties").read_text().splitlines(keepends=True)
    (store.parent / "disk").mkdir()
    own = "".join(line for line in properties if "directory.id" not in line)
    (store.parent / "disk" / "meta.properties").write_text(own)

    assert sparklog("repair", store, "--execute").code == 0

    with closing(open_store(store, {"t": {"partitions": 2}}, topic="t")) as writer:
        writer.append("q", 1, in_process(rows(partition=[1], value=["z"])))
    assert [record.offset for record in read_log(store.parent / "disk" / "t-1")] == [1]
    assert "lost: t-1 offsets 0..0" in sparklog("describe", store).out
    assert sparklog("verify", store).code == 0


def test_open_logs_when_a_log_was_moved_then_an_earlier_version_finds_it_too(memory_path: Path) -> None:
    """An earlier state of the ledger says what was committed, the newest where logs lie."""
    store = _write(memory_path / "store")
    version = Ledger.open(store / "ledger").version
    with writing(store) as written:
        move_log(written, _LOG, "moved")

    view = open_logs(store, AsOf(version=version))

    assert view.logs[1].directory == store / "moved" / "t-1"
    assert view.logs[1].reader().log_end_offset == 1


def test_open_logs_when_a_kill_left_a_move_behind_its_commit_then_the_log_is_found(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under its `-future` name; a stale one beside it is not taken."""

    class _KilledError(Exception):
        pass

    def die(name: str) -> None:
        if name == "move.committed":
            raise _KilledError

    store = _write(memory_path / "store")
    records = read_log(store.parent / "disk" / "t-1")
    monkeypatch.setattr("sparklog.sink.operations.move_log.reach", die)
    with pytest.raises(_KilledError), writing(store) as written:
        move_log(written, _LOG, "moved")
    (store / "moved" / f"t-1.{'0' * 32}-future").mkdir()

    view = open_logs(store)

    assert view.logs[1].directory.name.endswith("-future")
    assert read_log(view.logs[1].directory) == records
    assert [path.name for path in view.set_aside] == [f"t-1.{'0' * 32}-future"]


def test_repair_when_a_kill_left_a_move_then_finishes_it(
    sparklog: Sparklog, memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then `describe` shows the log by its own name."""

    class _KilledError(Exception):
        pass

    def die(name: str) -> None:
        if name == "move.committed":
            raise _KilledError

    store = _write(memory_path / "store")
    with monkeypatch.context() as killed:
        killed.setattr("sparklog.sink.operations.move_log.reach", die)
        with pytest.raises(_KilledError), writing(store) as written:
            move_log(written, _LOG, "moved")
    described = json.loads(sparklog("describe", store, "--json").out)
    assert [log["log"] for log in described["logs"]] == ["t-0", "t-1"]

    assert sparklog("repair", store, "--execute").code == 0

    assert [path.name for path in (store / "moved").iterdir() if path.is_dir()] == ["t-1"]
    assert [path.name for path in (store.parent / "disk").iterdir() if path.is_dir()] == []
    assert sparklog("verify", store).code == 0


def test_open_logs_when_a_folder_has_two_directories_of_one_log_then_refused(memory_path: Path) -> None:
    """As a broker does, which reads `t-00` as `t-0`."""
    for name in ("t-0", "t-00"):
        write_log(memory_path / name, [[Batch([1])]])

    with pytest.raises(InvalidConfigError, match=r"a log has two directories: log=t-0 path=.*t-0 path=.*t-00"):
        open_logs(memory_path)


def test_find_bounds_when_a_log_is_offline_then_the_query_fails_with_its_name(store: Path) -> None:
    """A query that reads other logs works."""
    everything = parse_options({"path": str(store)}, "any")
    with pytest.raises(LogDirOfflineError, match=r"reason=does not exist log=t-1"):
        find_bounds(open_logs(store).logs, everything)

    bounds = find_bounds(open_logs(store).logs[:1], everything)

    assert [(each.start_offset, each.end_offset) for each in bounds.values()] == [(0, 1)]


def test_find_bounds_when_data_loss_may_be_then_the_ledger_tells_of_an_offline_log_and_nothing_is_planned(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A query can begin at any offset of it, and reads nothing; how streams wait is tested with them."""
    options = parse_options({"path": str(store), "failOnDataLoss": "false"}, "any")
    bounds = find_bounds(open_logs(store).logs, options)

    assert (bounds[_LOG].start_offset, bounds[_LOG].end_offset) == (0, 1)
    assert plan_tasks({_LOG: (0, 1)}, bounds, options) == []
    assert "a log directory is offline" in caplog.text


def test_store_watch_when_a_disk_comes_back_then_sees_it_without_a_commit(store: Path) -> None:
    """The ledger does not change with it."""
    watch = StoreWatch(parse_options({"path": str(store)}, "any"), store, SystemClock())
    assert [each.offline for each in watch.logs()] == [None, "does not exist"]

    _bring_disk_back(store)

    assert [each.offline for each in watch.logs()] == [None, None]


def test_store_watch_when_the_wall_clock_is_far_behind_then_reads_a_ledger_at_rest_once(memory_path: Path) -> None:
    """Its time stamp lies ahead then: it counts for how long it was seen."""
    store = _write(memory_path / "store")
    changed_ms = (store / "ledger" / "_delta_log").stat().st_mtime_ns // 1_000_000
    clock = ManualClock(changed_ms - 3_600_000)
    watch = StoreWatch(parse_options({"path": str(store)}, "any"), store, clock)
    first = watch.logs()
    clock.advance(101)
    settled = watch.logs()

    assert settled is not first
    assert watch.logs() is settled
