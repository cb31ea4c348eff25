"""A store with cuts: numbers appended by a clock that passes hours, and the cuts that it must have then."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.past.cuts import CutTable, cuts_path
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, numbers, open_store

__all__ = ["HOUR_MS", "LOG", "MINUTE_MS", "NOON_MS", "append_by_clock", "cut_ends", "forget_past", "opened"]

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
NOON_MS = 1_700_049_600_000 // (24 * HOUR_MS) * (24 * HOUR_MS) + 12 * HOUR_MS
LOG = TopicPartition("t", 0)
_EACH = 10


@contextmanager
def opened(store: Path, clock: ManualClock, **cuts: str) -> Iterator[StoreWriter]:
    """Open a store of the topic `t`; `every` and `keep` as in the settings."""
    settings = {LOG.topic: {"segment.bytes": 1 << 20, "retention.ms": -1}}
    with closing(open_store(store, settings, topic=LOG.topic, clock=clock, cuts=cuts)) as writer:
        yield writer


def append_by_clock(store: Path, minutes: list[int], **cuts: str) -> None:
    """Append ten numbers at each of these minutes after noon; those that are there already are replayed."""
    clock = ManualClock(NOON_MS)
    with opened(store, clock, **cuts) as writer:
        for batch_id, minute in enumerate(minutes):
            clock.set_wall(NOON_MS + minute * MINUTE_MS - clock.now_ms())
            writer.append("q", batch_id, in_process(numbers(batch_id * _EACH, (batch_id + 1) * _EACH)))


def forget_past(store: Path) -> None:
    """Remove the data files of replaced versions, as a writer does after a minute."""
    ledger = Ledger.open(store / "ledger")
    kept = set(ledger._log.data_files(ledger._table))
    for path in (store / "ledger").glob("*.parquet"):
        if path not in kept:
            path.unlink()


def cut_ends(store: Path) -> dict[int, int]:
    """Return the end of the log in each cut, by the minute after noon."""
    table = CutTable(cuts_path(store))
    cuts = {cut_ms: table.read(cut_ms) for cut_ms in table.times()}
    return {(each - NOON_MS) // MINUTE_MS: cut.rows.states[LOG].log_end_offset for each, cut in cuts.items()}
