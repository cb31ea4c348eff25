"""The verb `truncate`: takes the newest records of logs back, of all logs at once or of none."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sparklog.pipeline.control.leases import refuse_leased
from sparklog.pipeline.report import show
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.operations.truncate_logs import LogTruncation, plan_truncations, truncate_logs
from sparklog.sink.past.past_logs import PastLogs
from sparklog.sink.past.past_state import PastState, find_past
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.errors import InvalidConfigError, OffsetOutOfRangeError, UnknownTopicError
from sparklog.storage_core.quantity_text import size_text
from sparklog.storage_core.topic_partition import TopicPartition
from sparklog.storage_core.topic_pattern import is_named

__all__ = ["ends_then", "execute_truncation", "parse_ends", "run"]

_Choose = Callable[[Ledger], Mapping[TopicPartition, int]]


@dataclass(frozen=True, slots=True)
class _Truncated:
    """A planned or finished truncation."""

    logs: Sequence[LogTruncation]
    past: PastState | None
    is_executed: bool

    def lines(self) -> Iterator[str]:
        """Return a line per log, and what becomes of the writers."""
        for each in self.logs:
            is_new = self.past is not None and each.state.log not in self.past.states
            yield _line(each) + ("; it was made since" if is_new else "")
        if self.logs:
            yield (
                "note: a stream goes on above the new ends: its checkpoint stays, so the records that go do not come"
                " again; a mirror reads its source from the new ends on"
            )

    def verdict(self) -> str:
        """Return the last line for people."""
        to = "" if self.past is None else f", to the {self.past}"
        if not self.logs:
            return f"nothing to truncate{to}: each log ends at its offset"
        count = sum(each.state.log_end_offset - each.offset for each in self.logs)
        what = f"{len(self.logs):,} logs, {count:,} offsets, {size_text(self.dropped_bytes)}{to}"
        return f"truncated: {what}" if self.is_executed else f"planned: {what}; --execute does it"

    @property
    def dropped_bytes(self) -> int:
        """Of all logs."""
        return sum(each.dropped_bytes for each in self.logs)

    def as_dict(self) -> dict[str, Any]:
        """Return the truncation for JSON."""
        logs = [
            {
                "log": str(each.state.log),
                "log_start_offset": each.log_start_offset,
                "old_end_offset": each.state.log_end_offset,
                "log_end_offset": each.offset,
                "lost_from_offset": each.lost_from if each.lost_from < each.offset else None,
                "dropped_bytes": each.dropped_bytes,
                "first_unstable_offset": each.values["first_unstable_offset"],
            }
            for each in self.logs
        ]
        as_of = {} if self.past is None else {"as_of": str(self.past)}
        return {"executed": self.is_executed, **as_of, "logs": logs}


def run(store: Path, as_of: AsOf | None, to: Sequence[str], topics: str | None, execute: bool, as_json: bool) -> None:
    """Carry the verb out."""
    if (as_of is None) == (not to):
        raise click.UsageError("give one of --as-of and --to")
    if to and topics is not None:
        raise click.UsageError("--topics is for --as-of; --to names its logs")
    found, ends, clock = Store.find(store), parse_ends(to), SystemClock()
    past = None if as_of is None else find_past(found.ledger_path, as_of)

    def choose(ledger: Ledger) -> Mapping[TopicPartition, int]:
        return _checked(ledger, ends) if past is None else ends_then(found, ledger, past, topics)

    if execute:
        planned = execute_truncation(store, choose, clock)
    else:
        ledger = Ledger.open(found.ledger_path)
        planned = plan_truncations(found, ledger.states(), choose(ledger))
    show(_Truncated(planned, past, execute), as_json=as_json)


def execute_truncation(root: Path, choose: _Choose, clock: Clock) -> list[LogTruncation]:
    """Truncate logs; return what was truncated.

    Args:
        choose: as for `truncate_logs`.

    Raises:
        StoreLockedError: a sink or a maintenance run holds the store; nothing was changed.
        LogStorageError: as `truncate_logs`.
    """
    refuse_leased(root, clock)
    return truncate_logs(root, choose, clock)


def parse_ends(texts: Sequence[str]) -> dict[TopicPartition, int]:
    """Return the new end of each log from `TOPIC:PARTITION:OFFSET`, which may be separated by commas.

    Raises:
        InvalidConfigError: a text is something else, or a log is named twice.
    """
    ends: dict[TopicPartition, int] = {}
    for text in (each.strip() for given in texts for each in given.split(",")):
        topic, _, rest = text.partition(":")
        partition, _, offset = rest.partition(":")
        if not (topic and _is_number(partition) and _is_number(offset)):
            raise InvalidConfigError(f"name a new end as TOPIC:PARTITION:OFFSET: to={text}")
        log = TopicPartition(topic, int(partition))
        if log in ends:
            raise InvalidConfigError(f"a log is named twice: log={log}")
        ends[log] = int(offset)
    return ends


def ends_then(store: Store, ledger: Ledger, past: PastState, topics: str | None) -> dict[TopicPartition, int]:
    """Return where logs ended in an earlier state; those made since end at their start.

    Args:
        ledger: of the store, as it is.
        topics: regular expressions of whole names, with commas between; None for all.

    Raises:
        UnknownTopicError: no topic has such a name.
        InvalidConfigError: something has overtaken the state of a log: a deletion, retention, a compaction or another
            truncation; the message names it, and the oldest cut that is left.
    """
    now = {log: state for log, state in ledger.states().items() if topics is None or is_named(log.topic, topics)}
    then = {log: state for log, state in past.states.items() if topics is None or is_named(log.topic, topics)}
    if not now and not then:
        raise UnknownTopicError(f"no topic to truncate: topics={topics or 'all'}")
    PastLogs(
        ledger_path=str(store.ledger_path),
        what=str(past),
        states=tuple(then.values()),
        directories=tuple(str(store.log_path(now.get(log, state))) for log, state in then.items()),
    ).require_readable()
    return {log: then[log].log_end_offset if log in then else state.log_start_offset for log, state in now.items()}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _checked(ledger: Ledger, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    """Return the new ends, unless one can't be had."""
    states = ledger.states()
    for log, offset in ends.items():
        if log not in states:
            topics = ", ".join(sorted({each.topic for each in states})) or "none"
            raise UnknownTopicError(f"no such log in the store: log={log} topics={topics}")
        _check_end(states[log], offset)
    return ends


