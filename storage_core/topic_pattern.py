"""Which names somebody means: patterns of topics or groups, and the topics that a cluster keeps for itself."""

import re
from typing import Final

from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["INTERNAL_TOPICS", "internal_topics", "is_named", "matches"]

INTERNAL_TOPICS: Final = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"}
)
"""They mean nothing outside of their own cluster."""


def is_named(topic: str, topics: str | None) -> bool:
    """Whether a topic is wanted.

    Args:
        topics: regular expressions of whole names, separated by commas; None for every topic but a cluster's own.

    Raises:
        InvalidConfigError: one is no regular expression.
    """
    if topics is None or topic in INTERNAL_TOPICS:
        return topic not in INTERNAL_TOPICS
    return matches(topic, topics)


def internal_topics(topics: str) -> list[str]:
    """Return a cluster's own topics that somebody names; raises as `is_named`."""
    return sorted(topic for topic in INTERNAL_TOPICS if matches(topic, topics))


def matches(name: str, expressions: str, option: str = "topics") -> bool:
    """Whether a whole name matches one of the regular expressions, which commas separate.

    Args:
        option: where they are from.

    Raises:
        InvalidConfigError: one is no regular expression.
    """
    try:
        return any(re.fullmatch(each.strip(), name) for each in expressions.split(","))
    except re.error as error:
        raise InvalidConfigError(f"no regular expression: {option}={expressions} reason={error}") from None
