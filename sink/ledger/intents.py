"""What is left to do about a log, as its ledger row says: the commit that changes a log also carries its intents.

The column `intent` is empty, or one line of JSON: a list of objects with a `kind`. A later commit clears what is done;
until then every opening for writing carries it out again (`opening/finish_intents.py`), so each step can be done twice.
"""

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.topic_partition import TopicPartition, set_aside_name

__all__ = [
    "Copy",
    "Deletion",
    "Import",
    "Intent",
    "Move",
    "Truncation",
    "future_name",
    "parse_intents",
    "render_intents",
]

_UNIQUE_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """The row ends with the log's last batch that stays: the files are to be cut, and filled up to the new end.

    Attributes:
        offset: the log's new end; a batch without records stands for the offsets from the row's end up to it.
        log_start_offset: the log's new start.
        lost_from: first offset below the new end that is lost; the new end if none is.
        began_ms: when it was committed.
    """

    offset: int
    log_start_offset: int
    lost_from: int
    began_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The log is copied to another log directory; the row names the one that it still lies in.

    Attributes:
        target: log directory that it is to lie in.
        unique_id: of the `-future` directory there.
    """

    target: str
    unique_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The row names the log directory that the log has moved to: the copy is to get its name, the old one to go.

    Attributes:
        source: log directory that it lay in.
        unique_id: of the `-future` directory that it lies in until it has its name.
    """

    source: str
    unique_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The log is deleted: its directories are to go, and then its row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """The log is being copied into the store and does not exist yet: its copy is to go, and then its row.

    Attributes:
        unique_id: of the `-future` directory, in the row's log directory.
    """

    unique_id: str


Intent: TypeAlias = Truncation | Copy | Move | Deletion | Import

_KINDS: Final[dict[str, type[Intent]]] = {
    "truncate": Truncation,
    "copy": Copy,
    "move": Move,
    "delete": Deletion,
    "import": Import,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def parse_intents(text: str) -> tuple[Intent, ...]:
    """Return what a row's `intent` says, in the order in which it began.

    Raises:
        ValueError: it says something else.
    """
    if not text:
        return ()
    try:
        return tuple(_intent(**each) for each in json.loads(text))
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no intent: {text[:80]!r} ({error})") from error


def render_intents(intents: tuple[Intent, ...]) -> str:
    """Return the text of a row's `intent`."""
    return json.dumps([{"kind": _NAMES[type(each)], **asdict(each)} for each in intents]) if intents else ""


def future_name(log: TopicPartition, intent: Copy | Move | Import) -> str:
    """Return the name of the directory that a copy is made in."""
    return set_aside_name(log, intent.unique_id, "future")


def _intent(kind: str, **values: Any) -> Intent:
    for name, value in values.items():
        if not _is_sound(name, value):
            raise ValueError(f"no intent: kind={kind[:40]} {name[:40]}={str(value)[:40]!r}")
    return _KINDS[kind](**values)


def _is_sound(name: str, value: object) -> bool:
    """Whether a value may become a path or an end of a log."""
    if name == "unique_id":
        return isinstance(value, str) and _UNIQUE_ID.fullmatch(value) is not None
    if name in ("source", "target"):
        return isinstance(value, str) and bool(value) and "\0" not in value
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT64_MAX
