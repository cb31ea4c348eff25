"""Truncations and cleaner checkpoints: what has other records by now counts as dirty."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sparklog.pipeline.control.cleaner_checkpoints import checkpoints_of
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.operations.cleaner_limits import lift_cleaner_limits
from sparklog.sink.operations.truncate_logs import truncate_fully_and_start_at
from sparklog.sink.store.cleaner_checkpoint_files import CLEANER_CHECKPOINT, write_cleaner_checkpoints
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.compacted_store import LOG, NOW_MS, SETTINGS, clean, write_keyed
from tests.build.maintained_logs import checkpoint
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import state_of
from tests.build.sink_store import in_process, open_store, read_store, rows
from tests.build.truncated import truncate_to

_EAGER = {**SETTINGS, "delete.retention.ms": 1000, "min.cleanable.dirty.ratio": 0.0}


def _put(store: Path, query_id: str, records: Sequence[tuple[str, str | None]]) -> None:
    with closing(open_store(store, {LOG.topic: _EAGER}, topic=LOG.topic)) as writer:
        for number in range(0, len(records), 4):
            part = records[number : number + 4]
            keys, values = [key for key, _ in part], [value for _, value in part]
            batch = rows(partition=[0] * len(part), key=keys, value=values, timestamp=[NOW_MS] * len(part))
            writer.append(query_id, number, in_process(batch))


def _known(store: Path, dirty: int) -> dict[TopicPartition, int]:
    """Return what a run knows of the log whose table says that it is clean up to an offset."""
    found = Store.find(store)
    states = Ledger.open(found.ledger_path).states()
    row = checkpoint(LOG.topic, topic_id=states[LOG].topic_id, first_dirty_offset=dirty).as_dict()
    known = checkpoints_of([row], states)
    return {log: each.first_dirty_offset for log, each in known.items()}


def test_clean_when_a_tombstone_came_after_a_truncation_then_the_key_stays_deleted(tmp_path: Path) -> None:
    """Its offset lies below where the last cleaning ended: believed clean, it would go and its older value stay."""
    store = tmp_path / "store"
    _put(store, "a", [("gone", "v1"), *((f"x{each}", "v" * 40) for each in range(60))])
    _, done = clean(store, {}, ManualClock(NOW_MS))
    dirty = {each.log: each.first_dirty_offset for each in done}[LOG]
    truncate_to(store, LOG, 20, ManualClock(NOW_MS))
    _put(store, "b", [("gone", None), *((f"y{each}", "v" * 40) for each in range(60))])
    assert dirty > 20

    for step in range(4):
        known = _known(store, dirty) if step == 0 else {LOG: dirty}
        _, done = clean(store, known, ManualClock(NOW_MS + step * 5000))
        dirty = {each.log: each.first_dirty_offset for each in done}.get(LOG, dirty)
        _put(store, f"c{step}", [(f"z{step}.{each}", "v" * 40) for each in range(12)])

    assert [each.value for each in read_store(store)[str(LOG)] if each.key == b"gone" and each.value is not None] == []


def test_truncation_when_there_are_several_then_the_lowest_offset_counts_until_it_is_lifted(tmp_path: Path) -> None:
    """A later one further up does not say that what lies between was cleaned."""
    store = write_keyed(tmp_path / "store")
    for offset in (80, 30, 20):
        truncate_to(store, LOG, offset, ManualClock(NOW_MS))
    truncate_fully_and_start_at(store, LOG, 50, ManualClock(NOW_MS))
    truncate_to(store, LOG, 60, ManualClock(NOW_MS))
    assert state_of(store, LOG).cleaner_limit_offset == 20

    found = Store.find(store)
    lift_cleaner_limits(found, [TopicPartition(LOG.topic, 1)])
    assert state_of(store, LOG).cleaner_limit_offset == 20
    lift_cleaner_limits(found, [LOG])
    assert state_of(store, LOG).cleaner_limit_offset == -1


def test_lift_when_a_sink_runs_then_it_takes_that_over_and_goes_on(tmp_path: Path) -> None:
    """Maintenance commits beside a writer, which loses the race for the next version and tries again."""
    store = write_keyed(tmp_path / "store", count=20)
    truncate_to(store, LOG, 7, ManualClock(NOW_MS))
    with closing(open_store(store, {LOG.topic: _EAGER}, topic=LOG.topic)) as writer:
        lift_cleaner_limits(Store.find(store), [LOG])
        writer.append("later", 0, in_process(rows(partition=[0], key=["k"], value=["v"], timestamp=[NOW_MS])))

    assert (state_of(store, LOG).cleaner_limit_offset, state_of(store, LOG).log_end_offset) == (-1, 8)


def test_truncation_when_brokers_have_a_checkpoint_then_it_is_lowered(tmp_path: Path) -> None:
    """A broker that opens the directories believes it; other logs' entries, and a lower one, stay as they are."""
    store = write_keyed(tmp_path / "store")
    other = TopicPartition(LOG.topic, 1)
    found = Store.find(store)
    write_cleaner_checkpoints(found, Ledger.open(found.ledger_path).states(), {LOG: 90, other: 95}, UNSHARED)
    path = store / "logs" / CLEANER_CHECKPOINT

    truncate_to(store, LOG, 100, ManualClock(NOW_MS))
    assert parse_offset_checkpoint(path.read_bytes()) == {LOG: 90, other: 95}
    truncate_to(store, LOG, 40, ManualClock(NOW_MS))
    assert parse_offset_checkpoint(path.read_bytes()) == {LOG: 40, other: 95}
