"""Compiling takes a minute: whoever waits is told, and nobody else."""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_MODULE = """
from sparklog.storage_core.kernels import kernel

@kernel("int64(int64)")
def twice(number):
    return 2 * number

@kernel("int64(int64)")
def thrice(number):
    return 3 * number
"""
_SCRIPT = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
from some_kernels import twice
print(twice(21))
"""


def test_kernels_when_compiled_then_said_once_and_when_cached_not_at_all(tmp_path: Path) -> None:
    """The first process compiles two kernels and says so once; the second loads them."""
    (tmp_path / "some_kernels.py").write_text(_MODULE)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{_ROOT}", "NUMBA_CACHE_DIR": str(tmp_path / "c")}

    runs = [
        subprocess.run(
            [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        for _ in range(2)
    ]

    assert [each.stdout for each in runs] == ["42\n", "42\n"]
    assert runs[0].stderr.count("compiling kernels") == 1
    assert runs[1].stderr == ""
