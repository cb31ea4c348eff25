"""Leases of a run whose Spark is busy."""

import json
from pathlib import Path

import pytest

from tests.delta_jars import jars_fixture
from tests.programs.own_process import run_module

pytestmark = pytest.mark.spark

jars = jars_fixture("LEASES BESIDE A BUSY SPARK WERE NOT TESTED")


def test_leases_when_spark_is_busy_then_they_stay_and_no_change_of_the_table_is_lost(tmp_path: Path) -> None:
    """No slot is needed to prolong them; who loses a race for the table is told, and can try again."""
    done = run_module("tests.programs.leases_on_spark", tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])

    assert seen["left_ms"] > 0
    assert not seen["is_fenced"]
    assert seen["updated"] == seen["updates_found"] > 0
    assert seen["merged"] == seen["merges_found"] > 0
    assert seen["races_lost"] > 0, "nobody lost a race: the test shows nothing"
