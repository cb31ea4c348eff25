"""The ledger as it was."""

import random
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.versions import AsOf, open_ledger_at
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import in_process, numbers, open_events


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    """A ledger after three micro-batches of 10 records."""
    with closing(open_events(tmp_path / "store")) as writer:
        for batch in range(3):
            writer.append("q", batch, in_process(numbers(batch * 10, batch * 10 + 10)))
    return Store.find(tmp_path / "store").ledger_path


def _count(ledger: Ledger) -> int:
    return sum(ledger.state(row).log_end_offset for row in (ledger.rows[TopicPartition("events", n)] for n in (0, 1)))


def test_open_ledger_at_when_a_version_is_kept_then_it_is_the_state_of_then(ledger_path: Path) -> None:
    """Each version holds the offsets that were committed with it."""
    newest = Ledger.open(ledger_path).version

    counts = [_count(open_ledger_at(ledger_path, AsOf(version=newest - back))) for back in (0, 1, 2)]

    assert counts == [30, 20, 10]


def test_open_ledger_at_when_a_time_is_given_then_it_is_the_newest_version_not_later(ledger_path: Path) -> None:
    """A time in the future means the newest version; one before the first has none."""
    newest = Ledger.open(ledger_path).version

    assert open_ledger_at(ledger_path, AsOf(timestamp_ms=10**15)).version == newest
    with pytest.raises(InvalidConfigError, match="does not reach back so far: timestamp_ms=1000 oldest_timestamp_ms="):
        open_ledger_at(ledger_path, AsOf(timestamp_ms=1000))


def test_open_ledger_at_when_a_version_is_gone_then_the_error_says_what_there_is(ledger_path: Path) -> None:
    """A version in the future, and one whose data file was removed, are wrong settings."""
    newest = Ledger.open(ledger_path).version
    kept = {uri.rpartition("/")[2] for uri in DeltaTable(ledger_path.as_uri()).file_uris()}
    for path in ledger_path.glob("*.parquet"):
        if path.name not in kept:
            path.unlink()

    for version in (newest + 1, newest - 1):
        with pytest.raises(InvalidConfigError, match=f"does not hold version={version} any more, or never did"):
            open_ledger_at(ledger_path, AsOf(version=version))


def test_open_ledger_at_when_any_bit_of_an_older_data_file_changes_then_refused_or_the_same(ledger_path: Path) -> None:
    """The past is checked as the present is, and damage is never a library's error."""
    version = Ledger.open(ledger_path).version - 1
    (uri,) = DeltaTable(ledger_path.as_uri(), version=version).file_uris()
    path, states = ledger_path / uri.rpartition("/")[2], open_ledger_at(ledger_path, AsOf(version=version)).states()
    before, refused = path.read_bytes(), 0
    for bit in random.Random(1).sample(range(len(before) * 8), 200):
        changed = bytearray(before)
        changed[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(changed)
        try:
            assert open_ledger_at(ledger_path, AsOf(version=version)).states() == states
        except LedgerDamagedError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("part", [0, 1, 2])
def test_open_ledger_at_when_an_older_file_is_cut_then_refused(ledger_path: Path, part: int) -> None:
    """Damage of what is kept is damage, not a version that was never there."""
    version = Ledger.open(ledger_path).version - 1
    (uri,) = DeltaTable(ledger_path.as_uri(), version=version).file_uris()
    path = ledger_path / uri.rpartition("/")[2]
    path.write_bytes(path.read_bytes()[: part * 1000])

    with pytest.raises(LedgerDamagedError):
        open_ledger_at(ledger_path, AsOf(version=version))


@pytest.mark.parametrize("version", [-1, 2**70])
def test_open_ledger_at_when_a_version_can_not_be_then_it_is_a_wrong_setting(ledger_path: Path, version: int) -> None:
    """Any number may be asked for."""
    with pytest.raises(InvalidConfigError, match=f"does not hold version={version} any more, or never did"):
        open_ledger_at(ledger_path, AsOf(version=version))


def test_open_ledger_at_when_entries_went_with_a_checkpoint_then_it_is_a_wrong_setting(tmp_path: Path) -> None:
    """What a checkpoint replaced is gone, not damaged."""
    ledger = Ledger.create(tmp_path / "ledger", UNSHARED)
    for batch_id in range(101):
        ledger.update(np.zeros(0, np.int64), {}, ("q", batch_id), 0, UNSHARED)

    with pytest.raises(InvalidConfigError, match="does not hold version=50 any more"):
        open_ledger_at(tmp_path / "ledger", AsOf(version=50))
