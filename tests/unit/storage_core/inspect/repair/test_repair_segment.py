from pathlib import Path

import numpy as np
import pytest

from sparklog.storage_core.inspect.repair.plan import HeaderPatch, SegmentRewrite
from sparklog.storage_core.inspect.repair.repair_segment import SegmentRepairer
from sparklog.storage_core.record.batch_decode import decode_batches
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from sparklog.storage_core.record.v2.batch_header import HEADER_BYTES, unpack_header
from sparklog.storage_core.record.v2.empty_batch import pack_empty_batch
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.written_log import Batch, WrittenLog, write_log


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """One segment of six batches of two records."""
    return write_log(tmp_path / "t-0", [[Batch([1000 + b, 900]) for b in range(6)]], start_offset=50)


def _repairer(log: WrittenLog) -> SegmentRepairer:
    return SegmentRepairer(directory=log.directory, index_interval_bytes=200, leader_epoch=4, owner=UNSHARED)


def test_pack_empty_batch_when_scanned_then_a_sound_batch_without_records() -> None:
    """An empty batch is a header with a right CRC that spans its offsets."""
    data = pack_empty_batch(7, 19, 3)
    scan, header = scan_batches(data), unpack_header(data)

    assert (len(data), len(scan), len(check_crcs(data, scan))) == (HEADER_BYTES, 1, 0)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (7, 19, 3)
    assert (header.records_count, header.max_timestamp, header.producer_id) == (0, -1, -1)
    assert decode_batches(data).num_rows == 0


def test_segment_repairer_when_bytes_are_left_out_then_the_rest_is_as_it_was(log: WrittenLog) -> None:
    """Batches that stay keep their bytes; a patched one keeps all but the field; the fill comes last."""
    path, start, size, _, _ = log.batches[1]
    before = path.read_bytes()
    third = log.batches[3][1]
    plan = SegmentRewrite(
        base_offset=50,
        used_bytes=len(before),
        left_out=((start, start + size),),
        patches=(HeaderPatch("leader_epoch", third, third + 1, 9), HeaderPatch("base_offset", third, third + 1, 1234)),
        fill=(62, 70),
    )

    written = _repairer(log).rewrite(plan, ())

    data = path.read_bytes()
    scan = scan_batches(data)
    assert written == len(data) == len(before) - size + HEADER_BYTES
    assert data[:start] == before[:start]
    assert (scan.leader_epoch.tolist(), int(scan.base_offset[2])) == ([0, 0, 9, 0, 0, 0], 1234)
    assert (int(scan.base_offset[-1]), int(scan.last_offset[-1])) == (62, 70)
    assert len(check_crcs(data, scan)) == 0
    assert not list(log.directory.glob("*.cleaned"))


def test_segment_repairer_when_it_rebuilds_then_indexes_as_they_were_written(log: WrittenLog) -> None:
    """Indexes are built from the batches, and the segment keeps its time of change."""
    path = log.batches[0][0]
    index, times = path.with_suffix(".index"), path.with_suffix(".timeindex")
    before, status = (index.read_bytes(), times.read_bytes()), path.stat()
    index.unlink()
    times.write_bytes(b"wrong")

    _repairer(log).rebuild(50, status.st_size, ())

    assert index.read_bytes() == before[0]
    assert times.read_bytes()[: len(before[1])] == before[1]
    assert path.stat().st_mtime_ns == status.st_mtime_ns


def test_segment_repairer_when_the_segment_is_gone_then_only_the_fill(log: WrittenLog) -> None:
    """A lost segment comes back as the empty batch that holds the log's end."""
    path = log.batches[0][0]
    path.unlink()

    _repairer(log).rewrite(SegmentRewrite(base_offset=50, used_bytes=0, fill=(50, 61)), ())

    scan = scan_batches(path.read_bytes())
    assert np.array_equal(scan.last_offset, [61])
    assert path.with_suffix(".index").read_bytes() == b""
