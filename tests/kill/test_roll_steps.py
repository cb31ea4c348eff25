"""Killed while it rolls active segments, a maintenance leaves a whole store, and the next one completes it."""

from contextlib import closing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.storage_core.operation_fault_points import ROLL_FAULT_POINTS
from tests.build.compacted_store import LOG, SETTINGS, expected_offsets, keyed_rows, offsets, write_keyed
from tests.build.retained_store import state_of
from tests.build.sink_store import in_process, open_store
from tests.kill.roll_job import finish_rolling
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.kill

_OVERDUE = {**SETTINGS, "max.compaction.lag.ms": 3_600_000, "min.cleanable.dirty.ratio": 1.0}
_STEPS = (*ROLL_FAULT_POINTS, "commit.written", "commit.synced", "clean.swap", "clean.checkpoint")


@pytest.mark.parametrize("step", _STEPS)
def test_maintenance_when_killed_while_it_rolls_then_sound_and_the_next_one_completes_it(
    context: ForkServerContext, memory_path: Path, sparklog: Sparklog, step: str
) -> None:
    """No record is lost at any moment; the second run comes to the end of an undisturbed one."""
    store = write_keyed(memory_path / "store", _OVERDUE)

    assert finish_rolling(context, store, SPARKLOG_FAULT_POINT=step) == -9
    checked = sparklog("verify", store)
    assert checked.code == (0 if step != "clean.swap" else 1), checked.out
    assert set(expected_offsets(200, 200)) <= set(offsets(store))
    assert finish_rolling(context, store) == 0

    assert offsets(store) == expected_offsets(200, 200)
    assert (state_of(store, LOG).active_base_offset, state_of(store, LOG).log_end_offset) == (200, 200)
    assert sparklog("verify", store).code == 0


@pytest.mark.parametrize("step", ROLL_FAULT_POINTS)
def test_sink_when_a_roll_was_killed_then_goes_on_at_the_end(
    context: ForkServerContext, memory_path: Path, sparklog: Sparklog, step: str
) -> None:
    """A sink that opens the store next appends where the log ended, to the new or the old active segment."""
    store = write_keyed(memory_path / "store", _OVERDUE)
    assert finish_rolling(context, store, SPARKLOG_FAULT_POINT=step) == -9

    with closing(open_store(store, {LOG.topic: _OVERDUE}, topic=LOG.topic)) as writer:
        writer.append("q", 100, in_process(keyed_rows(200, 205)))

    assert offsets(store)[-5:] == [200, 201, 202, 203, 204]
    assert sparklog("verify", store).code == 0
