"""How much memory operations take at their peak, each in a process of its own that has warmed up before."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["peak_bytes"]

_CHILD = """
import json, os, sys
from pathlib import Path
from tests.build.tiny_records import CLEANINGS, OPERATIONS

operations = {**OPERATIONS, **CLEANINGS}

small, large = map(Path, sys.argv[1:3])

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))

for name in sys.argv[3:]:
    if not (child := os.fork()):  # what is imported is shared; what an operation keeps is not
        operations[name](small)
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = status("VmRSS")
        operations[name](large)
        print(json.dumps([name, status("VmHWM") - before]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def peak_bytes(operations: Sequence[str], small: Path, large: Path) -> dict[str, int]:
    """Return by how much each operation lets a process grow; one that fails is left out.

    Args:
        operations: names in `tests.build.tiny_records`.
        small: log directory to warm up with.
        large: log directory to measure with.
    """
    command = [sys.executable, "-c", _CHILD, str(small), str(large), *operations]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(line) for line in ran.stdout.splitlines())
