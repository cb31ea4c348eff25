"""A stream writes, maintenance runs in a loop with everything due, a reader reads, and any of them is killed.

`SPARKLOG_KILL_ROUNDS=<n>` asks for n kills.
"""

import os
import random
import secrets
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

from sink.forgotten_keys import read_requests
from sink.store import Store
from tests.kill.harness import exit_code
from tests.kill.maintenance_job import (
    FORGOTTEN,
    FORGOTTEN_UNTIL,
    PARTITIONS,
    ROLES,
    live,
    maintain_once,
    read_log,
    start,
)
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.kill

_ROUNDS = 100 if os.environ.get("SPARKLOG_SOAK") else int(os.environ.get("SPARKLOG_KILL_ROUNDS") or 10)
_LONGEST_S = 1.5


def test_store_when_writer_maintenance_and_reader_are_killed_at_random_then_no_key_is_lost_nor_resurrected(
    context: ForkServerContext, memory_path: Path, sparklog: Sparklog
) -> None:
    """Behind each kill and at the end: every live key has its last value, no older one is the last, logs are sound."""
    seed = int(os.environ.get("SPARKLOG_SEED") or secrets.randbits(32))
    print(f"SPARKLOG_SEED={seed} rounds={_ROUNDS}")
    choose, store = random.Random(seed), memory_path / "store"
    jobs = {"writer": start(context, store, "writer")}
    try:
        _wait_for_records(store, jobs["writer"])
        jobs |= {role: start(context, store, role) for role in ROLES if role != "writer"}
        for number in range(_ROUNDS):
            time.sleep(choose.uniform(0, _LONGEST_S))
            role = choose.choice(sorted(ROLES))
            assert _end(jobs.pop(role)) == -9, f"{seed=} {number=} {role}: {_error(memory_path, role)}"
            jobs[role] = start(context, store, role)
    finally:
        codes = {role: _end(job) for role, job in jobs.items()}
    assert set(codes.values()) == {-9}, f"{seed=} {codes} {[_error(memory_path, role) for role in ROLES]}"

    for _ in range(2):  # the first one sets deadlines of tombstones, and may find a forgotten key's segment active
        maintain_once(store)
    for partition in range(PARTITIONS):
        end, read = read_log(store, partition)
        wanted = {key: value for key, value in live(partition, end).items() if value is not None and key != FORGOTTEN}
        latest = dict(read.values())
        assert {key: latest.get(key) for key in wanted} == wanted, f"{seed=} {partition=}"
        assert all(latest[key] is None for key in latest.keys() - wanted.keys()), f"{seed=} {partition=}"
        assert FORGOTTEN not in latest, f"{seed=} {partition=}"
    requests = read_requests(Store.find(store))
    assert [request.completed_ms is not None for request in requests] == [True], f"{seed=}"
    ran = sparklog("verify", store)
    assert ran.code == 0, f"{seed=} {ran.out}"


def _wait_for_records(store: Path, writer: ForkServerProcess) -> None:
    deadline = time.monotonic() + 120
    while (
        not (store / "control" / "topic-configs.json").exists() or read_log(store, 0)[0] * PARTITIONS <= FORGOTTEN_UNTIL
    ):
        assert writer.is_alive(), _error(store.parent, "writer")
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _end(job: ForkServerProcess) -> int:
    job.kill()
    return exit_code(job)


def _error(folder: Path, role: str) -> str:
    path = folder / f"{role}-error.txt"
    return path.read_text() if path.exists() else ""
