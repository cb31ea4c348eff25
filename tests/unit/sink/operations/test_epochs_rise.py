"""Leader epochs of a store's logs: the next one begins with a taking by force, and with a truncation."""

from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs, render_leader_epochs
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import in_process, numbers, open_events
from tests.build.truncated import truncate_to
from tests.sparklog_command import Sparklog

_LOG = TopicPartition("events", 0)


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A closed store with 0..99 in `events`."""
    store = memory_path / "store"
    _append(store, 0)
    return store


def _append(store: Path, batch_id: int, *, by_force: bool = False) -> None:
    with closing(open_events(store, take_lock_by_force=by_force)) as writer:
        writer.append("q", batch_id, in_process(numbers(batch_id * 100, batch_id * 100 + 100)))


def _end(store: Path) -> int:
    return Ledger.open(store / "ledger").states()[_LOG].log_end_offset


def _epochs_path(store: Path) -> Path:
    return store / "logs" / str(_LOG) / "leader-epoch-checkpoint"


def _epochs(store: Path) -> list[tuple[int, int]]:
    return parse_leader_epochs(_epochs_path(store).read_bytes())


def _batch_epochs(store: Path) -> list[tuple[int, int]]:
    """Return each epoch in the batches, with the first offset that has it."""
    found: dict[int, int] = {}
    for path in sorted((store / "logs" / str(_LOG)).glob("*.log")):
        scan = scan_batches(path.read_bytes())
        for epoch, offset in zip(scan.leader_epoch.tolist(), scan.base_offset.tolist(), strict=True):
            found.setdefault(epoch, offset)
    return sorted(found.items())


def test_writer_when_opened_again_then_its_batches_have_the_same_epoch(store: Path) -> None:
    """It is the same leader that goes on."""
    _append(store, 1)

    assert _epochs(store) == _batch_epochs(store) == [(0, 0)]


def test_writer_by_force_when_it_appends_then_its_batches_have_the_next_epoch(store: Path, sparklog: Sparklog) -> None:
    """As those of a broker that takes a log over; the epoch begins at the log's end."""
    first = _end(store)
    _append(store, 1, by_force=True)
    second = _end(store)
    _append(store, 2)
    open_events(store, take_lock_by_force=True).close()  # appends nothing: the epoch decides nothing
    _append(store, 3, by_force=True)

    assert _epochs(store) == _batch_epochs(store) == [(0, 0), (1, first), (3, _end_before(store, second))]
    assert sparklog("verify", store).code == 0


def _end_before(store: Path, after: int) -> int:
    (found,) = [offset for epoch, offset in _batch_epochs(store) if epoch == 3]
    assert found > after
    return found


@pytest.mark.parametrize("offset", [20, 27, 40])
def test_truncation_when_finished_then_its_next_batch_has_the_next_epoch(
    store: Path, sparklog: Sparklog, offset: int
) -> None:
    """Records that get dropped offsets again are told from the dropped ones by their epoch."""
    truncate_to(store, _LOG, offset, SystemClock())
    assert _epochs(store) == [(0, 0), (1, offset)]
    assert sparklog("verify", store).code == 0
    _append(store, 1)

    assert _epochs(store) == _batch_epochs(store) == [(0, 0), (1, offset)]
    truncate_to(store, _LOG, offset - 7, SystemClock())
    assert _epochs(store) == [(0, 0), (2, offset - 7)]
    assert sparklog("verify", store).code == 0


def test_truncation_when_the_log_is_emptied_then_only_the_next_epoch_is_left(store: Path, sparklog: Sparklog) -> None:
    """No batch of an earlier one is there."""
    truncate_fully_and_start_at(store, _LOG, 40, SystemClock())
    _append(store, 1)

    assert _epochs(store) == _batch_epochs(store) == [(1, 40)]
    assert sparklog("verify", store).code == 0


@pytest.mark.parametrize("content", [b"damaged", render_leader_epochs([(0, 0)]), render_leader_epochs([(3, 0)])])
def test_repair_when_epochs_of_several_leaders_are_damaged_then_made_from_the_batches(
    store: Path, sparklog: Sparklog, content: bytes
) -> None:
    """Each batch says under which epoch it was written."""
    _append(store, 1, by_force=True)
    _append(store, 2, by_force=True)
    wanted = _epochs(store)
    assert len(wanted) == 3
    _epochs_path(store).write_bytes(content)
    assert sparklog("verify", store).code == 1

    assert sparklog("repair", store, "--execute").code == 0

    assert _epochs(store) == wanted
    assert sparklog("verify", store).code == 0


def test_writer_when_the_epochs_are_damaged_then_left_to_the_repair(store: Path, sparklog: Sparklog) -> None:
    """A new file would lack the epochs of the records that are there."""
    _epochs_path(store).write_bytes(b"damaged")

    _append(store, 1, by_force=True)

    assert _epochs_path(store).read_bytes() == b"damaged"
    assert sparklog("repair", store, "--execute").code == 0
    assert _epochs(store) == _batch_epochs(store)
