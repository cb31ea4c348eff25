"""The output of a verb: lines and a verdict for people, or JSON for programs; and exit codes."""

import json
from collections.abc import Iterable
from typing import Final, Protocol

from sparklog.pipeline.terminal import say
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.visible_text import visible_json

__all__ = ["AT_WORK", "DONE", "FAILED", "Report", "say_waiting", "show", "to_json"]

DONE: Final = 0
FAILED: Final = 1
AT_WORK: Final = 3
"""Another process holds the store or a log directory, or took the store."""


class Report(Protocol):
    """The result of a verb, for output."""

    def lines(self) -> Iterable[str]:
        """Return the lines for people above the verdict."""

    def verdict(self) -> str:
        """Return the last line for people."""

    def as_dict(self) -> object:
        """Return the report for JSON."""


def show(report: Report, *, as_json: bool) -> None:
    """Print a report."""
    if as_json:
        say(to_json(report.as_dict()))
    else:
        say(*report.lines(), report.verdict())


def say_waiting(what: str, until_ms: int) -> None:
    """Print on stderr what a run waits to remove, and until when."""
    say(f"waiting until {iso_time(until_ms)} to remove {what}", err=True)


def to_json(value: object) -> str:
    """Return compact JSON, with control characters escaped."""
    return visible_json(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
