"""A disk that fails at one call of an import: the store has all logs or none, and the broker's files stay."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.storage_core.errors import CommitStateUnknownError, InvalidConfigError, StorageError
from tests.build.sink_store import contents
from tests.faults.fault_plan import Fault, FaultPlan
from tests.faults.test_failing_directories import faults, run_watched
from tests.kill.directory_job import open_and_close
from tests.kill.import_job import IMPORTED, problems_of_import, run_import, write_places

_REFUSALS = (StorageError, CommitStateUnknownError, InvalidConfigError)
"""The last one before anything changes: a log directory that can't be read is none to import into."""


def _wrong_after(store: Path, fault: Fault) -> Iterator[str]:
    broker = contents(store.parent / "broker")
    refusal = run_watched(run_import, store, FaultPlan(fault))
    if refusal is not None and not isinstance(refusal, _REFUSALS):
        yield repr(refusal)
    open_and_close(store)
    yield from problems_of_import(store, broker)
    if not IMPORTED.keys() <= {str(each.log) for each in open_logs(store).logs}:
        run_import(store)
        yield from problems_of_import(store, broker)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a broker's root."""
    return write_places(tmp_path_factory.mktemp("written"))


@pytest.mark.parametrize("kind", ["open", "create", "write", "copy", "fsync", "rename", "unlink", "mkdir", "ledger"])
def test_import_when_a_call_fails_then_all_logs_or_none_and_a_second_one_completes_it(
    written: Path, memory_path: Path, kind: str
) -> None:
    """Whichever call the disk of the store refuses."""

    def copied(name: str) -> Path:
        shutil.rmtree(memory_path / name, ignore_errors=True)
        shutil.copytree(written.parent, memory_path / name)
        return memory_path / name / "store"

    calls = FaultPlan()
    assert run_watched(run_import, copied("counted"), calls) is None

    wrong = {
        str(fault): found
        for fault in faults(calls.counts[kind], kind)
        if (found := list(_wrong_after(copied("faulty"), fault)))
    }

    assert calls.counts[kind]
    assert wrong == {}


def _emptied(written: Path, folder: Path) -> Path:
    """Make a folder with the broker's root alone; return where a store beside it would be."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(written.parent / "broker", folder / "broker")
    return folder / "store"


def _has_all(store: Path) -> bool:
    is_there = (store / "store.properties").exists()
    return is_there and IMPORTED.keys() == {str(each.log) for each in open_logs(store).logs}


@pytest.mark.parametrize("kind", ["mkdir", "copy", "fsync", "ledger"])
def test_first_import_when_a_call_fails_then_no_store_stays_unless_it_has_all_logs(
    written: Path, memory_path: Path, kind: str
) -> None:
    """Where the disk refuses the removal, too, the next import goes on with the empty store."""

    def wrong(fault: Fault) -> Iterator[str]:
        store = _emptied(written, memory_path)
        refusal = run_watched(run_import, store, FaultPlan(fault))
        if refusal is not None and not isinstance(refusal, _REFUSALS):
            yield repr(refusal)
        left = {path.name for path in memory_path.iterdir()} - {"broker"}
        if not fault.lasts and left != ({"store"} if _has_all(store) else set()):
            yield f"left: {left}"
        if not _has_all(store):
            run_import(store)
        if not _has_all(store):
            yield "not imported"

    calls = FaultPlan()
    assert run_watched(run_import, _emptied(written, memory_path), calls) is None

    assert calls.counts[kind]
    assert {str(each): found for each in faults(calls.counts[kind], kind) if (found := list(wrong(each)))} == {}


@pytest.mark.parametrize("kind", ["mkdir", "copy", "rename", "fsync", "ledger"])
def test_first_import_when_a_call_fails_with_its_log_directory_outside_then_a_second_one_completes_it(
    written: Path, memory_path: Path, kind: str
) -> None:
    """A root that has the id of the new store belongs to it, so the store stays, and is removed only before that."""

    def work(folder: Path) -> None:
        run_import(folder / "store", str(folder / "disk"))

    def wrong(fault: Fault) -> Iterator[str]:
        store = _emptied(written, memory_path)
        refusal = run_watched(work, memory_path, FaultPlan(fault))
        if refusal is not None and not isinstance(refusal, _REFUSALS):
            yield repr(refusal)
        is_named, is_there = (memory_path / "disk" / "meta.properties").exists(), store.exists()
        if not fault.lasts and is_there != is_named:
            yield f"store: {is_there}, named: {is_named}"
        if not _has_all(store):
            work(memory_path)
        if not _has_all(store):
            yield "not imported"

    calls = FaultPlan()
    _emptied(written, memory_path)
    assert run_watched(work, memory_path, calls) is None

    assert calls.counts[kind]
    assert {str(each): found for each in faults(calls.counts[kind], kind) if (found := list(wrong(each)))} == {}
