"""Modules that run in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "run_module"]

ROOT = Path(__file__).resolve().parents[2]


def run_module(
    module: str, *arguments: object, folder: Path = ROOT, timeout_s: float = 600
) -> "subprocess.CompletedProcess[str]":
    """Run `python -m <module>` in a folder, usually the project's root; return how it ended and what it printed."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
