"""Which cuts a plan will overtake."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.past.overtaken_cuts import describe_overtaken
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.cut_store import HOUR_MS, LOG, MINUTE_MS, NOON_MS, append_by_clock
from tests.build.manual_clock import ManualClock
from tests.build.sink_store import in_process, numbers, open_store

_YOUNG = TopicPartition("u", 0)


def test_overtaken_when_a_topic_is_younger_than_most_cuts_then_its_own_count(tmp_path: Path) -> None:
    """A cut without the log says nothing about those after it."""
    store = tmp_path / "s"
    append_by_clock(store, [10 + 60 * hour for hour in range(8)])
    clock = ManualClock(NOON_MS + 8 * HOUR_MS + 10 * MINUTE_MS)
    with closing(open_store(store, {_YOUNG.topic: {}}, topic=_YOUNG.topic, clock=clock)) as writer:
        for batch_id in range(3):
            writer.append("u", batch_id, in_process(numbers(0, 10)))
            clock.advance(HOUR_MS)
    rows = Ledger.open(store / "ledger").states()

    def overtaken(**starts: int) -> str | None:
        logs = {log: starts[log.topic] for log in (LOG, _YOUNG) if log.topic in starts}
        planned = {log: replace(rows[log], log_start_offset=start) for log, start in logs.items()}
        return describe_overtaken(store / "ledger", planned)

    def line(hour: int, log: TopicPartition) -> str:
        return f"after this, cuts before {iso_time(NOON_MS + hour * HOUR_MS)} can't be read: {log}"

    assert overtaken(u=5) is None
    assert overtaken(u=10) == overtaken(u=10, t=20) == line(10, _YOUNG)
    assert overtaken(t=20) == overtaken(t=20, u=5) == line(3, LOG)
    assert overtaken(t=80) == f"after this, no cut can be read: {LOG}"
