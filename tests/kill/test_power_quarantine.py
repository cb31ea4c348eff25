"""The power goes while diverted rows are merged: each is there once."""

from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.kill.loop_disk import LoopDisk
from tests.kill.power_job import cases, cut_at, finish, mounted
from tests.kill.quarantine_job import divert, expected_rows, rows_of

pytestmark = pytest.mark.kill


@pytest.fixture
def disk(request: pytest.FixtureRequest, memory_path: Path) -> Iterator[LoopDisk]:
    """An empty disk of the file system asked for."""
    disk = mounted(memory_path, request.param)
    disk.settle()
    yield disk
    disk.remove()


@pytest.mark.parametrize(
    ("disk", "step"),
    cases(
        ["quarantine.merged", "quarantine.hidden:7", "quarantine.shown"],
        ["quarantine.removed", "quarantine.hidden:33", "commit.quarantined:33", "commit.synced:33"],
    ),
    indirect=["disk"],
)
def test_merger_when_the_power_goes_at_a_step_then_each_row_is_there_once(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """No row is twice right after the cut; the next writer finishes, and what it acknowledged survives the next cut."""
    store = disk.folder / "s"
    cut_at(context, disk, step, divert, store)
    assert max(rows_of(store).values(), default=1) == 1

    finish(context, disk.folder, divert, store)
    disk.cut_power()
    disk.plug_in()

    assert rows_of(store) == expected_rows()
