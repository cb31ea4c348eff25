"""The power goes under `sparklog stream`: Spark's own checkpoint and the store still go together."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.harness import SparkJob
from tests.kill.loop_disk import FILESYSTEMS, LoopDisk
from tests.kill.power_job import IS_LONG, mounted
from tests.kill.records import FILES_PER_MICRO_BATCH, SPARK_SCHEMA, TOPICS, problems_of, read_input, write_input

pytestmark = [pytest.mark.kill, pytest.mark.spark]

_MODULE = "tests.kill.stream_job"
_CASES = [("ext4", "commit.synced:3")]
_MORE = [
    (filesystem, step)
    for filesystem in FILESYSTEMS
    for step in ("commit.synced:2", "commit.synced:3", "clean.staging:2", "place.synced:2", "commit.written:3")
]


@pytest.fixture
def disk(request: pytest.FixtureRequest, memory_path: Path) -> Iterator[LoopDisk]:
    """A disk with the stream's input and settings."""
    disk = mounted(memory_path, request.param)
    write_input(disk.folder / "input", rows=60)
    settings = {
        "store": str(disk.folder / "store"),
        "checkpoint": str(disk.folder / "checkpoint"),
        "source": {
            "format": "parquet",
            "path": str(disk.folder / "input"),
            "schema": SPARK_SCHEMA,
            "options": {"maxFilesPerTrigger": FILES_PER_MICRO_BATCH},
        },
        "records": {
            "topic": "topic",
            "key": "key",
            "value": "value",
            "timestamp": "timestamp",
            "on_invalid": "quarantine",
        },
        "trigger": {"available_now": True},
        "topics": TOPICS,
        "spark": {"spark.master": "local[2]", "spark.driver.memory": "600m"},
    }
    (disk.folder / "settings.yaml").write_text(json.dumps(settings))
    disk.settle()
    yield disk
    disk.remove()


@pytest.mark.parametrize(("disk", "step"), _MORE if IS_LONG else _CASES, indirect=["disk"])
def test_stream_when_the_power_goes_then_its_next_run_brings_each_row_once(
    disk: LoopDisk, tmp_path: Path, step: str
) -> None:
    """What Spark planned is on the disk before it is committed; so new files do not slip into an old micro-batch."""
    settings = str(disk.folder / "settings.yaml")
    environment = {"SPARKLOG_FAULT_POINT": step, "SPARKLOG_FAULT_SIGNAL": "STOP"}
    job = SparkJob(tmp_path, settings, module=_MODULE, **environment)
    try:
        job.wait_until_stopped()
        disk.cut_power()
    finally:
        job.kill()
    disk.plug_in()
    write_input(disk.folder / "more", files=3, rows=60, name="more")
    for path in sorted((disk.folder / "more").iterdir()):
        path.rename(disk.folder / "input" / f"more-{path.name}")

    again = SparkJob(tmp_path, settings, module=_MODULE)

    assert again.finish() == 0, (tmp_path / "job.log").read_text()
    assert problems_of(disk.folder / "store", read_input(disk.folder / "input")) == []
