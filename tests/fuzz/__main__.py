"""`python -m tests.fuzz [--cases N] [--seed SEED] [--jobs N] [--seconds S] [--only NUMBER]`.

Cases run in child processes under a limit on their address space. A child that ends by a signal, or stays with one case
for too long, is a broken law like any other; the number of its case is known.
"""

import argparse
import mmap
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.worker import MEMORY_BUDGET_MB, run_case, work

__all__ = ["main"]

_HANG_S = 60
_SAY_EVERY_S = 60
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True)
class _Child:
    """A child process, and the memory in which it says how far it is."""

    process: subprocess.Popen[bytes]
    progress: mmap.mmap
    case: int = -1
    since: float = 0.0
    verdict: str = ""

    def numbers(self) -> tuple[int, int]:
        """Return the case it is at, and how many it has done."""
        return int.from_bytes(self.progress[:8], "little"), int.from_bytes(self.progress[8:16], "little")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases; return 0 where every law holds, 1 where one is broken."""
    options = _parse(arguments)
    if options.only is not None:
        return _run_one(options.seed, options.only)
    if options.child is not None:
        first, step, path = options.child
        return work(options.seed, range(int(first), options.cases, int(step)), Path(path), options.seconds)
    print(f"fuzz: seed={options.seed} cases={options.cases} jobs={options.jobs}", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        children = [_start(options, number, Path(folder) / str(number)) for number in range(options.jobs)]
        try:
            _watch(children)
        finally:
            for child in children:
                child.process.kill()
                child.process.wait()
    done = sum(child.numbers()[1] for child in children)
    seconds = time.monotonic() - started
    for child in children:
        if child.verdict:
            print(f"LAW BROKEN seed={options.seed} case={child.numbers()[0]}: {child.verdict}")
    is_sound = all(child.process.returncode == 0 for child in children)
    print(
        f"fuzz: {done:,} cases in {seconds:.0f} s, {done / seconds:.0f} cases/s, memory at most {MEMORY_BUDGET_MB} MB:"
        f" {'every law holds' if is_sound else 'LAWS BROKEN'}"
    )
    return 0 if is_sound else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="a random one, printed, if not given")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop after so long, whatever was asked for"
    )
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one case, in this process")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _run_one(seed: int, case: int) -> int:
    try:
        print(f"case={case} target={run_case(seed, case)}: the laws hold")
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _start(options: argparse.Namespace, number: int, path: Path) -> _Child:
    path.write_bytes(bytes(16))
    command = [sys.executable, "-m", "tests.fuzz", "--cases", str(options.cases), "--seed", str(options.seed)]
    command += ["--seconds", str(options.seconds), "--child", str(number), str(options.jobs), str(path)]
    with path.open("r+b") as file:
        progress = mmap.mmap(file.fileno(), 16)
    return _Child(subprocess.Popen(command, cwd=_ROOT), progress, since=time.monotonic())


def _watch(children: Sequence[_Child]) -> None:
    """Wait for all children, and say how far they are; end those that hang."""
    said = time.monotonic()
    while running := [child for child in children if child.process.poll() is None]:
        time.sleep(0.2)
        if time.monotonic() - said > _SAY_EVERY_S:
            said = time.monotonic()
            print(f"fuzz: {sum(child.numbers()[1] for child in children):,} cases so far", flush=True)
        for child in running:
            case = child.numbers()[0]
            if case != child.case:
                child.case, child.since = case, time.monotonic()
            elif time.monotonic() - child.since > _HANG_S:
                child.verdict = f"it did not end within {_HANG_S} s"
                child.process.kill()
    for child in children:
        code = child.process.returncode
        if code < 0 and not child.verdict:
            child.verdict = f"the process ended by {signal.Signals(-code).name}"


if __name__ == "__main__":
    sys.exit(main())
