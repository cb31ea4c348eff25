"""The short form of the fuzz test; `make fuzz` is the long one."""

import os
import subprocess
import sys
from pathlib import Path

from tests.fuzz.mutations import repair_crcs
from tests.fuzz.seeds import logs
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import run_case
from tests.seeds import take_seed

_ROOT = Path(__file__).resolve().parents[2]
_CASES = 5_000


def test_decoders_when_bytes_are_damaged_then_every_law_holds() -> None:
    """Some thousand cases of every target, in a process with little memory."""
    limits = ["--cases", str(_CASES), "--jobs", "1", "--seconds", "12", "--seed", str(take_seed())]
    command = [sys.executable, "-m", "tests.fuzz", *limits]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, env=os.environ)

    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]
    assert "every law holds" in run.stdout


def test_run_case_when_repeated_then_takes_the_same_target() -> None:
    """A case follows from seed and number alone."""
    names = [[run_case(5, case) for case in range(100)] for _ in range(2)]

    assert names[0] == names[1]
    assert set(names[0]) <= {target.__name__ for target, _ in TARGETS}


def test_repair_crcs_when_log_is_sound_then_changes_nothing() -> None:
    """What repairs CRCs knows all three formats."""
    for seed in logs():
        assert repair_crcs(seed.data) == seed.data


def test_seed_logs_when_counted_then_hold_every_format_and_codec() -> None:
    """Damage is only as good as what is damaged."""
    found = {(each.data[16], each.data[17 if each.data[16] < 2 else 22] & 7) for each in logs()}

    assert found >= {(magic, codec) for magic in (0, 1) for codec in range(4)} | {(2, codec) for codec in range(5)}
