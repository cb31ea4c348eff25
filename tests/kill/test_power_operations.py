"""The power goes while a store is retained, truncated, moved, repaired, deleted from: it is as before or as after."""

import time
from contextlib import closing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.verbs.delete_records import planner
from sparklog.pipeline.verbs.delete_topic import execute_deletion
from sparklog.pipeline.verbs.move_log import execute_move
from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.pipeline.verbs.retain import execute_retention
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.operations.retain_logs import plan_logs
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.sink.operations.upgrade_store import upgrade_store
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.damaged_store import DAMAGES, problems_of_repaired, write_store
from tests.build.older_store import make_older
from tests.build.retained_store import LOG, aged_rows, state_of, write_aged
from tests.build.sink_store import in_process, open_store
from tests.build.truncated import truncate_to
from tests.kill.loop_disk import LoopDisk
from tests.kill.power_job import cases, cut_at, finish

pytestmark = pytest.mark.kill

_COUNT = 80
_MORE = 5
_BY_SIZE: dict[str, object] = {"retention.bytes": 1200}
_BY_AGE: dict[str, object] = {"retention.ms": 1000}
_SETTINGS: dict[str, object] = {"partitions": 2, "segment.bytes": 600, "file.delete.delay.ms": 0, "retention.ms": -1}
_COMMIT = ("commit.written", "commit.synced")
_REPAIR = ("repair.dropped", "repair.kept", "repair.written", "repair.written:2", "repair.committed")
_DELETE_AT = 43


def _on_disk(disk: LoopDisk, settings: dict[str, object] | None = None) -> Path:
    store = write_aged(disk.folder / "s", settings, _COUNT)
    disk.settle()
    return store


def _cut_again(disk: LoopDisk) -> None:
    """Cut the power right behind what was acknowledged."""
    disk.cut_power()
    disk.plug_in()


def _append(store: Path, settings: dict[str, object], first: int) -> None:
    """Open the store as a sink does and append a few more records."""
    with closing(open_store(store, {LOG.topic: {**_SETTINGS, **settings}}, topic=LOG.topic)) as writer:
        writer.append("later", 0, in_process(aged_rows(first, first + _MORE)))


def _values(store: Path) -> dict[int, int]:
    """Return the value of each offset that can be read."""
    state = state_of(store)
    reader = LogReader(
        Store.find(store).log_path(state),
        log_start_offset=state.log_start_offset,
        log_end_offset=state.log_end_offset,
    )
    return {
        offset: int(value)
        for batch in reader.read(state.log_start_offset)
        for offset, value in zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True)
    }


def _is_clean(store: Path) -> bool:
    return verify(open_logs(store), lambda _finding: None, deep=True).is_clean


def _retain(store: Path) -> None:
    clock = SystemClock()
    logs = execute_retention(store, lambda found: plan_logs(found, clock), clock, lambda *_: None, time.sleep)
    assert not any(each.failure for each in logs)


def _delete_records(store: Path) -> None:
    clock = SystemClock()
    logs = execute_retention(store, planner(LOG, _DELETE_AT, clock), clock, lambda *_: None, time.sleep)
    assert not any(each.failure for each in logs)


