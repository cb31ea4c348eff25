"""A ledger whose entries are tidied away while somebody reads it."""

from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import ledger_log
from sparklog.storage_core.errors import LedgerDamagedError


def _ledger(path: Path) -> Path:
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / "0.json").touch()
    return path


def test_read_when_an_entry_went_meanwhile_then_read_again(tmp_path: Path) -> None:
    """The writer's checkpoint says what the entry said."""
    path = _ledger(tmp_path / "ledger")
    reads: list[int] = []

    def read() -> str:
        reads.append(1)
        if len(reads) == 1:
            (path / "_delta_log" / "0.json").unlink()
            raise FileNotFoundError("0.json")
        return "rows"

    assert ledger_log(path).read_beside_writer(read) == "rows"


def test_read_when_nothing_changed_then_the_damage_is_told_at_once(tmp_path: Path) -> None:
    """Reading it again would find the same."""
    reads: list[int] = []

    def read() -> str:
        reads.append(1)
        raise ValueError("torn")

    with pytest.raises(LedgerDamagedError, match="torn"):
        ledger_log(_ledger(tmp_path / "ledger")).read_beside_writer(read)
    assert len(reads) == 1


def test_read_when_entries_come_all_the_time_then_not_for_ever(tmp_path: Path) -> None:
    """Damage under a busy writer is told, too."""
    path = _ledger(tmp_path / "ledger")
    reads: list[int] = []

    def read() -> str:
        reads.append(1)
        (path / "_delta_log" / f"{len(reads)}.json").touch()
        raise ValueError("torn")

    with pytest.raises(LedgerDamagedError):
        ledger_log(path).read_beside_writer(read)
    assert 1 < len(reads) < 100
