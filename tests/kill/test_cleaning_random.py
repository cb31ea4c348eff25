"""A store is written, cleaned in rounds of one small map, and read, without Spark; any of these is killed at random.

Many kills in little time. The maintenance job itself is killed by `test_maintenance_random.py`.
`SPARKLOG_KILL_ROUNDS=<n>` asks for n kills.
"""

import os
import random
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import pytest

from sparklog.sink.erasure.request_files import read_requests
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.topic_partition import TopicPartition
from tests.kill.harness import exit_code
from tests.kill.lively_roles import ROLES, clean_once, error_of, start, wait_until_written
from tests.kill.lively_store import FORGOTTEN_UNTIL, forgotten_records, problems_of_records
from tests.seeds import take_seed
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.kill

_ROUNDS = 100 if os.environ.get("SPARKLOG_SOAK") else int(os.environ.get("SPARKLOG_KILL_ROUNDS") or 10)
_LONGEST_S = 1.5


def test_store_when_writer_cleaner_and_reader_are_killed_at_random_then_no_key_is_lost_nor_resurrected(
    context: ForkServerContext, memory_path: Path, sparklog: Sparklog
) -> None:
    """All the time and at the end: every live key has its last value, no older one is the last, logs are sound."""
    seed = take_seed()
    choose, store = random.Random(seed), memory_path / "store"
    writer = start(context, store, "writer")
    jobs = {"writer": writer}
    try:
        wait_until_written(store, FORGOTTEN_UNTIL, writer.is_alive)
        jobs |= {role: start(context, store, role) for role in ROLES if role != "writer"}
        for number in range(_ROUNDS):
            time.sleep(choose.uniform(0, _LONGEST_S))
            role = choose.choice(sorted(ROLES))
            assert _end(jobs.pop(role)) == -9, f"{seed=} {number=} {role}: {error_of(store, role)}"
            jobs[role] = start(context, store, role)
    finally:
        codes = {role: _end(job) for role, job in jobs.items()}
    assert set(codes.values()) == {-9}, f"{seed=} {codes} {[error_of(store, role) for role in ROLES]}"

    checkpoints: dict[TopicPartition, int] = {}
    before: dict[TopicPartition, int] | None = None
    while before != checkpoints:  # what is more than a map takes is cleaned in several rounds
        before = dict(checkpoints)
        clean_once(store, checkpoints)
    assert problems_of_records(store) == [], f"{seed=}"
    assert forgotten_records(store) == [], f"{seed=}"
    requests = read_requests(Store.find(store))
    assert [request.completed_ms is not None for request in requests] == [True, True], f"{seed=}"
    ran = sparklog("verify", store)
    assert ran.code == 0, f"{seed=} {ran.out}"


def _end(job: ForkServerProcess) -> int:
    job.kill()
    return exit_code(job)
