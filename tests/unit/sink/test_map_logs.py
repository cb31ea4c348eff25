"""A look at each of many logs: in their order, on threads only where looks wait."""

import threading
import time

import pytest

from sink.map_logs import map_logs


@pytest.mark.parametrize("count", [0, 1, 64, 65, 1000])
@pytest.mark.parametrize("wait_s", [0.0, 0.0002])
def test_results_when_logs_are_looked_at_then_in_the_order_of_the_logs(count: int, wait_s: float) -> None:
    def look(number: int) -> int:
        time.sleep(wait_s * (number % 3))
        return -number

    assert map_logs(look, range(count)) == [-number for number in range(count)]


def test_threads_when_looks_wait_then_several_at_once() -> None:
    threads: set[str] = set()

    def look(_number: int) -> None:
        threads.add(threading.current_thread().name)
        time.sleep(0.002)

    map_logs(look, range(640))

    assert len(threads) > 2


@pytest.mark.parametrize("bad", [3, 500])
@pytest.mark.parametrize("wait_s", [0.0, 0.001])
def test_error_when_a_look_fails_then_it_ends_the_whole(bad: int, wait_s: float) -> None:
    def look(number: int) -> None:
        time.sleep(wait_s)
        if number == bad:
            raise ValueError(number)

    with pytest.raises(ValueError, match=str(bad)):
        map_logs(look, range(640))
