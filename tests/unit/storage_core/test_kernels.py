"""Kernels: a cached one is never older than what is compiled into it."""

import os
import subprocess
import sys
from pathlib import Path

_SHARED = """
from sparklog.storage_core.record.kernel_memory import inlined

@inlined
def answer() -> int:
    return {answer}
"""
_BETWEEN = """
from kernel_case.shared import answer
from sparklog.storage_core.record.kernel_memory import inlined

@inlined
def twice() -> int:
    return 2 * answer()
"""
_KERNEL = """
from kernel_case.between import twice
from sparklog.storage_core.kernels import kernel

@kernel("int64()")
def ask() -> int:
    return twice()
"""
_ASK = "from kernel_case.asking import ask; print(ask(), len(ask.stats.cache_hits), ask.__name__)"


def test_kernel_when_another_file_changes_that_is_compiled_into_it_then_it_is_compiled_anew(tmp_path: Path) -> None:
    """Also one that it knows through a third; unchanged, it is loaded."""
    package = tmp_path / "kernel_case"
    package.mkdir()
    for name, text in {"__init__": "", "between": _BETWEEN, "asking": _KERNEL}.items():
        (package / f"{name}.py").write_text(text)

    answers = [_ask(package, answer) for answer in (21, 21, 22)]

    assert answers == ["42 0 ask", "42 1 ask", "44 0 ask"]


def _ask(package: Path, answer: int) -> str:
    (package / "shared.py").write_text(_SHARED.format(answer=answer))
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{package.parent}{os.pathsep}{root}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _ASK], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()
