"""A process whose runs go on after Spark has gone."""

import json
from typing import Any

import pytest

from tests.delta_jars import jars_fixture
from tests.programs.own_process import run_module

pytestmark = pytest.mark.spark

jars = jars_fixture("MAINTENANCE AFTER SPARK HAS GONE WAS NOT TESTED")


def _ask(whose: str) -> dict[str, Any]:
    done = run_module("tests.programs.lost_spark", whose)
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_lazy_session_when_its_jvm_was_killed_or_it_was_stopped_then_the_next_run_has_another_one() -> None:
    """One that has gone is not given again: `--every` would fail for ever."""
    assert _ask("ours") == {"first": 3, "second": 4, "third": 5, "is_new": True}


def test_lazy_session_when_the_platforms_jvm_was_killed_then_the_job_ends_and_says_so() -> None:
    """Only who started it can start another one."""
    assert _ask("platform") == {
        "first": 3,
        "error": "the Spark session of the platform is lost: start the job again",
    }
