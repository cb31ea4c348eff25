"""Settings of a maintenance run: sizes, times, and every problem at once."""

import pytest

from sparklog.pipeline.settings.maintenance_settings import MaintenanceSettings, maintenance_options
from sparklog.storage_core.errors import InvalidConfigError


def test_settings_when_nothing_is_given_then_no_bounds() -> None:
    """A run has no end of its own, and Kafka's memory."""
    assert maintenance_options({}) == MaintenanceSettings()
    assert MaintenanceSettings().memory_bytes == 128 << 20


@pytest.mark.parametrize(
    ("text", "size"), [("5", 5), (7, 7), ("2k", 2048), ("2 KiB", 2048), ("3MiB", 3 << 20), ("1g", 1 << 30)]
)
def test_settings_when_sizes_have_units_then_bytes(text: object, size: int) -> None:
    """As people write them."""
    assert maintenance_options({"max_bytes": text}).max_bytes == size


@pytest.mark.parametrize(("text", "ms"), [("20ms", 20), ("3s", 3000), ("15m", 900_000), ("2h", 7_200_000)])
def test_settings_when_times_have_units_then_ms(text: str, ms: int) -> None:
    """A number alone is no time: nobody knows its unit."""
    assert maintenance_options({"max_time": text}).max_time_ms == ms


def test_settings_when_they_make_no_sense_then_every_problem_is_named() -> None:
    """One error for all."""
    given = {"max_bytes": "many", "max_time": "15", "memory": "1k", "every": "10ms", "metrics": "x"}
    with pytest.raises(InvalidConfigError) as caught:
        maintenance_options(given)

    for name in ("max_bytes", "max_time", "memory", "every", "metrics: unknown key"):
        assert f"{name}" in str(caught.value)
    assert "memory: 1024 is below 1048576" in str(caught.value)
