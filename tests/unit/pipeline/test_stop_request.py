import os
import signal
import subprocess
import sys

import pytest

from sparklog.pipeline.stop_request import StopRequest

_PROGRAM = """
import sys, time
from sparklog.pipeline.stop_request import StopRequest
with StopRequest(lambda line: None, "logs") as stop:
    print("ready", flush=True)
    while not stop.requested:
        time.sleep(0.01)
    print("asked", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_request_when_a_signal_comes_then_noted_and_reported_once(number: signal.Signals) -> None:
    """The first signal ends nothing by itself: it is noted, and told in a line that names it."""
    lines: list[str] = []
    with StopRequest(lines.append, "micro-batch") as stop:
        os.kill(os.getpid(), number)

        assert stop.requested
    assert len(lines) == 1
    assert lines[0].startswith(number.name)


def test_stop_request_when_left_then_handlers_before_are_back() -> None:
    """Whoever handled a signal before handles it again afterwards, also where a library interfered in between."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopRequest(lambda _line: None, "logs") as stop:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stop.install()

    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_stop_request_when_a_second_signal_comes_then_process_ends_at_once() -> None:
    """Who asks twice does not wait: exit code 1."""
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for said in ("ready\n", "asked\n"):
            assert process.stdout.readline() == said
            process.send_signal(signal.SIGTERM)

        assert process.wait(30) == 1
