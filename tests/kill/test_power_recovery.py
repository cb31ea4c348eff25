"""A disk that fails under a recovery: it is an error that can be told, though the segment is mapped."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.recover_segment import scan_segment
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.storage.mapped_bytes import map_bytes
from tests.build.batch_bytes import BatchSpec, segment_bytes
from tests.kill.loop_disk import FILESYSTEMS, LoopDisk
from tests.kill.power_job import mounted

pytestmark = pytest.mark.kill

_BATCHES = 200


@pytest.fixture
def disk(request: pytest.FixtureRequest, memory_path: Path) -> Iterator[LoopDisk]:
    """An empty disk of the file system asked for."""
    disk = mounted(memory_path, request.param)
    yield disk
    disk.plug_in()
    disk.remove()


@pytest.mark.parametrize("disk", FILESYSTEMS, indirect=True)
def test_scan_segment_when_the_disk_fails_then_says_so(disk: LoopDisk) -> None:
    """Pages that can't be read any more end neither the process nor the log."""
    files = SegmentFiles(0, disk.folder / segment_file_name(0, LOG))
    files.log_path.write_bytes(segment_bytes([BatchSpec(body=bytes(16_000))] * _BATCHES, 0))
    disk.settle()
    disk.plug_in()  # nothing of it is in memory now
    descriptor = os.open(files.log_path, os.O_RDONLY)
    try:
        assert map_bytes(descriptor, 0, 1 << 20) is not None
        disk.cut_power()

        assert map_bytes(descriptor, 2 << 20, 1 << 20) is None
        with pytest.raises(StorageError):
            scan_segment(files, 4096, ProducerStates())
    finally:
        os.close(descriptor)

    disk.plug_in()
    assert scan_segment(files, 4096, ProducerStates()).batch_count == _BATCHES
