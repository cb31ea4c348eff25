"""The power goes while logs are left to the page cache: what a flush policy lets it take, and how one goes on."""

from collections.abc import Mapping
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.pipeline.places.lost_view import lost_ranges
from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair, plan_repairs
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import UnflushedRecordsLostError
from tests.build.lost_offsets import lost_offsets
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, numbers, open_store, read_store, stored_numbers
from tests.kill.loop_disk import FILESYSTEMS, LoopDisk
from tests.kill.power_job import IS_LONG, append_numbers, cut_at, finish, recovery_points

pytestmark = pytest.mark.kill

_LOG = {"segment.bytes": 1 << 20, "batch.size": 200, "index.interval.bytes": 300}
_ROLLING = {**_LOG, "segment.bytes": 3_000}
_AGED: dict[str, dict[str, object]] = {"t": {**_LOG, "flush.ms": 60_000}}
_EACH = 40
_POLICIES: dict[str, dict[str, object]] = {
    "every commit": {},
    "messages": {"flush.messages": 100},
    "never": {"flush.messages": "never"},
    "long": {"flush.ms": 3_600_000},
}


_CASES = (
    # filesystem, policy, settings, offsets that may be above the recovery point after 280
    ("ext4", "messages", _LOG, 80),
    ("ext4", "never", _ROLLING, 279),
    ("xfs", "never", _LOG, 280),
    ("xfs", "every commit", _ROLLING, 0),
)
_MORE_CASES = (
    ("ext4", "every commit", _LOG, 0),
    ("ext4", "never", _LOG, 280),
    ("ext4", "long", _LOG, 280),
    ("ext4", "messages", _ROLLING, 80),
    ("xfs", "messages", _LOG, 80),
    ("xfs", "never", _ROLLING, 279),
    ("xfs", "long", _ROLLING, 279),
)


def _topics(policy: str, log: Mapping[str, object]) -> dict[str, dict[str, object]]:
    return {"t": {**log, **_POLICIES[policy]}}


def _open_or_repair(store: Path, topics: dict[str, dict[str, object]]) -> bool:
    """Open the store, or repair it where that is refused; return whether it was."""
    try:
        open_store(store, topics, topic="t").close()
        return False
    except UnflushedRecordsLostError:
        result = execute_repair(store, RepairOptions(jobs=1), SystemClock(), lambda _step: None)
    assert result.is_sound, result.left
    return True


@pytest.mark.parametrize(
    ("disk", "policy", "log", "most"), [*_CASES, *(_MORE_CASES if IS_LONG else ())], indirect=["disk"]
)
def test_power_cut_when_logs_are_left_to_the_page_cache_then_takes_nothing_below_a_recovery_point(
    context: ForkServerContext, disk: LoopDisk, policy: str, log: dict[str, object], most: int
) -> None:
    """What it takes above is named, written down by a repair, and the stream goes on behind it.

    On these file systems what was never synced is gone a moment later, so a store with much of that is refused.
    """
    store, topics = disk.folder / "s", _topics(policy, log)
    cut_at(context, disk, "commit.synced:8", append_numbers, store, topics, 10, _EACH)
    point, end = recovery_points(store)["t-0"]
    assert end == 7 * _EACH, "the ledger forgot a commit"
    assert end - point <= most

    was_refused = _open_or_repair(store, topics)
    finish(context, disk.folder, append_numbers, store, topics, 10, _EACH)

    assert was_refused == (most > 0 and point < end)
    lost = set(lost_offsets(lost_ranges(open_logs(store))))
    assert lost <= set(range(point, end))
    assert bool(lost) == was_refused
    assert stored_numbers(store) == sorted(set(range(10 * _EACH)) - lost)
    assert all(int(each.value or b"") == each.offset for each in read_store(store)["t-0"])
    assert plan_repairs(store, RepairOptions(jobs=1)).is_sound


@pytest.mark.parametrize("disk", FILESYSTEMS if IS_LONG else ["xfs"], indirect=True)
@pytest.mark.parametrize("step", ["flush.synced", "commit.written:9", "commit.synced:9"])
def test_power_cut_while_a_close_brings_logs_onto_the_disk_then_nothing_is_lost_from_there_on(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """The logs are on the disk before the ledger says so."""
    store, topics = disk.folder / "s", _topics("never", _LOG)
    cut_at(context, disk, step, append_numbers, store, topics, 7, _EACH)

    finish(context, disk.folder, append_numbers, store, topics, 10, _EACH)
    disk.cut_power()
    disk.plug_in()

    assert stored_numbers(store) == list(range(10 * _EACH))
    assert lost_ranges(open_logs(store)) == []


def _append_aged(store: Path) -> None:
    """Three micro-batches, a minute, one without records, and two more at once."""
    clock = ManualClock(0)
    writer = open_store(store, _AGED, topic="t", clock=clock)
    for number in range(3):
        writer.append("q", number, in_process(numbers(number * _EACH, (number + 1) * _EACH)))
    clock.advance(60_000)
    writer.append("q", 3, in_process())
    for number in (3, 4):
        writer.append("q", number + 1, in_process(numbers(number * _EACH, (number + 1) * _EACH)))


@pytest.mark.parametrize("disk", FILESYSTEMS if IS_LONG else ["ext4"], indirect=True)
def test_power_cut_when_a_log_was_synced_for_its_age_then_takes_what_came_later(
    context: ForkServerContext, disk: LoopDisk
) -> None:
    """A commit of whatever topic syncs what is older than `flush.ms`; what comes then is young again."""
    store = disk.folder / "s"
    cut_at(context, disk, "commit.synced:7", _append_aged, store)
    assert recovery_points(store) == {"t-0": (3 * _EACH, 5 * _EACH)}

    assert _open_or_repair(store, _AGED)

    assert set(range(3 * _EACH)) <= set(stored_numbers(store))
    assert min(each.first_offset for each in lost_ranges(open_logs(store))) >= 3 * _EACH
