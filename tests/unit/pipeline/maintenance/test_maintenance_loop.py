"""Runs of maintenance, one every so often."""

import pytest

from sparklog.pipeline.maintenance.loop import run_every
from sparklog.storage_core.errors import (
    SparkLostError,
    StorageError,
    StoreLockedError,
    UnsupportedFormatError,
    WriterFencedError,
)
from tests.build.manual_clock import ManualClock


class _Runs:
    """Runs that take a minute each; some fail."""

    def __init__(self, failures: dict[int, Exception], last: int) -> None:
        self.clock = ManualClock(0)
        self.began_ms: list[int] = []
        self._failures, self._last = failures, last

    def run_once(self) -> int:
        self.began_ms.append(self.clock.now_ms())
        self.clock.advance(60_000)
        if failure := self._failures.get(len(self.began_ms)):
            raise failure
        return 0

    def is_asked(self) -> bool:
        return len(self.began_ms) >= self._last

    def sleep(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))


def _run(runs: _Runs, every_ms: int | None) -> int:
    return run_every(runs.run_once, every_ms, runs.is_asked, runs.clock, runs.sleep)


def test_run_every_when_runs_are_short_then_they_begin_at_even_distances() -> None:
    """From start to start, whatever a run takes."""
    runs = _Runs({}, 3)

    assert _run(runs, 900_000) == 0
    assert runs.began_ms == [0, 900_000, 1_800_000]


def test_run_every_when_runs_are_long_then_the_next_one_begins_at_once() -> None:
    """None overlap."""
    runs = _Runs({}, 3)
    _run(runs, 1000)

    assert runs.began_ms == [0, 60_000, 120_000]


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_run_every_when_the_wall_clock_is_set_then_runs_begin_when_they_should(step_ms: int) -> None:
    """None is put off by an hour, none comes early."""
    runs = _Runs({}, 3)
    began_at = [runs.clock.monotonic_ms()]

    def run_once() -> int:
        runs.run_once()
        runs.clock.set_wall(step_ms)
        began_at.append(runs.clock.monotonic_ms() - 60_000)
        return 0

    assert run_every(run_once, 900_000, runs.is_asked, runs.clock, runs.sleep) == 0
    assert [at - began_at[0] for at in began_at[1:]] == [0, 900_000, 1_800_000]


def test_run_every_when_another_run_holds_the_store_then_the_next_one_tries_again() -> None:
    """Neither that nor a full disk ends the loop; the exit code is the last run's."""
    runs = _Runs({1: StoreLockedError("held"), 2: StorageError("full")}, 3)

    assert _run(runs, 1000) == 0
    assert len(runs.began_ms) == 3
    assert _run(_Runs({3: StorageError("full")}, 3), 1000) == 1
    assert _run(_Runs({3: StoreLockedError("held")}, 3), 1000) == 3


def test_run_every_when_another_run_took_over_then_the_next_one_begins_afresh() -> None:
    """A machine that slept past its leases goes on once they are free; what no other run can mend ends it."""
    runs = _Runs({1: WriterFencedError("lost")}, 2)

    assert _run(runs, 1000) == 0
    assert len(runs.began_ms) == 2
    for end in (UnsupportedFormatError("newer"), SparkLostError("gone")):
        with pytest.raises(type(end)):
            _run(_Runs({1: end}, 2), 1000)


def test_run_every_when_no_time_is_given_then_there_is_one_run() -> None:
    """As cron wants it."""
    runs = _Runs({}, 5)

    assert (_run(runs, None), runs.began_ms) == (0, [0])
