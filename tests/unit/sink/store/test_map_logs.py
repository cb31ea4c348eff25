"""The same piece of work for each of many logs."""

import threading
import time

import pytest

from sparklog.sink.store.map_logs import map_logs

_SLOW_DISK_S = 0.05


@pytest.mark.parametrize("count", [0, 1, 16, 17, 1000])
@pytest.mark.parametrize("wait_s", [0.0, _SLOW_DISK_S])
def test_results_when_the_first_log_is_quick_or_slow_then_in_the_order_of_the_logs(count: int, wait_s: float) -> None:
    """Whoever does the work, and in whatever order it is done."""

    def work(number: int) -> int:
        time.sleep(wait_s if number == 0 else 0)
        return -number

    assert map_logs(work, range(count)) == [-number for number in range(count)]


def test_logs_when_the_first_ones_are_slow_then_the_others_side_by_side() -> None:
    """Two of them, far from each other, meet."""
    met = threading.Barrier(2)

    def work(number: int) -> None:
        if number == 0:
            time.sleep(_SLOW_DISK_S)
        if number in (16, 79):
            met.wait(timeout=60)

    map_logs(work, range(80))


def test_logs_when_they_are_the_first_ones_then_by_the_caller_alone() -> None:
    """No thread is started for a few quick logs."""
    threads: list[str] = []

    map_logs(lambda _number: threads.append(threading.current_thread().name), range(16))

    assert set(threads) == {threading.current_thread().name}


@pytest.mark.parametrize("bad", [3, 500])
@pytest.mark.parametrize("wait_s", [0.0, _SLOW_DISK_S])
def test_error_when_work_fails_then_it_ends_the_whole(bad: int, wait_s: float) -> None:
    """The error is the work's own."""

    def work(number: int) -> None:
        time.sleep(wait_s if number == 0 else 0)
        if number == bad:
            raise ValueError(number)

    with pytest.raises(ValueError, match=str(bad)):
        map_logs(work, range(640))
