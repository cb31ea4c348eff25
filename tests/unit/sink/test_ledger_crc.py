import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sink.ledger import Ledger
from sink.ledger_crc import committed_crc, rows_crc
from sink.store import Store
from storage_core.errors import LedgerDamagedError
from tests.damaged_store import write_store

_CHANGES = 300


@pytest.fixture
def ledger(memory_path: Path) -> Path:
    """The ledger of a small store."""
    return Store.find(write_store(memory_path / "store")).ledger_path


def _newest(ledger: Path) -> tuple[Path, Path]:
    """Return the newest log entry and data file."""
    entry = max((ledger / "_delta_log").glob("*.json"))
    return entry, max(ledger.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def _changed(path: Path, count: int) -> Iterator[bytes]:
    data, draw = path.read_bytes(), random.Random(7)
    for place in draw.sample(range(len(data) * 8), count):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << (place % 8)
        yield bytes(changed)


@pytest.mark.parametrize("number", [0, 1])
def test_ledger_when_any_bit_changes_then_refused_or_the_same(ledger: Path, number: int) -> None:
    """Nothing that is read from a ledger can change unnoticed, in its data or in its log."""
    path, states = _newest(ledger)[number], Ledger.open(ledger).states()
    before, refused = path.read_bytes(), 0
    for content in _changed(path, _CHANGES):
        path.write_bytes(content)
        try:
            assert Ledger.open(ledger).states() == states
        except LedgerDamagedError:
            refused += 1
    path.write_bytes(before)
    assert refused > _CHANGES // 10


def test_rows_crc_when_a_value_moves_to_another_row_then_another_one() -> None:
    """Every value counts, and its place."""
    rows = {"topic": ["a", "b"]}, {"log_end_offset": np.array([1, 2], np.int64)}
    swapped = {"topic": ["a", "b"]}, {"log_end_offset": np.array([2, 1], np.int64)}

    assert rows_crc(*rows) == rows_crc(*rows)
    assert rows_crc(*rows) != rows_crc(*swapped)


def test_committed_crc_when_there_is_no_entry_then_none(tmp_path: Path) -> None:
    """A checkpoint may have replaced the entry; an earlier release wrote none."""
    (tmp_path / "1.json").write_bytes(b'{"commitInfo":{"operation":"WRITE"}}\n')

    assert (committed_crc(tmp_path / "0.json"), committed_crc(tmp_path / "1.json")) == (None, None)
