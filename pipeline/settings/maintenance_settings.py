"""The settings of a maintenance run: the `maintenance` section of the settings file, or options of the command.

| key          | is                                                                   | default |
|--------------|----------------------------------------------------------------------|---------|
| max_bytes    | most bytes that the cleanings of a run read                          | none    |
| max_time     | longest expected duration of a run                                   | none    |
| memory       | memory for the offset map of one Spark task                          | 128 MiB |
| every        | interval from start to start; without it there is one run            | -       |
| metrics_file | metrics file for Prometheus, replaced by each run                    | -       |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.pipeline.settings.section import SettingsSection
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import parse_duration

__all__ = ["MaintenanceSettings", "maintenance_options", "parse_maintenance"]

_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_LEAST_MEMORY: Final = 1 << 20
_LEAST_EVERY_MS: Final = 1000
_MEMORY: Final = 128 << 20
"""Kafka's `log.cleaner.dedupe.buffer.size`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Settings of a maintenance run.

    Attributes:
        max_bytes: most bytes that cleanings read.
        max_time_ms: longest expected duration.
        memory_bytes: of the offset map of a Spark task.
        every_ms: from start to start; None for one run.
        metrics_file: path; None for no file.
    """

    max_bytes: int | None = None
    max_time_ms: int | None = None
    memory_bytes: int = _MEMORY
    every_ms: int | None = None
    metrics_file: str | None = None


def parse_maintenance(section: SettingsSection) -> MaintenanceSettings:
    """Return the settings of a section; adds its problems."""
    memory = _size(section, "memory", _LEAST_MEMORY)
    found = MaintenanceSettings(
        max_bytes=_size(section, "max_bytes", 1),
        max_time_ms=_duration(section, "max_time", 1),
        memory_bytes=_MEMORY if memory is None else memory,
        every_ms=_duration(section, "every", _LEAST_EVERY_MS),
        metrics_file=section.text("metrics_file"),
    )
    section.finish()
    return found


def maintenance_options(given: Mapping[str, object]) -> MaintenanceSettings:
    """Return the settings of the command's options; None is an option that was not given.

    Raises:
        InvalidConfigError: options are invalid; names every problem.
    """
    problems: list[str] = []
    settings = parse_maintenance(SettingsSection(dict(given.items()), "", problems))
    if problems:
        raise InvalidConfigError(*problems)
    return settings


def _size(section: SettingsSection, name: str, least: int) -> int | None:
    text = section.scalar(name)
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        section.note(name, f"{text!r} is not a size such as 512MiB")
        return None
    return _at_least(section, name, int(found[1]) * _FACTORS[found[2].lower()], least)


def _duration(section: SettingsSection, name: str, least: int) -> int | None:
    text = section.scalar(name)
    if text is None:
        return None
    found = parse_duration(text)
    if found is None:
        section.note(name, f"{text!r} is not a time such as 15m")
        return None
    return _at_least(section, name, found, least)


def _at_least(section: SettingsSection, name: str, value: int, least: int) -> int | None:
    if value < least:
        section.note(name, f"{value} is below {least}")
        return None
    return value