@pytest.mark.parametrize(
    ("disk", "step"),
    cases(["retain.rolled", "retain.committed", "retain.renamed"], [*_COMMIT, "retain.deleted"]),
    indirect=["disk"],
)
def test_retention_when_the_power_goes_at_a_step_then_the_next_one_completes_it(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """Every record from the log start on is there; deleted files that come back are deleted once more."""
    store = _on_disk(disk, _BY_AGE)
    cut_at(context, disk, step, _retain, store)

    _append(store, _BY_AGE, _COUNT)
    start = state_of(store).log_start_offset
    assert _values(store) == {offset: offset for offset in range(start, _COUNT + _MORE)}
    assert start == _COUNT or step in (*_COMMIT, "retain.rolled")
    finish(context, disk.folder, _retain, store)
    _cut_again(disk)

    assert state_of(store).log_start_offset == _COUNT + _MORE
    assert _values(store) == {}
    assert _is_clean(store)


@pytest.mark.parametrize(
    ("disk", "step"),
    cases(["retain.deleted", "commit.synced"], ["retain.committed", "retain.renamed", "checkpoint.replaced:2"]),
    indirect=["disk"],
)
def test_deletion_of_records_when_the_power_goes_at_a_step_then_the_next_one_completes_it(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """Behind the commit the deleted records do not come back, whatever files do."""
    store = _on_disk(disk, _BY_SIZE)
    cut_at(context, disk, step, _delete_records, store)

    _append(store, _BY_SIZE, _COUNT)
    assert _values(store) == {offset: offset for offset in range(_DELETE_AT, _COUNT + _MORE)}
    finish(context, disk.folder, _delete_records, store)
    _cut_again(disk)

    assert _values(store) == {offset: offset for offset in range(_DELETE_AT, _COUNT + _MORE)}
    assert _is_clean(store)


def _truncate(store: Path) -> None:
    truncate_to(store, LOG, 40, SystemClock())


def _empty(store: Path) -> None:
    truncate_fully_and_start_at(store, LOG, 500, SystemClock())


@pytest.mark.parametrize(
    ("disk", "step"),
    cases(["undo.deleted", "truncate.committed", "undo.cut"], [*_COMMIT, "truncate.filled", "truncate.epochs"]),
    indirect=["disk"],
)
def test_truncation_when_the_power_goes_at_a_step_then_the_next_one_completes_it(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """What was cut off does not come back behind or under what is appended then."""
    store = _on_disk(disk)
    cut_at(context, disk, step, _truncate, store)

    finish(context, disk.folder, _truncate, store)
    _cut_again(disk)
    _append(store, {}, 1000)

    kept = {offset: value for offset, value in _values(store).items() if offset < 40}
    assert kept == {offset: offset for offset in range(len(kept))}
    assert {offset: value for offset, value in _values(store).items() if offset >= 40} == {
        40 + number: 1000 + number for number in range(_MORE)
    }
    assert _is_clean(store)


@pytest.mark.parametrize(
    ("disk", "step"), cases(["truncate.committed"], [*_COMMIT, "truncate.filled"]), indirect=["disk"]
)
def test_emptying_when_the_power_goes_at_a_step_then_the_next_one_completes_it(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """The log starts anew where it was told to, and what it held does not come back."""
    store = _on_disk(disk)
    cut_at(context, disk, step, _empty, store)

    finish(context, disk.folder, _empty, store)
    _cut_again(disk)
    _append(store, {}, 1000)

    assert _values(store) == {500 + number: 1000 + number for number in range(_MORE)}
    assert _is_clean(store)


def _move(store: Path, target: str) -> None:
    if state_of(store).log_dir == target:
        return
    execute_move(store, LOG, target)


@pytest.mark.parametrize(
    ("disk", "step"),
    cases(
        ["move.copied", "move.committed", "move.renamed", "move.deleted"], [*_COMMIT, "move.intended", "move.renamed:2"]
    ),
    indirect=["disk"],
)
def test_move_when_the_power_goes_at_a_step_then_the_log_is_whole_in_one_place(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """The next opening finishes it or takes it back; no record is lost, and none is there twice."""
    store = _on_disk(disk)
    target = str(disk.folder / "other")
    cut_at(context, disk, step, _move, store, target)

    with closing(open_store(store, {LOG.topic: _SETTINGS}, topic=LOG.topic, log_dirs=("logs", target))):
        assert (state_of(store).log_dir == target) or step in ("move.intended", "move.copied", *_COMMIT)
    finish(context, disk.folder, _move, store, target)
    _cut_again(disk)
    _append(store, {}, _COUNT)

    assert _values(store) == {offset: offset for offset in range(_COUNT + _MORE)}
    assert state_of(store).log_dir == target
    assert list(disk.folder.rglob(LOG.directory_name)) == [Path(target) / LOG.directory_name]
    assert not list(disk.folder.rglob(f"{LOG.directory_name}.*"))
    assert _is_clean(store)


def _delete_topic(store: Path) -> None:
    if LOG not in Ledger.open(Store.find(store).ledger_path).states():
        return
    execute_deletion(store, LOG.topic, SystemClock(), lambda *_: None, time.sleep)


@pytest.mark.parametrize(
    ("disk", "step"),
    cases(["delete-topic.committed", "delete-topic.renamed"], [*_COMMIT, "delete-topic.deleted"]),
    indirect=["disk"],
)
def test_deletion_of_a_topic_when_the_power_goes_at_a_step_then_it_is_there_or_gone_for_good(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """A topic of that name made later starts at 0 and finds no record of the old one."""
    store = _on_disk(disk)
    cut_at(context, disk, step, _delete_topic, store)

    if LOG in Ledger.open_for_writing(Store.find(store).ledger_path, UNSHARED).states():
        assert step in _COMMIT
        assert _values(store) == {offset: offset for offset in range(_COUNT)}
    finish(context, disk.folder, _delete_topic, store)
    _cut_again(disk)
    _append(store, {}, 0)

    assert _values(store) == {offset: offset for offset in range(_MORE)}
    assert not list(disk.folder.rglob("*-delete"))
    assert _is_clean(store)


def _upgrade(store: Path) -> None:
    if "layout.version=3" in (store / "store.properties").read_text():
        upgrade_store(store)


@pytest.mark.parametrize(
    ("disk", "step"), cases(["upgrade.committed"], ["upgrade.written", "upgrade.finished"]), indirect=["disk"]
)
def test_upgrade_when_the_power_goes_at_a_step_then_a_second_one_completes_it(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """The store is of one layout or of the other, with every record and micro-batch."""
    store = write_aged(disk.folder / "s", None, _COUNT)
    make_older(store, {"other": 3})
    disk.settle()
    cut_at(context, disk, step, _upgrade, store)

    finish(context, disk.folder, _upgrade, store)
    _cut_again(disk)

    assert Ledger.open(Store.find(store).ledger_path).transaction_version("other") == 3
    _append(store, {}, _COUNT)
    assert _values(store) == {offset: offset for offset in range(_COUNT + _MORE)}
    assert _is_clean(store)


def _repair(store: Path) -> None:
    assert execute_repair(store, RepairOptions(jobs=1), SystemClock(), lambda _step: None).is_sound


@pytest.mark.parametrize(
    ("disk", "step"),
    cases(["repair.recorded", "repair.replaced", "repair.indexed"], _REPAIR),
    indirect=["disk"],
)
def test_repair_when_the_power_goes_at_a_step_then_the_next_one_completes_it(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """What could not be saved is written down before its bytes go."""
    store = write_store(disk.folder / "s")
    for name in ("payload", "active segment's payload", "epochs changed", "leftover", "checkpoint"):
        DAMAGES[name](store)
    disk.settle()
    cut_at(context, disk, step, _repair, store)

    finish(context, disk.folder, _repair, store)
    _cut_again(disk)

    assert problems_of_repaired(store) == []
