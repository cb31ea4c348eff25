"""Copies of stores of a machine in stores of objects: the same bytes, also of what changed since, also after kills."""

import json
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from sparklog.pipeline.objects import copy_store
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.objects.copying import compare_log as compare_module
from sparklog.sink.objects.copying import copy_logs as copy_module
from sparklog.sink.objects.copying.compare_log import LogToCopy, compare_log
from sparklog.sink.objects.copying.copy_logs import copy_logs
from sparklog.sink.objects.fetch_store import fetch_store
from sparklog.sink.objects.maintaining.maintain_objects import MaintainedObjects, maintain_objects
from sparklog.sink.objects.maintaining.retain_objects import raise_starts
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.record.batch_scan import scan_batches
from tests.build.compacted_store import clean
from tests.build.sink_store import in_process, log_directories, numbers, open_store
from tests.kill.directory_job import finish
from tests.kill.harness import fork_server
from tests.sparklog_command import Sparklog

_TOPICS: dict[str, dict[str, object]] = {
    "events": {"partitions": 2, "segment.bytes": 2000, "batch.size": 300, "file.delete.delay.ms": 0},
    "table": {"cleanup.policy": "compact", "segment.bytes": 1000, "batch.size": 200, "file.delete.delay.ms": 0},
}


@pytest.fixture
def local(tmp_path: Path) -> StoragePlace:
    """A folder used as storage: for what does not depend on the storage."""
    return StoragePlace(parse_address(f"file://{tmp_path}/copy"))


@pytest.fixture
def context() -> ForkServerContext:
    """Processes that start with everything imported."""
    return fork_server()


def _append(store: Path, batch: int, topic: str = "events") -> None:
    with closing(open_store(store, _TOPICS, topic=topic)) as writer:
        writer.append(topic, batch, in_process(numbers(50 * batch, 50 * batch + 50)))


def _bytes_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def _in_copy(place: StoragePlace, folder: Path) -> dict[str, bytes]:
    """Return the batches of each log of a copy."""
    folder.mkdir()
    fetch_store(ObjectLedger.open(place), folder, lambda _log: True)
    return {each.name: _bytes_of(each) for each in folder.iterdir() if each.is_dir()}


def _in_store(store: Path) -> dict[str, bytes]:
    return {name: _bytes_of(directory) for name, directory in log_directories(store).items()}


def _objects(place: StoragePlace) -> set[str]:
    return {each.name for each in place.open().list("data")}


