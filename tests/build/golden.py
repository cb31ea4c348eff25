"""Logs that a real broker wrote, with what its own consumer and dump tool said about them: `tests/data/golden`.

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

__all__ = ["GoldenLog", "golden_logs", "golden_root"]

_FOLDER = Path(__file__).resolve().parents[1] / "data" / "golden"


@dataclass(frozen=True)
class GoldenLog:
    """One case."""

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


def golden_logs(pattern: str = "v[012]-*") -> list[Any]:
    """Return the cases whose names match, every one of formats v0, v1 and v2 if none is given, as pytest parameters."""
    folders = sorted(_FOLDER.glob(pattern))
    if not folders:
        raise LookupError(f"no golden log: folder={_FOLDER} pattern={pattern}")
    return [pytest.param(GoldenLog(folder), id=folder.name) for folder in folders]


def golden_root() -> Path:
    """Return the folder of the files that a broker keeps beside its logs."""
    return _FOLDER / "root"
