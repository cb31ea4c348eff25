"""Parses times on the command line.

| form                                | is                                                          |
|-------------------------------------|-------------------------------------------------------------|
| `2026-11-20T10:00Z`, `...+01:00`    | ISO 8601; UTC without a zone                                |
| `2026-11-20`                        | midnight of that day, UTC                                   |
| `-1h`, `-7d`, `-30m`                | this long before now: ms, s, m, h, d, w                     |
| `1795125600000`                     | ms since 1970, until the year 9999                          |

Units are lower case: `-1M` could be a month and is refused. A number that looks like seconds, microseconds, nanoseconds
or a date (`20261120`) is refused, too.
"""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Final

from sparklog.storage_core.quantity_text import iso_time, parse_duration

__all__ = ["parse_time"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS: Final = range(10**8, 10**11)
"""As seconds 1973 to 5138, as ms the first three years of 1970."""
_END_MS: Final = 253_402_300_800_000
"""The year 10000."""
_DATE_DIGITS: Final = 8
_FORMS: Final = "write 2026-11-20T10:00Z, 2026-11-20, -1h before now (ms, s, m, h, d, w), or ms since 1970"


def parse_time(text: str, now_ms: int) -> int:
    """Return a time in ms since 1970.

    Args:
        text: in any form of the table above.
        now_ms: the time from which durations count.

    Raises:
        ValueError: the text is no time, is before 1970, or is a number that is probably not ms; the message says which.
    """
    if text.isascii() and text.isdigit():
        _check_ms(text)
        return int(text)
    before_ms = parse_duration(text[1:]) if text.startswith("-") else None
    if before_ms is not None:
        time_ms = now_ms - before_ms
    else:
        try:
            time_ms = _iso_ms(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a time: {_FORMS}") from None
    if time_ms < 0:
        raise ValueError(f"{text!r} is before 1970")
    return time_ms


def _iso_ms(text: str) -> int:
    found = datetime.fromisoformat(text)
    zoned = found if found.tzinfo else found.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(milliseconds=1)


def _check_ms(text: str) -> None:
    """Refuse a number that is probably not ms; the message lists its possible meanings."""
    number = int(text)
    readings = [f"{iso_time(number)} in ms" if number < _END_MS else "beyond the year 9999 in ms"]
    if number in _SECONDS:
        readings.append(f"{iso_time(number * 1000)} in seconds")
    elif number >= _END_MS:
        smaller = (("microseconds", number // 1000), ("nanoseconds", number // 1_000_000))
        readings += [f"{iso_time(each)} in {unit}" for unit, each in smaller if each < _END_MS][:1]
    elif len(text) == _DATE_DIGITS:
        with contextlib.suppress(ValueError):
            readings.append(f"{iso_time(_iso_ms(text))} as a date")
    if number >= _END_MS or len(readings) > 1:
        raise ValueError(f"{text} is {', '.join(readings)}: write a time such as 2026-11-20T10:00Z")
