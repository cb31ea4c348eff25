"""What a verb found or did, as it is printed: lines and a verdict for people, or JSON for programs. Its exit code."""

import json
from collections.abc import Iterable
from typing import Final, Protocol

from sparklog.pipeline.terminal import say
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.visible_text import visible_json

__all__ = ["DONE", "FAILED", "Report", "say_waiting", "show", "to_json"]

DONE: Final = 0
FAILED: Final = 1


class Report(Protocol):
    """What each verb makes of its result."""

    def lines(self) -> Iterable[str]:
        """Return a line for each thing that is worth one, for people."""

    def verdict(self) -> str:
        """Return the last line for people."""

    def as_dict(self) -> object:
        """Return the same for JSON."""


def show(report: Report, *, as_json: bool) -> None:
    """Print a report."""
    if as_json:
        say(to_json(report.as_dict()))
    else:
        say(*report.lines(), report.verdict())


def say_waiting(what: str, until_ms: int) -> None:
    """Print on stderr that renamed files or directories wait for their removal, before a run waits for it."""
    say(f"waiting until {iso_time(until_ms)} to remove {what}", err=True)


def to_json(value: object) -> str:
    """Return compact JSON, with what a terminal obeys in JSON's escapes."""
    return visible_json(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
