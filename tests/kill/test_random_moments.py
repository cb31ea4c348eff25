"""Killed at random moments, without Spark: many kills in little time."""

import os
import random
import shutil
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.kill.harness import exit_code, finish_direct, start_direct
from tests.kill.records import problems_of, read_input, write_input
from tests.seeds import take_seed

pytestmark = pytest.mark.kill

_ROUNDS = 4 * int(os.environ.get("SPARKLOG_KILL_ROUNDS") or 3)
_JOB_S = 0.6


def test_job_when_killed_at_random_moments_then_completes_the_log(context: ForkServerContext, folder: Path) -> None:
    """Killed at any moment, and again while it recovers, the job ends with exactly its input in the log."""
    seed = take_seed()
    moments = random.Random(seed)
    shutil.rmtree(folder / "input")
    write_input(folder / "input", files=40, rows=80)
    for _ in range(_ROUNDS):
        job = start_direct(context, folder)
        time.sleep(moments.uniform(0, _JOB_S))
        job.kill()
        assert exit_code(job) in (0, -9), f"seed={seed} {(folder / 'error.txt').read_text()}"

    assert finish_direct(context, folder) == 0, f"seed={seed}"

    assert problems_of(folder / "store", read_input(folder / "input")) == [], f"seed={seed}"
