"""What counts as a torn newest entry of the ledger where no log is left."""

from pathlib import Path

import numpy as np
import pytest

from sink.ledger import Ledger
from storage_core.storage.owned_names import UNSHARED
from tests.sink_store import in_process, numbers, open_store


@pytest.fixture
def ledger(memory_path: Path) -> Path:
    """The ledger of a store whose only topic was deleted in the newest commit."""
    writer = open_store(memory_path / "s", {"t": {"partitions": 2}}, topic="t")
    writer.append("q", 0, in_process(numbers(0, 5)))
    writer.close()
    ledger = Ledger.open_for_writing(memory_path / "s" / "ledger", UNSHARED)
    ledger.remove(np.arange(2))
    return memory_path / "s" / "ledger"


def _newest(ledger: Path) -> Path:
    return max((ledger / "_delta_log").glob("*.json"))


def test_opening_when_the_newest_entry_leaves_no_log_then_it_counts(ledger: Path) -> None:
    """It names no data file because there are no rows; dropping it would bring a deleted topic back."""
    version = Ledger.open(ledger).version

    opened = Ledger.open_for_writing(ledger, UNSHARED)

    assert (opened.version, len(opened.rows)) == (version, 0)
    assert opened.transaction_version("q") == 0


def test_opening_when_nothing_was_left_and_an_entry_changes_nothing_then_it_counts(ledger: Path) -> None:
    """A take-over by force commits the rows as they are: none."""
    Ledger.open_for_writing(ledger, UNSHARED).fence()
    version = Ledger.open(ledger).version

    assert Ledger.open_for_writing(ledger, UNSHARED).version == version


@pytest.mark.parametrize("lines", [0, 1])
def test_opening_when_the_entry_that_leaves_no_log_is_torn_then_it_is_dropped(ledger: Path, lines: int) -> None:
    """Nobody was told of it."""
    entry = _newest(ledger)
    entry.write_text("".join(entry.read_text().splitlines(keepends=True)[:lines]))

    assert len(Ledger.open_for_writing(ledger, UNSHARED).rows) == 2
