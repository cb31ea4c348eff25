"""Killed at a named step and started again, a retention leaves what an undisturbed one does."""

import shutil
from collections.abc import Mapping
from contextlib import closing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.operation_fault_points import RETENTION_FAULT_POINTS
from tests.build.retained_store import COUNT, LOG, aged_rows, names, retain, state_of, write_aged
from tests.build.sink_store import in_process, open_store
from tests.kill.retention_job import finish_retention
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.kill

_BY_SIZE = {"retention.bytes": 1200}
_BY_AGE = {"retention.ms": 1000}
_STEPS = [
    *((_BY_SIZE, step) for step in RETENTION_FAULT_POINTS if step != "retain.rolled"),
    *((_BY_AGE, step) for step in RETENTION_FAULT_POINTS),
    *((_BY_AGE, step) for step in ("commit.written", "commit.synced", "checkpoint.written", "checkpoint.replaced")),
]


@pytest.mark.parametrize(
    ("settings", "step"), _STEPS, ids=lambda each: each if isinstance(each, str) else next(iter(each))
)
def test_retention_when_killed_at_a_step_then_sound_and_the_second_one_completes_it(
    context: ForkServerContext, memory_path: Path, sparklog: Sparklog, settings: dict[str, object], step: str
) -> None:
    """The log is sound at each moment, whoever opens it next; the second run comes to the same end."""
    store = _write(memory_path / "store", settings)
    undisturbed = Path(shutil.copytree(store, memory_path / "undisturbed"))
    retain(undisturbed, SystemClock())

    assert finish_retention(context, store, SPARKLOG_FAULT_POINT=step) == -9
    assert sparklog("verify", store).code == 0, sparklog("verify", store).out
    start = _first_offset(store)
    assert _offsets(store) == list(range(start, COUNT))
    assert finish_retention(context, store) == 0

    assert _first_offset(store) == _first_offset(undisturbed)
    assert names(store, "") == names(undisturbed, "")
    assert sparklog("verify", store).code == 0


@pytest.mark.parametrize("step", RETENTION_FAULT_POINTS)
def test_sink_when_a_retention_was_killed_then_goes_on_at_the_end(
    context: ForkServerContext, memory_path: Path, sparklog: Sparklog, step: str
) -> None:
    """A sink that opens the store next appends where the log ended, to a new or the old active segment."""
    store = _write(memory_path / "store", _BY_AGE)
    assert finish_retention(context, store, SPARKLOG_FAULT_POINT=step) == -9

    with closing(open_store(store, {LOG.topic: {"partitions": 2, **_BY_AGE}}, topic=LOG.topic)) as writer:
        writer.append("q", 10, in_process(aged_rows(COUNT, COUNT + 5)))

    assert _offsets(store) == list(range(_first_offset(store), COUNT + 5))
    assert sparklog("verify", store).code == 0


def _write(store: Path, settings: Mapping[str, object]) -> Path:
    """Write the store, and a record that stays: a store without any is nothing that can be checked."""
    write_aged(store, settings)
    with closing(open_store(store, {"kept": {"retention.ms": -1}}, topic="kept")) as writer:
        writer.append("kept", 0, in_process(aged_rows(0, 1)))
    return store


def _first_offset(store: Path) -> int:
    return state_of(store).log_start_offset


def _offsets(store: Path) -> list[int]:
    state = state_of(store)
    reader = LogReader(
        store / "logs" / LOG.directory_name,
        log_start_offset=state.log_start_offset,
        log_end_offset=state.log_end_offset,
    )
    read = [batch.column("offset").to_pylist() for batch in reader.read(state.log_start_offset)]
    return [offset for offsets in read for offset in offsets]
