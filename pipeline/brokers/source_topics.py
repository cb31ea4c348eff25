"""A source's topics against those that a store has of them: what is new, and what must not be mirrored on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "Offsets",
    "SourceTopic",
    "deleted_problems",
    "open_transaction_problems",
    "recreated_problems",
    "went_back_problems",
]

Offsets: TypeAlias = Mapping[tuple[str, int], int]
"""An offset by topic and partition."""


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic of the source.

    Attributes:
        topic_id: 22 characters; empty from a broker without ids.
        partitions: their number.
    """

    topic_id: str
    partitions: int


def recreated_problems(topics: Mapping[str, SourceTopic], held: Iterable[LogState]) -> list[str]:
    """Return a problem for each topic that is another one than the store's of its name."""
    ids = {state.topic: state.topic_id for state in held}
    return [
        f"the topic is another one at the source, made anew or by another way into the store: topic={name}"
        f" source_id={topic.topic_id} store_id={ids[name]}; mirror it into another store, or first"
        f" sparklog delete-topic STORE {name} --execute"
        for name, topic in sorted(topics.items())
        if name in ids and topic.topic_id and ids[name] != topic.topic_id
    ]


def open_transaction_problems(topics: Mapping[str, SourceTopic], held: Iterable[LogState]) -> list[str]:
    """Return a problem for each log with an imported transaction that has no end: a mirror brings no markers."""
    return [
        "an imported transaction is open in the store, and a mirror brings no marker that ends it:"
        f" log={state.log} offset={state.first_unstable_offset}; mirror it into another store{_truncation_of(state)}"
        for state in sorted(held, key=lambda each: each.log)
        if state.topic in topics and state.first_unstable_offset >= 0
    ]


def _truncation_of(state: LogState) -> str:
    if state.first_unstable_offset < state.compacted_offset:
        return ""  # it would be refused
    end = f"{state.topic}:{state.partition}:{state.first_unstable_offset}"
    return (
        f", or first sparklog truncate STORE --to {end} --execute,"
        " then the mirror has its records if they were committed"
    )


def went_back_problems(ends: Offsets, held: Mapping[TopicPartition, LogState]) -> list[str]:
    """Return a problem for each log that ends lower at the source than in the store.

    An unclean election may have replaced records below the source's end, too: no offset is known to be safe.

    Args:
        ends: of the source, uncommitted records included.
        held: the store's logs.
    """
    return [
        f"the source's log went back: log={log} source_end={end} store_end={state.log_end_offset}; the store's offsets"
        f" {end}..{state.log_end_offset - 1} differ there or are gone, offsets below {end} may differ, too: mirror"
        " it into another store, or, if you know an offset up to which both have the same records, first"
        f" sparklog truncate STORE --to {log.topic}:{log.partition}:OFFSET --execute"
        for (topic, partition), end in sorted(ends.items())
        if (state := held.get(log := TopicPartition(topic, partition))) is not None and end < state.log_end_offset
    ]


def deleted_problems(starts: Offsets, due: Mapping[tuple[str, int], tuple[int, int]]) -> list[str]:
    """Return a problem for each log whose next records are gone at the source.

    Args:
        starts: of the source's logs.
        due: start and end offset of all records that are to come.
    """
    return [
        f"the source has deleted records that were not mirrored yet: log={topic}-{partition}"
        f" offsets {start}..{min(starts[topic, partition], end) - 1}; --allow-gaps goes on above them"
        for (topic, partition), (start, end) in sorted(due.items())
        if starts.get((topic, partition), 0) > start
    ]
