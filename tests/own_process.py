"""Modules that run in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["run_module"]

_ROOT = Path(__file__).resolve().parents[1]


def run_module(module: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run `python -m <module>` from the project's root; return how it ended and what it printed."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
