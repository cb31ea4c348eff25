"""Logs that a real broker wrote, with what its own consumer and dump tool said about them.

A few lie in `tests/data/golden`; a checkout beside the whole collection (`../shared/golden`) uses all of it.

- `<case>/<case>-0/`: the log directory after a clean shutdown.
- `<case>/expected.json`: what a consumer read, and the broker's answers to time lookups.
- `<case>/dump.txt`: what Kafka 4.3.1's dump tool wrote to standard output.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

__all__ = ["GoldenLog", "golden_logs"]

_ROOT = Path(__file__).resolve().parent.parent
_OWN = _ROOT / "tests" / "data" / "golden"
_ALL = _ROOT.parent / "shared" / "golden"


@dataclass(frozen=True)
class GoldenLog:
    """One case of format v2."""

    folder: Path

    @property
    def name(self) -> str:
        """The case's name."""
        return self.folder.name

    @cached_property
    def directory(self) -> Path:
        """The log directory."""
        return next(path for path in self.folder.iterdir() if path.is_dir())

    @cached_property
    def expected(self) -> dict[str, Any]:
        """What the consumer read."""
        loaded: dict[str, Any] = json.loads((self.folder / "expected.json").read_text())
        return loaded

    @cached_property
    def dump(self) -> str:
        """What the dump tool wrote."""
        return (self.folder / "dump.txt").read_text()


def golden_logs() -> list[Any]:
    """Return every case as a pytest parameter; one that says so, loudly, where the whole collection is absent."""
    folders = {path.name: path for parent in (_OWN, _ALL) if parent.is_dir() for path in sorted(parent.glob("v2-*"))}
    cases = [pytest.param(GoldenLog(folder), id=name) for name, folder in sorted(folders.items())]
    if not _ALL.is_dir():
        reason = f"ONLY {len(cases)} GOLDEN LOGS COMPARED: the whole collection is not at ../shared/golden"
        cases.append(pytest.param(None, id="whole-collection", marks=pytest.mark.skip(reason=reason)))
    return cases
