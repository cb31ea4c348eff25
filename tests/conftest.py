"""What tests of several folders share."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.class_archives import SPARK_OPTIONS
from tests.seeds import IS_RANDOM
from tests.sparklog_command import Ran, Sparklog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No deadline: a busy machine is not a bug.
settings.register_profile(
    "sparklog", deadline=None, derandomize=not IS_RANDOM, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("sparklog")

os.environ.setdefault("SPARK_SUBMIT_OPTS", SPARK_OPTIONS)  # the programs that tests start inherit it


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """One small local Spark for the whole run, quick to start and quiet."""
    from sparklog.pipeline.reader.data_source import register
    from sparklog.pipeline.spark.session import build_session

    folder = tmp_path_factory.mktemp("spark")
    session = build_session(
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
        }
    )
    register(session)
    yield session
    session.stop()


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: for tests of what files hold, not of what a power cut leaves of them."""
    memory = Path("/dev/shm")
    root = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(prefix="sparklog-test-", dir=root) as folder:
        yield Path(folder)


@pytest.fixture
def sparklog(capfd: pytest.CaptureFixture[str]) -> Sparklog:
    """Run the command in this process."""
    from sparklog.pipeline.command.cli import main

    def sparklog(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments])
        captured = capfd.readouterr()
        return Ran(int(str(ended.value.code)), captured.out, captured.err)

    return sparklog
