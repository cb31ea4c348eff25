"""The verb `offsets`: the offset of each log at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

from sparklog.pipeline.places.past_logs import require_readable
from sparklog.pipeline.places.store_view import LogView, open_named
from sparklog.pipeline.places.stored_logs import Place
from sparklog.pipeline.report import to_json
from sparklog.pipeline.terminal import say
from sparklog.sink.ledger.versions import AsOf
from sparklog.storage_core.log.producers.transactions import Isolation

__all__ = ["run"]


def run(store: Place, name: str, time: int | str, isolation: Isolation, as_of: AsOf | None, as_json: bool) -> None:
    """Carry the verb out."""
    view, logs = open_named(store, name, as_of)
    require_readable(view, logs)
    if view.past is not None:
        say(f"as of {view.past}", err=True)
    for found in _lookup(logs, time, isolation):
        offset = -1 if found["offset"] is None else found["offset"]
        say(to_json(found) if as_json else f"{found['topic']}:{found['partition']}:{offset}")


def _lookup(logs: Sequence[LogView], time: int | str, isolation: Isolation) -> Iterator[dict[str, Any]]:
    """Yield per log the offset at a time, and the timestamp found there.

    Args:
        time: ms, or `earliest`, `latest`, `max-timestamp`. For ms the answer is the first record, in offset order, that
            is not earlier; offset and timestamp are None if every record is.
        isolation: with `read_committed` the latest offset is the last stable one, and no record above it is found.
    """
    for each in logs:
        reader = each.reader()
        found: tuple[int | None, int | None] | None
        if time == "earliest":
            found = reader.log_start_offset, None
        elif time == "latest":
            is_all = isolation == "read_uncommitted"
            found = reader.log_end_offset if is_all else reader.last_stable_offset, None
        elif time == "max-timestamp":
            found = reader.offset_of_max_timestamp(isolation)
        else:
            found = reader.offset_for_time(int(time), isolation)
        offset, timestamp = found or (None, None)
        yield {"topic": each.log.topic, "partition": each.log.partition, "offset": offset, "timestamp": timestamp}
