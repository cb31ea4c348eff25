"""Writers of one store of objects at the same time, one that sleeps, and two maintenance runs: one wins, all is there.

`SPARKLOG_SOAK=1` asks for 200 rounds.
"""

import itertools
import os
import random
import re
import time
import uuid
from contextlib import closing
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

from sparklog.sink.config import SinkConfig
from sparklog.sink.objects import object_tidy
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import WriterFencedError
from tests.build.sink_store import EVENTS, in_process, numbers
from tests.kill.directory_job import start
from tests.kill.harness import exit_code, fork_server, wait_until_stopped, wake
from tests.kill.object_job import maintain_beside, put_place, write_objects
from tests.objects.checked_objects import check_objects, complete_objects, error_of
from tests.objects.gateway import Gateway
from tests.seeds import take_seed

pytestmark = pytest.mark.kill

_ROUNDS = 200 if os.environ.get("SPARKLOG_SOAK") else 6
_TIDYING_S = 6.0
_BATCHES = 20
"""So many that extents are merged."""


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """Processes that start with everything imported."""
    return fork_server()


@pytest.mark.parametrize("number", range(_ROUNDS))
def test_objects_when_writers_and_maintenance_runs_meet_then_one_wins_and_each_number_is_there_once(
    context: ForkServerContext, tmp_path: Path, gateway: Gateway, number: int
) -> None:
    chance, store = random.Random(take_seed(number)), tmp_path / "store"
    put_place(store, f"{gateway.address}/{uuid.uuid4().hex}", gateway.options, _BATCHES)
    sleeps = number % 2 == 0
    first = _start_sleeper(context, store, chance) if sleeps else start(context, write_objects, store)

    second = start(context, write_objects, store)
    runs = [start(context, maintain_beside, store) for _ in range(2)]
    codes = [exit_code(each) for each in (second, *runs)]
    if sleeps:
        assert codes[0] == 0, error_of(store)  # nobody was awake who could have taken the store
        wake(first)
    codes.append(exit_code(first))

    assert codes[-1] == 1 or not sleeps, "a writer that slept while another one took the store went on"
    assert set(codes) <= {0, 1}
    if 1 in (codes[0], codes[-1]):
        assert re.search(r"WriterFencedError|CommitStateUnknownError", error_of(store)), error_of(store)
    complete_objects(context, store)
    check_objects(context, store)


def _start_sleeper(context: ForkServerContext, store: Path, chance: random.Random) -> ForkServerProcess:
    """Start a writer that suspends itself in the middle of a micro-batch."""
    step = chance.choice(("stage.written", "stage.reported", "commit.data"))
    visit = chance.randint(4, _BATCHES - 2)
    sleeper = start(context, write_objects, store, SPARKLOG_FAULT_POINT=f"{step}:{visit}", SPARKLOG_FAULT_SIGNAL="STOP")
    wait_until_stopped(sleeper)
    return sleeper


def test_store_when_two_writers_make_it_in_the_same_moment_then_it_is_no_error(tmp_path: Path) -> None:
    """As if both had found nothing there: the request of the second one loses, and one of the two is fenced."""
    config = SinkConfig.from_options(f"file://{tmp_path}/store", EVENTS, topic="events")
    assert config.objects is not None
    with closing(ObjectWriter(config, config.objects, SystemClock())) as first:
        first.append("query", 0, in_process(numbers(0, 4)))

        second = ObjectLedger.create(config.objects)

        assert second.transaction_version("query") == 0
        with pytest.raises(WriterFencedError):
            first.append("query", 1, in_process(numbers(4, 8)))


def test_ledger_when_opened_while_its_writer_removes_old_entries_then_is_read(
    context: ForkServerContext, tmp_path: Path
) -> None:
    """A checkpoint may go between the moment that a reader learns its name and the moment that it reads it."""
    config = SinkConfig.from_options(f"file://{tmp_path}/store", EVENTS, topic="events")
    place = config.objects
    assert place is not None
    writer = context.Process(target=_write_and_tidy, args=(tmp_path / "store",))
    writer.start()
    opened, until = 0, time.monotonic() + _TIDYING_S
    try:
        while time.monotonic() < until:
            ledger = ObjectLedger.find(place)
            if ledger is not None:
                ledger.refresh()
                opened += 1
    finally:
        writer.kill()
        writer.join()

    assert opened > 0


def _write_and_tidy(root: Path) -> None:
    """Commit as fast as possible, with a checkpoint after every second commit."""
    vars(object_tidy)["CHECKPOINT_INTERVAL"] = 2
    config = SinkConfig.from_options(f"file://{root}", EVENTS, topic="events")
    assert config.objects is not None
    with closing(ObjectWriter(config, config.objects, SystemClock())) as writer:
        for batch in itertools.count():
            writer.append("query", batch, in_process(numbers(0, 2)))
