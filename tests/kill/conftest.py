"""Where killed jobs run, and what starts them."""

from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.kill.harness import fork_server
from tests.kill.loop_disk import LoopDisk
from tests.kill.power_job import mounted
from tests.kill.records import write_input


@pytest.fixture(scope="session")
def context() -> ForkServerContext:
    """Starts jobs without Spark."""
    return fork_server()


@pytest.fixture
def folder(memory_path: Path) -> Path:
    """The folder of a job, with its input; in memory: a kill takes nothing from the page cache."""
    write_input(memory_path / "input")
    return memory_path


@pytest.fixture
def disk(request: pytest.FixtureRequest, memory_path: Path) -> Iterator[LoopDisk]:
    """An empty disk of the file system asked for, whose power can be cut."""
    disk = mounted(memory_path, request.param)
    yield disk
    disk.remove()
