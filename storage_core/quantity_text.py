"""Times, durations and sizes for people: `2026-11-20T10:00:00.000Z`, `4.8 days`, `3.1 MB`. JSON has the numbers."""

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["duration_text", "iso_time", "size_text"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATIONS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_SIZES: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def iso_time(timestamp_ms: int) -> str:
    """Return a timestamp in UTC, or its number where no calendar reaches."""
    if timestamp_ms < 0:
        return str(timestamp_ms)
    try:
        return f"{(_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec='milliseconds')[:-6]}Z"
    except OverflowError:
        return str(timestamp_ms)


def duration_text(duration_ms: int) -> str:
    """Return a duration in the largest unit that it has one of, with one digit behind the point."""
    for unit_ms, name in _DURATIONS:
        if duration_ms >= unit_ms:
            number = _one_digit(duration_ms / unit_ms)
            return f"{number} {name}" if number == "1" else f"{number} {name}s"
    return f"{duration_ms} ms"


def size_text(size_bytes: int) -> str:
    """Return a size in the largest unit of a thousand that it has one of, with one digit behind the point."""
    for unit_bytes, name in _SIZES:
        if size_bytes >= unit_bytes:
            return f"{_one_digit(size_bytes / unit_bytes)} {name}"
    return f"{size_bytes} bytes"


def _one_digit(number: float) -> str:
    return f"{number:,.1f}".removesuffix(".0")
