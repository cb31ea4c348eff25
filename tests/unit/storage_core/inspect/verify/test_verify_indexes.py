from pathlib import Path

import pytest

from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.log_config import INT64_MAX
from tests.build.written_log import Batch, WrittenLog, write_log


@pytest.fixture
def latest(tmp_path: Path) -> WrittenLog:
    """Two segments whose first records have the largest timestamp there is."""
    segments = [[Batch([INT64_MAX, 5]), Batch([6, 7]), Batch([8, 9]), Batch([10])] for _ in range(2)]
    return write_log(tmp_path / "root" / "orders-0", segments, index_interval_bytes=100)


@pytest.mark.parametrize("with_ledger", [True, False])
def test_index_check_when_the_first_time_entry_is_the_largest_number_then_sound(
    latest: WrittenLog, with_ledger: bool
) -> None:
    """Entries are compared, not subtracted: the largest timestamp is one like any other."""
    report = verify_directory(latest.directory, latest.expected if with_ledger else None, deep=True)

    assert [str(each) for each in report.findings] == []


@pytest.mark.parametrize("change", [(-5, 0), (3, -1)])
def test_index_check_when_the_first_entry_is_below_what_it_may_be_then_said(
    latest: WrittenLog, change: tuple[int, int]
) -> None:
    """The first entry of a time index has a timestamp from 0 on, and an offset of its segment."""
    path = sorted(latest.directory.glob("*.timeindex"))[0]
    timestamp, offset = change
    path.write_bytes(timestamp.to_bytes(8, "big", signed=True) + offset.to_bytes(4, "big", signed=True))

    report = verify_directory(latest.directory)

    assert [(each.file, each.what) for each in report.findings] == [(path.name, "entry 0 does not increase")]
