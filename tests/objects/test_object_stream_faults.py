"""A Spark stream into S3: workers die, then all of it at random moments, while requests and answers get lost.

`SPARKLOG_SOAK=1` asks for 25 streams.
"""

import contextlib
import os
import random
import signal
import time
import uuid
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.kill.harness import SparkJob, fork_server
from tests.kill.object_job import put_place
from tests.kill.records import read_input, record_problems, write_input
from tests.kill.session_processes import processes_of
from tests.objects.checked_objects import sweep_objects
from tests.objects.faulty_proxy import faulty_proxy
from tests.objects.gateway import Gateway
from tests.seeds import take_seed
from tests.sparklog_command import Sparklog

pytestmark = [pytest.mark.kill, pytest.mark.spark]

_ROUNDS = 25 if os.environ.get("SPARKLOG_SOAK") else 1
_KILLS = 2
_STREAM_S = 6.0
_FAULTS = 0.02
_TRIES = 10


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """Processes that start with everything imported."""
    return fork_server()


def _start(folder: Path) -> SparkJob:
    return SparkJob(folder, module="tests.objects.spark_object_job")


def _kill_workers(job: SparkJob, chance: random.Random) -> None:
    """Kill a Python worker with a task from time to time, for as long as a stream takes."""
    until = time.monotonic() + 2 * _STREAM_S
    while time.monotonic() < until and not job.has_ended:
        time.sleep(chance.uniform(0.2, 2.0))
        found = processes_of(job.pid)
        workers = [each for each in found.values() if each.is_worker(found)]
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(workers).pid, signal.SIGKILL)


@pytest.mark.parametrize("number", range(_ROUNDS))
def test_stream_when_workers_and_drivers_die_and_answers_get_lost_then_each_row_is_there_once(
    context: ForkServerContext,
    gateway: Gateway,
    tmp_path: Path,
    sparklog: Sparklog,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """A task that is tried again writes another object; the one of the dead worker is swept."""
    chance, store = random.Random(take_seed(number)), tmp_path / "store"
    write_input(tmp_path / "input")
    address, port = f"{gateway.address}/{uuid.uuid4().hex}", int(gateway.options["aws_endpoint_url"].rpartition(":")[2])
    with faulty_proxy(port, chance.getrandbits(32), _FAULTS) as before:
        put_place(store, address, {**gateway.options, "aws_endpoint_url": f"http://127.0.0.1:{before}"}, 0)
        for _ in range(_KILLS):
            job = _start(tmp_path)
            if chance.random() < 0.5:
                _kill_workers(job, chance)
            job.kill_after(chance.uniform(0, _STREAM_S))
        codes: list[int] = []
        while 0 not in codes:
            assert len(codes) < _TRIES, (tmp_path / "error.txt").read_text()
            codes.append(_start(tmp_path).finish())
    put_place(store, address, gateway.options, 0)
    sweep_objects(context, store)
    for name, value in gateway.options.items():
        monkeypatch.setenv(name.upper(), value)

    ran = sparklog("import", address, store, "--execute")

    assert ran.code == 0, ran.err
    assert record_problems(store, [row for row in read_input(tmp_path / "input") if row["topic"] is not None]) == []
