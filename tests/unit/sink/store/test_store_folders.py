"""The folder of a store: what becomes one, and what is left alone."""

from pathlib import Path

import pytest

from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError, UnsupportedFormatError
from tests.build.sink_store import contents, in_process, open_store, rows

_TOPICS = {"orders": {"partitions": 1}}


def test_open_when_another_store_owns_a_log_dir_then_refused_and_nothing_changed(tmp_path: Path) -> None:
    """An empty log of another store, or of a broker, is not ours to remove."""
    shared = str(tmp_path / "disk")
    open_store(tmp_path / "first", _TOPICS, log_dirs=(shared,)).close()
    open_store(tmp_path / "second", {"payments": {}}).close()
    before = contents(tmp_path / "disk")

    with pytest.raises(InvalidConfigError, match="disk belongs to another store or broker"):
        open_store(tmp_path / "second", {"payments": {}, **_TOPICS}, log_dirs=(shared, "logs"))

    assert contents(tmp_path / "disk") == before


def test_open_when_properties_are_gone_from_an_old_store_then_its_ledger_stays(tmp_path: Path) -> None:
    """A ledger that has outlived its first entries is still a ledger, wherever its logs are."""
    store, disk = tmp_path / "store", str(tmp_path / "disk")
    writer = open_store(store, _TOPICS, log_dirs=(disk,))
    for batch_id in range(110):
        writer.append("query", batch_id, in_process(rows(topic=["orders"], value=[b"x"])))
    writer.close()
    (store / "store.properties").unlink()
    before = contents(store / "ledger")

    with pytest.raises(LedgerDamagedError, match=r"store\.properties is gone"):
        open_store(store, _TOPICS)

    assert contents(store / "ledger") == before


def test_find_when_properties_are_not_text_then_says_so_in_one_line(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are a layout this release does not know, not a traceback."""
    (tmp_path / "store.properties").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(UnsupportedFormatError, match=r"layout\.version"):
        Store.find(tmp_path)
