"""The same with a real Spark stream: driver, JVM and workers die at once, at named steps and at random moments.

`SPARKLOG_KILL_ROUNDS=<n>` asks for the long form: every named step, and n random moments.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from sparklog.storage_core.fault_points import FAULT_POINTS
from tests.build.sink_store import contents
from tests.kill.harness import SparkJob
from tests.kill.records import problems_of, read_input, write_input
from tests.seeds import take_seed

pytestmark = [pytest.mark.kill, pytest.mark.spark]

_ROUNDS = os.environ.get("SPARKLOG_KILL_ROUNDS")
_SHORT = [("stage.written:2", "commit.written:2")]
_LONG = [*((point,) for point in FAULT_POINTS if not point.startswith("undo.")), *_SHORT]
_STREAM_S = 6.0


def _assert_complete(folder: Path) -> None:
    assert problems_of(folder / "store", read_input(folder / "input")) == [], f"see {folder}"


@pytest.mark.parametrize("steps", _LONG if _ROUNDS else _SHORT, ids="+".join)
def test_stream_when_killed_at_a_step_then_its_next_run_completes_the_log(
    tmp_path: Path, steps: tuple[str, ...]
) -> None:
    """Spark's checkpoint and the ledger agree again after a restart, whichever of them was ahead."""
    write_input(tmp_path / "input")

    for step in steps:
        assert SparkJob(tmp_path, SPARKLOG_FAULT_POINT=step).finish() == -9

    assert SparkJob(tmp_path).finish() == 0, (tmp_path / "error.txt").read_text()
    _assert_complete(tmp_path)


@pytest.mark.skipif(_ROUNDS is None, reason="long form: set SPARKLOG_KILL_ROUNDS; test_fencing does it without Spark")
def test_stream_when_stopped_and_replaced_by_force_then_ends_without_harm(tmp_path: Path) -> None:
    """Two streams of one checkpoint and one store: the one that wakes up says why it ends, and changes no log."""
    write_input(tmp_path / "input")
    old = SparkJob(tmp_path, SPARKLOG_FAULT_POINT="place.synced:2", SPARKLOG_FAULT_SIGNAL="STOP")
    try:
        old.wait_until_stopped()
        assert SparkJob(tmp_path, "--force").finish() == 0, (tmp_path / "error.txt").read_text()
        before = contents(tmp_path / "store" / "logs")
        old.wake()
    finally:
        code = old.finish()

    assert code == 1
    assert (tmp_path / "error.txt").read_text().startswith("WriterFencedError: another writer")
    assert contents(tmp_path / "store" / "logs") == before
    _assert_complete(tmp_path)


def test_stream_when_killed_at_random_moments_then_completes_the_log(tmp_path: Path) -> None:
    """Killed at any moment, and again while it recovers, the stream ends with exactly its input in the log."""
    rounds = int(_ROUNDS or 2)
    seed = take_seed()
    moments = random.Random(seed)
    killed = 0
    for number in range(rounds):
        folder = tmp_path / f"from-{number - killed}"
        if not folder.exists():
            write_input(folder / "input")
        code = SparkJob(folder).kill_after(moments.uniform(0, _STREAM_S))
        assert code in (0, -9), f"seed={seed} {(folder / 'error.txt').read_text()}"
        killed += code == -9
        if code == 0 or killed % 5 == 4 or number == rounds - 1:
            assert SparkJob(folder).finish() == 0, f"seed={seed} {(folder / 'error.txt').read_text()}"
            _assert_complete(folder)
            shutil.rmtree(folder)
