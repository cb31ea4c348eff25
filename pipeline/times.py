"""Times and durations as people type them.

| form                                | is                                                          |
|-------------------------------------|-------------------------------------------------------------|
| `2026-11-20T10:00Z`, `...+01:00`    | ISO 8601; UTC where no zone is named                        |
| `2026-11-20`                        | that day's midnight, UTC                                    |
| `-1h`, `-7d`, `-30m`                | so long before now: ms, s, m, h, d, w                       |
| `1795125600000`                     | ms since 1970; a number that looks like seconds is refused  |
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from storage_core.quantity_text import iso_time

__all__ = ["parse_duration", "parse_time"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d|w)", re.IGNORECASE)
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SECONDS: Final = range(10**8, 10**11)
"""As seconds 1973 to 5138, as ms the first three years of 1970."""
_FORMS: Final = "wanted is 2026-11-20T10:00Z, 2026-11-20, -1h before now, or ms since 1970"


def parse_duration(text: str) -> int | None:
    """Return a duration such as `15m` in ms; None if it is none."""
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else int(found[1]) * _UNITS_MS[found[2].lower()]


def parse_time(text: str, now_ms: int) -> int:
    """Return a time in ms since 1970.

    Args:
        text: in any form of the table above.
        now_ms: that durations count from.

    Raises:
        ValueError: it is no time, lies before 1970, or looks like seconds; the message says which.
    """
    if text.isascii() and text.isdigit():
        return _checked_ms(int(text))
    before_ms = parse_duration(text[1:]) if text.startswith("-") else None
    if before_ms is not None:
        time_ms = now_ms - before_ms
    else:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is no time: {_FORMS}") from None
        zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
        time_ms = (zoned - _EPOCH) // timedelta(milliseconds=1)
    if time_ms < 0:
        raise ValueError(f"{text!r} is before 1970")
    return time_ms


def _checked_ms(number: int) -> int:
    if number in _SECONDS:
        readings = f"{iso_time(number)} in ms, {iso_time(number * 1000)} in seconds"
        raise ValueError(f"{number} is {readings}: write the one that is meant")
    return number
