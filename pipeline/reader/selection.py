"""Selects the logs that a query reads."""

import re

from sparklog.pipeline.places.store_view import LogView, StoreView
from sparklog.pipeline.reader.options import ReaderOptions
from sparklog.storage_core.errors import UnknownTopicError
from sparklog.storage_core.topic_pattern import INTERNAL_TOPICS

__all__ = ["choose_logs"]


def choose_logs(view: StoreView, options: ReaderOptions) -> tuple[LogView, ...]:
    """Return the logs that the options select; without a selection all except Kafka's internal topics.

    Raises:
        UnknownTopicError: a named topic or partition does not exist, or the folder holds no logs.
    """
    view.require_clean_end()
    if not view.logs and view.ledger_version is None:
        raise UnknownTopicError(f"neither a store nor log directories <topic>-<partition>: path={view.root}")
    if options.assign is not None:
        return _assigned(view, options)
    if options.subscribe is not None:
        return _subscribed(view, options.subscribe)
    pattern = re.compile(options.subscribe_pattern or ".*")
    named = (each for each in view.logs if each.log.topic not in INTERNAL_TOPICS)  # read only if named, as in Kafka
    return tuple(each for each in named if pattern.fullmatch(each.log.topic))


def _assigned(view: StoreView, options: ReaderOptions) -> tuple[LogView, ...]:
    wanted = set(options.assign or ())
    found = tuple(each for each in view.logs if each.log in wanted)
    missing = wanted - {each.log for each in found}
    if missing:
        names = ", ".join(f"{log.topic}:{log.partition}" for log in sorted(missing))
        raise UnknownTopicError(f"assign names partitions that do not exist: {names} path={view.root}")
    return found


def _subscribed(view: StoreView, topics: tuple[str, ...]) -> tuple[LogView, ...]:
    there = {each.log.topic for each in view.logs}
    missing = sorted(set(topics) - there)
    if missing:
        known = ", ".join(sorted(there)) or "none"
        raise UnknownTopicError(
            f"subscribe names topics that do not exist: {', '.join(missing)} topics={known} path={view.root}"
        )
    return tuple(each for each in view.logs if each.log.topic in topics)
