"""`sparklog maintain --execute` with Spark and Delta, in processes of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.pipeline.control.read_tables import read_rows
from sparklog.pipeline.control.schemas import RUNS
from tests.build.maintained_store import PARTITIONS, TOPIC, live_values, write_keys
from tests.delta_jars import jars_fixture

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).resolve().parents[2]


jars = jars_fixture("MAINTENANCE WITH CONTROL TABLES WAS NOT TESTED")


def _sparklog(*arguments: object) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "sparklog", *map(str, arguments)]
    ran = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=600, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def test_maintain_when_logs_are_dirty_and_keys_forgotten_then_one_run_does_both_and_tells_it(tmp_path: Path) -> None:
    """What is left is the last value of every key that is not forgotten; the tables and `forget --verify` say so."""
    store = write_keys(tmp_path / "store")
    live = live_values(store)
    del live[f"{TOPIC}-1"][b"k1-3"]
    keys = tmp_path / "keys.txt"
    keys.write_text("k1-3\n")
    assert _sparklog("forget", store, TOPIC, "--keys", keys)[0] == 0

    code, said, errors = _sparklog("maintain", store, "--execute", "--json")

    assert code == 0, errors
    told = json.loads(said)
    assert {(each["topic"], each["outcome"]) for each in told["results"]} == {(TOPIC, "done")}
    assert len(told["results"]) == PARTITIONS
    assert told["forgotten"]["none_left"]
    (request,) = told["forgotten"]["requests"]
    assert sum(each["records"] for each in request["erased"]) == request["records_found"] > 0
    assert sum(sum(each["erased"].values()) for each in told["results"]) == request["records_found"]
    assert live_values(store) == live
    assert _sparklog("forget", store, "--verify")[0] == 0
    assert _sparklog("verify", store)[0] == 0


def test_maintain_when_a_plan_is_given_then_that_and_nothing_else(tmp_path: Path) -> None:
    """A log that the plan does not have is left as it is, and told in the run's table."""
    store, file = write_keys(tmp_path / "store"), tmp_path / "plan.json"
    planned = json.loads(_sparklog("maintain", store, "--json")[1])
    planned["tasks"] = [each for each in planned["tasks"] if each["partition"] != 1]
    file.write_text(json.dumps(planned))

    code, said, errors = _sparklog("maintain", store, "--execute", "--plan", file)

    assert code == 0, errors
    assert f"{TOPIC}-1 compact skip: is due only now" in said
    assert f"{TOPIC}-0 compact done" in said
    told = {row["partition"]: (row["decision"], row["outcome"]) for row in read_rows(store, RUNS)}
    assert told == {
        None: ("do", "done"),
        0: ("do", "done"),
        1: ("skip", "skipped"),
        2: ("do", "done"),
        3: ("do", "done"),
    }
