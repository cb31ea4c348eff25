"""Durations and sizes for people: the unit fits the number that is shown."""

import pytest

from sparklog.storage_core.quantity_text import duration_text, size_text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (999, "999 ms"),
        (1000, "1 second"),
        (59_949, "59.9 seconds"),
        (59_999, "1 minute"),
        (3_599_999, "1 hour"),
        (82_080_000, "22.8 hours"),
        (86_399_999, "1 day"),
        (414_720_000, "4.8 days"),
    ],
)
def test_duration_text_when_it_rounds_up_to_a_unit_then_in_that_unit(duration_ms: int, text: str) -> None:
    """Nothing is `60 seconds`, `60 minutes` or `24 hours` long."""
    assert duration_text(duration_ms) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (999, "999 bytes"),
        (1000, "1 kB"),
        (999_949, "999.9 kB"),
        (999_999, "1 MB"),
        (999_999_999_999, "1 TB"),
        (1_234_560_000_000_000, "1,234.6 TB"),
    ],
)
def test_size_text_when_it_rounds_up_to_a_unit_then_in_that_unit(size_bytes: int, text: str) -> None:
    """Nothing below the largest unit is `1,000` of a unit."""
    assert size_text(size_bytes) == text
