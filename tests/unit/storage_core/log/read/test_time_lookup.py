import struct
from pathlib import Path

import crc32c
import pytest

from sparklog.storage_core.log.read.log_reader import LogReader
from sparklog.storage_core.log_config import INT64_MAX
from tests.build.written_log import Batch, write_log


def test_offset_of_max_timestamp_when_a_header_claims_more_than_its_records_then_the_search_ends(
    tmp_path: Path,
) -> None:
    """A largest timestamp above -1 over records below it is looked at once; none of them has a time."""
    log = write_log(tmp_path / "t-0", [[Batch([-5, -7])]])
    path = next(log.directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, 35, 7)
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    path.write_bytes(data)
    for index in log.directory.glob("*.timeindex"):
        index.unlink()

    assert LogReader(log.directory).offset_of_max_timestamp() is None


@pytest.mark.parametrize("timestamp", [-INT64_MAX - 1, -INT64_MAX - 100])
def test_offset_for_time_when_the_time_is_the_smallest_number_and_no_record_counts_then_none(
    tmp_path: Path, timestamp: int
) -> None:
    """What is noted of a segment without a record in the range fits 64 bits, whatever time was asked for."""
    log = write_log(tmp_path / "t-0", [[Batch([5, 7])], []])

    assert LogReader(log.directory, log_start_offset=2, log_end_offset=2).offset_for_time(timestamp) is None
