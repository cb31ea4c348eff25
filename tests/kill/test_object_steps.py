"""A writer of a store of objects, killed or suspended at any step: each number is there once."""

import re
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.sink.config import SinkConfig
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import CommitStateUnknownError, WriterFencedError
from tests.build.sink_store import EVENTS, in_process, numbers
from tests.kill.directory_job import finish, start
from tests.kill.harness import exit_code, wait_until_stopped, wake
from tests.kill.object_job import (
    BATCHES,
    DIVERTED_BATCHES,
    divert_objects,
    diverted_values,
    maintain_place,
    object_place,
    problems_of_objects,
    write_objects,
)

pytestmark = pytest.mark.kill

_STEPS = [
    f"{step}{times}"
    for step in ("stage.started", "stage.written", "stage.reported", "commit.data", "commit.written")
    for times in ("", ":2", ":7")
]


@pytest.fixture
def store(memory_path: Path) -> Path:
    """The folder of a store."""
    return memory_path / "store"


@pytest.mark.parametrize("step", [*_STEPS, "tidy.checkpointed", "tidy.cleaned"])
def test_objects_when_their_writer_is_killed_at_a_step_then_its_next_run_completes_the_logs(
    context: ForkServerContext, store: Path, step: str
) -> None:
    assert finish(context, write_objects, store, SPARKLOG_FAULT_POINT=step) == -9

    assert finish(context, write_objects, store) == 0

    assert problems_of_objects(store) == []


@pytest.mark.parametrize("step", ["clean.checkpoint", "commit.data", "commit.written", "commit.data:2", "tidy.cleaned"])
def test_objects_when_their_maintenance_is_killed_at_a_step_then_the_next_run_completes_it(
    context: ForkServerContext, store: Path, step: str
) -> None:
    assert finish(context, write_objects, store) == 0

    assert finish(context, maintain_place, store, SPARKLOG_FAULT_POINT=step) == -9

    assert problems_of_objects(store) == []
    for _ in range(2):  # the second one removes what the first one let go
        assert finish(context, maintain_place, store) == 0
    assert problems_of_objects(store) == []
    ledger = ObjectLedger.open(object_place(store))
    assert {len(each) for each in ledger.extents().values()} == {1}
    assert ledger.garbage() == {}


@pytest.mark.parametrize("step", ["stage.written:3", "commit.data:3"])
def test_objects_when_a_writer_sleeps_for_a_hundred_commits_of_the_next_one_then_it_is_fenced(
    context: ForkServerContext, store: Path, step: str
) -> None:
    """The entry after the one that it knows is tidied away by then, so it can make that one anew: it must not count."""
    sleeper = start(context, write_objects, store, SPARKLOG_FAULT_POINT=step, SPARKLOG_FAULT_SIGNAL="STOP")
    wait_until_stopped(sleeper)
    assert finish(context, write_objects, store) == 0
    entries = sorted(Path(store, "ledger").glob("*log/*.json"))
    assert int(entries[0].stem) > 3

    wake(sleeper)

    assert exit_code(sleeper) == 1
    error = (store.parent / "error.txt").read_text().splitlines()[-1]
    assert re.search(r"WriterFencedError|CommitStateUnknownError", error), error
    assert problems_of_objects(store) == []


def test_micro_batch_when_its_writer_was_overtaken_long_ago_then_its_error_says_so(store: Path) -> None:
    """Whether it counts is told by the next opening: it does not."""
    first = _open(store)
    first.append("query", 0, in_process(numbers(0, 4)))
    second = _open(store)
    for batch in range(1, BATCHES):
        second.append("query", batch, in_process(numbers(4 * batch, 4 * batch + 4)))

    with pytest.raises((WriterFencedError, CommitStateUnknownError)):
        first.append("query", 1, in_process(numbers(900, 904)))

    assert _open(store).append("query", BATCHES - 1, in_process()).replayed
    assert problems_of_objects(store) == []


def test_ledger_when_many_commits_were_made_then_its_files_are_few(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data files that no version names, and entries that a checkpoint sums up, go."""
    monkeypatch.setattr("sparklog.sink.objects.object_tidy._DATA_FILE_AGE_S", 0.0)
    write_objects(store)
    began = time.monotonic()
    writer = _open(store)
    for batch in range(BATCHES, 3 * BATCHES):
        writer.append("query", batch, in_process(numbers(4 * batch, 4 * batch + 4)))

    print(f"{(time.monotonic() - began) / (2 * BATCHES) * 1000:.1f} ms a micro-batch")
    assert len(list((store / "ledger").glob("kind=log/*.parquet"))) < 250
    assert len(list((store / "ledger").glob("*log/*.json"))) <= 200
    assert problems_of_objects(store, 3 * BATCHES) == []
    assert ObjectLedger.open(object_place(store)).transaction_version("query") == 3 * BATCHES - 1


def _open(store: Path) -> ObjectWriter:
    config = SinkConfig.from_options(f"file://{store}", EVENTS, topic="events")
    assert config.objects is not None
    return ObjectWriter(config, config.objects, SystemClock())


_DIVERTED = [f"bad {batch}" for batch in range(DIVERTED_BATCHES)]


@pytest.mark.parametrize(
    "step", ["stage.written:2", "stage.reported:3", "commit.data:3", "commit.written:3", "commit.quarantined:2"]
)
def test_invalid_rows_when_their_writer_is_killed_at_a_step_then_each_is_diverted_once(
    context: ForkServerContext, store: Path, step: str
) -> None:
    """No row of a micro-batch that is not committed, no row twice after the next run."""
    assert finish(context, divert_objects, store, SPARKLOG_FAULT_POINT=step) == -9
    known = ObjectLedger.open(object_place(store)).transaction_version("query")
    assert set(diverted_values(store)) <= set(_DIVERTED[: 0 if known is None else known + 1])

    assert finish(context, divert_objects, store) == 0

    assert diverted_values(store) == _DIVERTED
    data = [each.name for each in object_place(store).open().list("data") if each.name.endswith(".parquet")]
    assert len(data) <= 1  # of the killed task: an orphan


@pytest.mark.parametrize("step", ["commit.data:3", "commit.written:3", "commit.quarantined:2"])
def test_invalid_rows_when_their_writer_sleeps_while_another_one_takes_the_store_then_each_is_diverted_once(
    context: ForkServerContext, store: Path, step: str
) -> None:
    sleeper = start(context, divert_objects, store, SPARKLOG_FAULT_POINT=step, SPARKLOG_FAULT_SIGNAL="STOP")
    wait_until_stopped(sleeper)
    assert finish(context, divert_objects, store) == 0

    wake(sleeper)

    assert exit_code(sleeper) == 1
    assert diverted_values(store) == _DIVERTED
