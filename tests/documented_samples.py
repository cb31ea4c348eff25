"""Samples of a documentation page: what a command is shown to print, and what it prints."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Sample", "code_blocks", "printed", "samples"]

_ROOT = Path(__file__).resolve().parents[1]
_RATES = re.compile(r" in [\d.]+ s, [\d,]+ records/s, [\d.]+ MB/s")
"""What depends on the machine."""

_JVM_LINE = "WARNING: Using incubator modules: jdk.incubator.vector"


class Sample(NamedTuple):
    """A command line that starts with `sparklog`, and the lines below it."""

    command: str
    lines: list[str]


def code_blocks(page: Path) -> list[str]:
    """Return the blocks between fences of a page of Markdown."""
    return re.findall(r"^```[a-z]*\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def samples(page: Path) -> Iterator[Sample]:
    """Yield the samples of a page, in its order."""
    for block in code_blocks(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            yield Sample(command, _comparable(lines))


def printed(command: str, folder: Path) -> list[str]:
    """Run a command in a folder, by a shell; return the lines of stdout and stderr without what a machine makes."""
    scripts = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return _comparable(
        [line for line in done.stdout.splitlines() if line != _JVM_LINE and "compiling kernels" not in line]
    )


def _comparable(lines: list[str]) -> list[str]:
    return [_RATES.sub("", line).rstrip() for line in lines]