def test_copy_when_records_come_later_then_the_same_bytes_and_what_was_there_stays(
    place: StoragePlace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Offsets, leader epochs of each opening, topic ids and settings, on each storage."""
    store = tmp_path / "store"
    _append(store, 0)
    _append(store, 1, "table")
    assert copy_store.run(store, place, None, execute=True, as_json=False) == 0
    first = _objects(place)
    _append(store, 2)

    assert copy_store.run(store, place, None, execute=True, as_json=True) == 0

    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sorted(found["copied"]) == ["events-0", "events-1"]
    assert all(each["kept_bytes"] > 0 for each in found["logs"])
    assert first < _objects(place)
    assert _in_copy(place, tmp_path / "fetched") == _in_store(store)
    ledger, source = ObjectLedger.open(place), Ledger.open(Store.find(store).ledger_path)
    ids = {log: state.topic_id for log, state in source.states().items()}
    assert {log: state.topic_id for log, state in ledger.states().items()} == ids
    assert ledger.settings()["table"]["cleanup.policy"] == "compact"


def test_copy_when_its_store_was_compacted_and_cut_since_then_the_same_bytes_again(
    local: StoragePlace, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Extents that compaction or a deletion has changed go."""
    store = tmp_path / "store"
    for batch in range(6):
        _append(store, batch, "table")
        _append(store, batch)
    assert sparklog("copy", store, local.address, "--execute").code == 0
    assert {row.outcome for row in clean(store, clock=SystemClock())[1]} == {"cleaned"}
    assert sparklog("delete-records", store, "events:0", "--before", 60, "--execute").code == 0

    planned = sparklog("copy", store, local.address)
    done = sparklog("copy", store, local.address, "--execute")
    again = sparklog("copy", store, local.address)

    assert "table-0: " in planned.out, planned
    assert done.code == 0, done.err
    assert "planned: nothing: the copy is complete" in again.out
    copied, source = _in_copy(local, tmp_path / "fetched"), _in_store(store)
    assert copied["table-0"] == source["table-0"]
    assert source["events-0"].endswith(copied["events-0"])
    ledger = ObjectLedger.open(local)
    assert {log.directory_name: state.log_start_offset for log, state in ledger.states().items()} == {
        log.directory_name: state.log_start_offset
        for log, state in Ledger.open(Store.find(store).ledger_path).states().items()
    }
    assert sparklog("verify", local.address).code == 0


def test_copy_when_maintenance_merged_its_extents_then_they_stay(local: StoragePlace, tmp_path: Path) -> None:
    """A merged extent has the checksum of the same batches."""
    store = tmp_path / "store"
    for batch in range(17):
        _append(store, batch)
        assert copy_store.run(store, local, None, execute=True, as_json=False) == 0
    merged = [*maintain_objects(MaintainedObjects(local, SystemClock(), 1 << 20))]
    assert {each.kind for each in merged} == {"merge"}
    before = _objects(local)

    assert copy_store.run(store, local, None, execute=True, as_json=False) == 0

    assert _objects(local) == before
    assert _in_copy(local, tmp_path / "fetched") == _in_store(store)


def test_copy_when_it_comes_back_by_an_import_then_the_logs_of_its_store(
    local: StoragePlace, tmp_path: Path, sparklog: Sparklog
) -> None:
    store, back = tmp_path / "store", tmp_path / "back"
    for batch in range(3):
        _append(store, batch)
    assert sparklog("copy", store, local.address, "--topics", "ev.*", "--execute").code == 0

    assert sparklog("import", local.address, back, "--execute").code == 0

    events = {name: data for name, data in _in_store(store).items() if name.startswith("events")}
    assert _in_store(back) == events
    assert sparklog("verify", back, "--deep").code == 0


@pytest.mark.kill
@pytest.mark.parametrize("step", ["commit.data", "commit.written", "commit.data:3", "commit.written:3"])
def test_copy_when_killed_at_a_step_then_the_next_one_completes_it(
    context: ForkServerContext, local: StoragePlace, tmp_path: Path, step: str
) -> None:
    """What a commit has brought stays; until then a log can be read up to where it has come."""
    store = tmp_path / "store"
    for batch in range(8):
        _append(store, batch)
    assert finish(context, _copy_in_pieces, store, SPARKLOG_FAULT_POINT=step) == -9
    part, source = _in_copy(local, tmp_path / "part"), _in_store(store)
    assert all(source[name].startswith(data) for name, data in part.items())
    before = {each for held in ObjectLedger.open(local).extents().values() for each in held}

    assert finish(context, _copy_in_pieces, store) == 0

    assert before <= {each for held in ObjectLedger.open(local).extents().values() for each in held}
    assert _in_copy(local, tmp_path / "whole") == source


def _copy_in_pieces(store: Path) -> None:
    """Copy with a commit for each few hundred bytes."""
    for module in (compare_module, copy_module):
        vars(module)["PART_BYTES"] = 700
    place = StoragePlace(parse_address(f"file://{store.parent}/copy"))
    assert copy_store.run(store, place, None, execute=True, as_json=False) == 0


def test_copy_when_a_log_is_damaged_then_its_file_is_named_and_others_are_copied(
    local: StoragePlace, tmp_path: Path, sparklog: Sparklog
) -> None:
    store = tmp_path / "store"
    _append(store, 0)
    directory = log_directories(store)["events-0"]
    path = min(directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)

    ran = sparklog("copy", store, local.address, "--execute")

    assert ran.code == 1
    assert "events-0: failed: " in ran.out
    assert str(path) in ran.out
    copied, source = _in_copy(local, tmp_path / "fetched"), _in_store(store)
    assert copied == {"events-1": source["events-1"], "table-0": b""}


def test_copy_when_its_log_ends_above_the_last_batch_then_an_empty_batch_stands_for_the_rest(
    local: StoragePlace, tmp_path: Path
) -> None:
    """As after a repair that lost the newest records; the next copy begins with what it lacks."""
    store = tmp_path / "store"
    _append(store, 0)
    found = Store.find(store)
    state = next(iter(Ledger.open(found.ledger_path).states().values()))
    directory = found.log_path(state)
    end = state.log_end_offset + 5
    (directory / f"{end:020}.log").touch()
    source = LogToCopy(directory, replace(state, log_end_offset=end))
    ledger = ObjectLedger.create(local)

    done = [*copy_logs(ledger, [compare_log(source, ())], 0, lambda: False, lambda _sources: {})]

    assert [each.error for each in done] == [None]
    copied = _in_copy(local, tmp_path / "fetched")[state.log.directory_name]
    scan = scan_batches(copied)
    assert copied.startswith(_bytes_of(directory))
    assert (int(scan.last_offset[-1]) + 1, int(scan.records_count[-1])) == (end, 0)
    held = ObjectLedger.open(local).extents()[state.log]
    assert compare_log(source, held).gaps == ()


def test_copy_when_the_address_has_other_logs_then_refused(
    local: StoragePlace, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Another topic of the same name, and a log that has gone back; nothing is changed."""
    store, other = tmp_path / "store", tmp_path / "other"
    for batch in range(2):
        _append(store, batch)
    _append(other, 0)
    assert sparklog("copy", store, local.address, "--execute").code == 0
    assert sparklog("truncate", store, "--to", "events:0:3", "--execute").code == 0
    version = ObjectLedger.open(local).version

    back = sparklog("copy", store, local.address, "--execute")
    foreign = sparklog("copy", other, local.address, "--execute")
    inside = sparklog("copy", store, f"file://{store}/copy")
    unknown = sparklog("copy", store, local.address, "--topics", "evnts")

    assert (back.code, "the copy ends above its store: log=events-0" in back.err) == (2, True), back
    assert (foreign.code, "another topic of this name is there: topic=events" in foreign.err) == (2, True), foreign
    assert (inside.code, "a copy can't lie in its store" in inside.err) == (2, True)
    assert (unknown.code, "known=events, table" in unknown.err) == (1, True)
    assert ObjectLedger.open(local).version == version


def test_copy_when_another_run_changes_it_meanwhile_then_refused(local: StoragePlace, tmp_path: Path) -> None:
    """Two copies at once: one wins, the other one is told."""
    store = tmp_path / "store"
    _append(store, 0)
    found = Store.find(store)
    states = Ledger.open(found.ledger_path).states()
    differences = [compare_log(LogToCopy(found.log_path(state), state), ()) for state in states.values()]
    ledger = ObjectLedger.create(local)
    assert copy_store.run(store, local, None, execute=True, as_json=False) == 0

    with pytest.raises(Exception, match="another run has changed the copy meanwhile"):
        list(copy_logs(ledger, differences, 0, lambda: False, lambda _sources: {}))

    assert _in_copy(local, tmp_path / "fetched") == _in_store(store)


def test_dump_when_given_a_log_of_a_store_of_objects_then_its_batches_and_others_are_refused(
    local: StoragePlace, tmp_path: Path, sparklog: Sparklog
) -> None:
    store = tmp_path / "store"
    _append(store, 0)
    assert sparklog("copy", store, local.address, "--execute").code == 0
    count = len(scan_batches(_in_store(store)["events-0"]))

    ran = sparklog("dump-log", "--files", f"{local.address}/events-0")
    unknown = sparklog("dump-log", "--files", f"{local.address}/events-7")
    no_log = sparklog("dump-log", "--files", str(local.address))

    assert (ran.code, ran.out.count("baseOffset: ")) == (0, count), ran
    assert (unknown.code, "the store has no such log" in unknown.err) == (1, True)
    assert (no_log.code, "name a log of the store" in no_log.err) == (1, True)


def test_copy_when_a_compaction_passes_its_end_meanwhile_then_the_log_fails_and_the_copy_stays(
    local: StoragePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records below the end went for later ones above it, which the copy does not take."""
    store = tmp_path / "store"
    _append(store, 0, "table")
    assert copy_store.run(store, local, None, execute=True, as_json=False) == 0
    before = _in_copy(local, tmp_path / "before")
    _append(store, 1, "table")
    compare = copy_store._compare

    def compare_then_compact(*arguments: Any) -> Any:
        found = compare(*arguments)
        for batch in (2, 3, 4):
            with closing(open_store(store, _TOPICS, topic="table")) as writer:
                writer.append("table", batch, in_process(numbers(0, 100)))
        assert {row.outcome for row in clean(store, clock=SystemClock())[1]} == {"cleaned"}
        return found

    monkeypatch.setattr(copy_store, "_compare", compare_then_compact)
    assert copy_store.run(store, local, "table", execute=True, as_json=False) == 1

    assert "copy it again: log=table-0" in capsys.readouterr().out
    assert _in_copy(local, tmp_path / "after") == before
    monkeypatch.undo()
    assert copy_store.run(store, local, None, execute=True, as_json=False) == 0
    assert _in_copy(local, tmp_path / "again") == _in_store(store)


def test_copy_when_stopped_while_it_brings_back_the_front_of_a_log_then_that_has_no_hole(
    local: StoragePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention of the copy had deleted it; until it is all there, the log begins where it did."""
    store = tmp_path / "store"
    for batch in range(8):
        _append(store, batch)
    assert finish(fork_server(), _copy_in_pieces, store) == 0
    found = Store.find(store)
    log, state = next(
        (log, state) for log, state in Ledger.open(found.ledger_path).states().items() if log.partition == 0
    )
    ledger = ObjectLedger.open(local)
    start = ledger.extents()[log][-1].base_offset
    ledger.rewrite(lambda rows, extents: raise_starts(rows, extents, {log: start}), 0)
    for module in (compare_module, copy_module):
        monkeypatch.setattr(module, "PART_BYTES", 700)
    difference = compare_log(LogToCopy(found.log_path(state), state), ledger.extents()[log])
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 2

    assert [*copy_logs(ledger, [difference], 0, stop, lambda _sources: {})] == []

    stopped = ObjectLedger.open(local)
    held = stopped.extents()[log]
    assert stopped.states()[log].log_start_offset == held[0].base_offset == start
    assert all(one.end_offset == other.base_offset for one, other in pairwise(held))
    assert finish(fork_server(), _copy_in_pieces, store) == 0
    assert _in_copy(local, tmp_path / "whole") == _in_store(store)


def test_copy_when_only_settings_changed_or_a_log_directory_is_offline_then_both_are_told(
    local: StoragePlace, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The others are copied."""
    store = tmp_path / "store"
    topics = {"events": {**_TOPICS["events"], "partitions": 2}}
    for number, retention_ms in enumerate((1000, 2000)):
        topics["events"]["retention.ms"] = retention_ms
        with closing(open_store(store, topics, topic="events", log_dirs=("logs", "more"))) as writer:
            writer.append("events", 0, in_process(numbers(0, 50)))
        planned = sparklog("copy", store, local.address)
        assert "settings of topics; --execute does it" in planned.out, number
        assert sparklog("copy", store, local.address, "--execute").code == 0
        assert ObjectLedger.open(local).settings()["events"]["retention.ms"] == retention_ms
    assert "nothing: the copy is complete" in sparklog("copy", store, local.address).out
    with closing(open_store(store, topics, topic="events", log_dirs=("logs", "more"))) as writer:
        writer.append("events", 1, in_process(numbers(50, 100)))
    (store / "more").rename(tmp_path / "more")

    ran = sparklog("copy", store, local.address, "--execute")

    assert (ran.code, "failed: log directory is offline" in ran.out, "copied: 1 logs" in ran.out) == (1, True, True), (
        ran
    )


def test_copy_when_an_object_of_it_is_gone_then_its_extents_are_copied_again(
    local: StoragePlace, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Also after a repair: then nothing of the log is lost any more."""
    store = tmp_path / "store"
    _append(store, 0)
    assert sparklog("copy", store, local.address, "--execute").code == 0
    for repairs in (False, True):
        local.open().remove([each.name for each in local.open().list("data")])
        if repairs:
            assert sparklog("repair", local.address, "--execute").code == 0
            assert ObjectLedger.open(local).lost()

        assert sparklog("copy", store, local.address, "--execute").code == 0

        assert _in_copy(local, tmp_path / f"fetched-{repairs}") == _in_store(store)
        assert ObjectLedger.open(local).lost() == []
