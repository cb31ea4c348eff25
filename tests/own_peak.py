"""How much memory a call takes at its peak, in a process of its own that has warmed up before."""

import subprocess
import sys
from pathlib import Path

__all__ = ["peak_bytes"]

_CHILD = """
import sys
from pathlib import Path
from tests.tiny_records import OPERATIONS

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name + ":"))

operation, small, large = OPERATIONS[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3])
operation(small)
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
before = status("VmRSS")
operation(large)
print(status("VmHWM") - before)
"""


def peak_bytes(operation: str, small: Path, large: Path) -> int:
    """Return by how much one of `tests.tiny_records.OPERATIONS` lets a process grow.

    Args:
        operation: its name.
        small: log directory that it warms up with.
        large: log directory that is measured.
    """
    command = [sys.executable, "-c", _CHILD, operation, str(small), str(large)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(ran.stdout.splitlines()[-1])
