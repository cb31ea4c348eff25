"""Times, durations and sizes for people: `2026-11-20T10:00:00.000Z`, `4.8 days`, `3.1 MB`. JSON has the numbers.

People write a duration as `15m`; its units are ms, s, m, h, d, w.
"""

import itertools
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["duration_text", "iso_time", "parse_duration", "size_text"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATIONS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d|w)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZES: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def iso_time(timestamp_ms: int) -> str:
    """Return a timestamp in UTC, or its number outside of the calendar's range."""
    if timestamp_ms < 0:
        return str(timestamp_ms)
    try:
        return f"{(_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec='milliseconds')[:-6]}Z"
    except OverflowError:
        return str(timestamp_ms)


def duration_text(duration_ms: int) -> str:
    """Return a duration in its largest unit, with one decimal."""
    if (found := _in_unit(duration_ms, _DURATIONS)) is None:
        return f"{duration_ms} ms"
    number, name = found
    return f"{number} {name}" if number == "1" else f"{number} {name}s"


def parse_duration(text: str) -> int | None:
    """Return a duration such as `15m` in ms; None for any other text."""
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else int(found[1]) * _UNITS_MS[found[2]]


def size_text(size_bytes: int) -> str:
    """Return a size in its largest decimal unit, with one decimal."""
    found = _in_unit(size_bytes, _SIZES)
    return f"{size_bytes} bytes" if found is None else " ".join(found)


def _in_unit(quantity: int, units: Sequence[tuple[int, str]]) -> tuple[str, str] | None:
    """Return a number of at least 1, and its unit: the largest one, after rounding in the unit below."""
    for (unit, name), (below, _) in itertools.pairwise((*units, (1, ""))):
        if round(quantity / below, 1) * below >= unit:
            return f"{quantity / unit:,.1f}".removesuffix(".0"), name
    return None