def _check_end(state: LogState, offset: int) -> None:
    if offset > state.log_end_offset:
        raise OffsetOutOfRangeError(
            f"the log ends below this offset: log={state.log} offset={offset} log_end_offset={state.log_end_offset}"
        )
    if offset < state.compacted_offset:
        raise InvalidConfigError(
            f"compaction has passed this offset: log={state.log} offset={offset}"
            f" compacted_offset={state.compacted_offset}; records below it may have gone for later ones, which would"
            f" go, too: name {state.compacted_offset} or a higher offset"
        )


def _line(each: LogTruncation) -> str:
    state, size = each.state, size_text(each.dropped_bytes)
    count = state.log_end_offset - each.offset
    text = f"{state.log}: ends at offset {each.offset:,}, not {state.log_end_offset:,}: {count:,} offsets, {size}"
    if each.is_emptied:
        return f"{text}; no record stays, the log starts at offset {each.offset:,}"
    if each.lost_from < each.offset:
        text += f"; offsets {each.lost_from:,}..{each.offset - 1:,} are lost, too, with a batch across the new end"
    return text + _open_transaction(state, each.values["first_unstable_offset"])


def _open_transaction(state: LogState, first_offset: int) -> str:
    if first_offset < 0:
        return ""
    text = f"; a transaction is open from offset {first_offset} on, for good: read_committed ends there"
    is_refused = first_offset < state.compacted_offset
    return text if is_refused else f"{text}; --to {state.topic}:{state.partition}:{first_offset} takes it back, too"
