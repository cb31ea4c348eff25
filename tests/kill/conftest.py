"""Where killed jobs run, and what starts them."""

import os
import tempfile
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.kill.harness import fork_server
from tests.kill.records import write_input


@pytest.fixture(scope="session")
def context() -> ForkServerContext:
    """Starts jobs without Spark."""
    return fork_server()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a job, with its input; in memory where possible: a kill takes nothing from the page cache."""
    memory = Path("/dev/shm")
    root = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(prefix="sparklog-kill-", dir=root) as path:
        write_input(Path(path) / "input")
        yield Path(path)
