"""The power goes at any call, and any part of what was not yet synced is lost: the next start makes it whole."""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.cleaning import Clean
from tests.faults.operations import OPERATIONS, operation_work
from tests.faults.shadow import Moment, Shadow, write_image
from tests.faults.system_calls import watched
from tests.faults.works import AfterCrash, NewStore, Repair, Stream, Work

_EXAMPLES = 400 if os.environ.get("SPARKLOG_SOAK") else 6
_WORKS: tuple[type[Work], ...] = (Stream, NewStore, AfterCrash, Repair, Clean, *map(operation_work, OPERATIONS))


@dataclass(frozen=True)
class _Recording:
    """A work that ran undisturbed, and its disk before each of its calls and at the end."""

    work: type[Work] = field(repr=False)
    prepared: Path = field(repr=False)
    moments: list[Moment] = field(repr=False)


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    root = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=root if os.access(root, os.W_OK) else None) as folder:
        yield Path(folder)


def _record(work: type[Work], folder: Path) -> _Recording:
    prepared = folder / "prepared"
    prepared.mkdir(parents=True)
    work.prepare(prepared)
    running = work(Path(shutil.copytree(prepared, folder / "running")))
    (running.folder / "store").mkdir(exist_ok=True)
    running.arrange()
    shadow = Shadow(running.folder / "store")
    with watched(running.folder / "store", shadow):
        for step in running.steps():
            step()
            shadow.done += 1
        moments = [*shadow.moments, shadow.moment()]
    return _Recording(work, prepared, moments)


@pytest.fixture(scope="module", params=_WORKS, ids=lambda work: work.__name__)
def recording(request: pytest.FixtureRequest, memory: Path) -> _Recording:
    return _record(request.param, memory / request.param.__name__)


@settings(max_examples=_EXAMPLES)
@given(place=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 2**32))
def test_work_when_the_power_goes_anywhere_then_the_next_start_makes_it_whole(
    recording: _Recording, place: float, seed: int
) -> None:
    """Whatever unsynced effects survive: nothing acknowledged is lost, nothing half done is visible, and it goes on."""
    moment = recording.moments[int(place * len(recording.moments))]
    with tempfile.TemporaryDirectory(dir=recording.prepared.parent) as name:
        image = Path(name)
        for path in recording.prepared.iterdir():
            if path.name != "store":
                (image / path.name).symlink_to(path)
        write_image(moment, image / "store", random.Random(seed).randrange)
        work = recording.work(image)

        assert work.problems_of_promises(moment.done) == [], moment.call
        assert work.finish() == [], moment.call
