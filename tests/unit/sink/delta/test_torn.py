"""What counts as a torn newest entry of the ledger."""

from pathlib import Path

import numpy as np
import pytest

from sparklog.sink.delta.torn import drop_torn_entry
from sparklog.sink.ledger.ledger import Ledger, ledger_log
from sparklog.storage_core.errors import LedgerDamagedError
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.sink_store import in_process, numbers, open_store


@pytest.fixture
def ledger(memory_path: Path) -> Path:
    """The ledger of a store whose only topic was deleted in the newest commit."""
    writer = open_store(memory_path / "s", {"t": {"partitions": 2}}, topic="t")
    writer.append("q", 0, in_process(numbers(0, 5)))
    writer.close()
    ledger = Ledger.open_for_writing(memory_path / "s" / "ledger", UNSHARED)
    ledger.change(lambda rows: rows.without(np.arange(2)), UNSHARED)
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


@pytest.fixture
def written(memory_path: Path) -> Path:
    """The ledger of a store with three micro-batches, whose owners have recorded no version."""
    writer = open_store(memory_path / "s", {"t": {"partitions": 2}}, topic="t")
    for batch in range(3):
        writer.append("q", batch, in_process(numbers(batch * 5, batch * 5 + 5)))
    writer.close()
    (memory_path / "s" / "control" / "ledger-version.writer.json").unlink()
    return memory_path / "s" / "ledger"


def _drop(ledger: Path, content: bytes) -> bool:
    entry = _newest(ledger)
    whole = entry.read_bytes()
    entry.write_bytes(content)
    drop_torn_entry(ledger_log(ledger), UNSHARED)
    is_dropped = not entry.exists()
    entry.write_bytes(whole)
    return is_dropped


def test_entry_when_it_ends_anywhere_then_it_is_torn(written: Path) -> None:
    """In nothing, or in zeros."""
    whole = _newest(written).read_bytes()

    kept = [end for end in range(len(whole)) if not _drop(written, whole[:end])]
    kept_zeros = [end for end in range(len(whole)) if not _drop(written, whole[:end].ljust(len(whole), b"\0"))]

    assert (kept, kept_zeros, _drop(written, whole)) == ([], [], False)


@pytest.mark.parametrize("place", ["begin", "middle", "end"])
def test_entry_when_a_byte_of_any_line_changed_then_it_is_refused_and_stays(written: Path, place: str) -> None:
    """It may have been acknowledged: no power cut changes a byte."""
    entry = _newest(written)
    lines = entry.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    for number, line in enumerate(lines):
        at = {"begin": 1, "middle": line.index(b":"), "end": len(line.rstrip()) - 1}[place]
        changed = b"".join([*lines[:number], line[:at] + b"x" + line[at + 1 :], *lines[number + 1 :]])
        entry.write_bytes(changed)

        with pytest.raises(LedgerDamagedError):
            Ledger.open_for_writing(written, UNSHARED)
        assert entry.read_bytes() == changed


@pytest.mark.parametrize("changed", ["u", "-", "t", '"', '"x', '}"x', "\\u00"])
def test_entry_when_its_last_byte_changed_then_it_is_not_torn(written: Path, changed: str) -> None:
    """A string, a literal or an escape can only begin where JSON allows one."""
    assert not _drop(written, _newest(written).read_bytes().rstrip()[:-1] + changed.encode())


def test_entry_when_the_last_line_is_cut_and_then_ended_then_it_is_not_torn(written: Path) -> None:
    """A line's end comes last."""
    assert not _drop(written, _newest(written).read_bytes()[:-2] + b"\n")


def test_entry_when_it_ends_inside_an_escaped_character_then_it_is_torn(memory_path: Path) -> None:
    """A query's name may have characters that JSON writes as a backslash and a letter, or a number."""
    ledger = Ledger.create(memory_path / "ledger", UNSHARED)
    ledger.update(np.zeros(0, np.int64), {}, ('q\x01"\\\n\u00fc\x1f', 0), 0, UNSHARED)
    whole = _newest(memory_path / "ledger").read_bytes()
    assert b"\\u0001" in whole

    kept = [end for end in range(len(whole)) if not _drop(memory_path / "ledger", whole[:end])]

    assert (kept, _drop(memory_path / "ledger", whole)) == ([], False)
