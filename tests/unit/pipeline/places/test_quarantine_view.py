"""What `describe` says of diverted rows."""

import json
import os
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.quarantine.claims import store_part
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.quantity_text import size_text
from tests.build.sink_store import in_process, open_events, rows
from tests.sparklog_command import Sparklog

_BAD = rows(value=["2", "3", "4"], timestamp=[-9, None, -9])


def _divert(store: Path, quarantine: Path | None = None) -> None:
    options = {} if quarantine is None else {"quarantine": quarantine}
    with closing(open_events(store, on_invalid="quarantine", **options)) as writer:
        writer.append("query", 0, in_process(_BAD, rows(value=["1"], timestamp=[5])))


@pytest.mark.parametrize("place", ["inside", "outside"])
def test_describe_when_rows_were_diverted_then_counts_them_by_reason(
    sparklog: Sparklog, memory_path: Path, place: str
) -> None:
    """The store knows where they are; another store's rows in the same folder are not counted."""
    store, bad = memory_path / "store", memory_path / "bad" if place == "outside" else None
    _divert(store, bad)
    if bad is not None:
        _divert(memory_path / "other", bad)

    found = json.loads(sparklog("describe", store, "--json").out)["quarantine"]

    reasons = {"timestamp is out of range": 2, "timestamp is null or could not be parsed": 1}
    assert (found["rows"], found["files"], found["reasons"]) == (3, 1, reasons)
    assert found["size_bytes"] > 0
    lines = sparklog("describe", store).out.splitlines()
    assert f"quarantine: 3 rows in 1 files, {size_text(found['size_bytes'])}" in lines
    assert "  2 x timestamp is out of range" in lines


def test_describe_when_nothing_was_diverted_then_says_nothing_of_it(sparklog: Sparklog, memory_path: Path) -> None:
    """Neither as text nor as JSON."""
    open_events(memory_path / "store", on_invalid="quarantine").close()

    assert "quarantine" not in json.loads(sparklog("describe", memory_path / "store", "--json").out)
    assert "quarantine" not in sparklog("describe", memory_path / "store").out


def test_describe_when_rows_are_of_an_earlier_release_then_are_counted_too(
    sparklog: Sparklog, memory_path: Path
) -> None:
    """Their folder lacks the store's id."""
    store = memory_path / "store"
    _divert(store)
    folder = store_part(store / "quarantine", Store.find(store))
    (folder / "query-query").rename(store / "quarantine" / "query")

    assert json.loads(sparklog("describe", store, "--json").out)["quarantine"]["rows"] == 3


@pytest.mark.parametrize("damage", ["whole", "footer"])
def test_describe_when_a_file_is_damaged_then_names_it_and_shows_the_logs(
    sparklog: Sparklog, memory_path: Path, damage: str
) -> None:
    """The table of logs does not depend on it."""
    store = memory_path / "store"
    _divert(store)
    (path,) = (store / "quarantine").rglob("*.parquet")
    data = path.read_bytes()
    path.write_bytes(b"damaged" if damage == "whole" else data[:-40] + b"\xff" * 32 + data[-8:])
    ran = sparklog("describe", store)

    assert ran.code == 0
    assert f"quarantine: a file can't be read: path={path}" in ran.out
    assert "events-0" in ran.out


def test_describe_when_a_fifo_lies_among_the_files_then_names_it(sparklog: Sparklog, memory_path: Path) -> None:
    """It is not taken for a file that a merger has replaced."""
    store = memory_path / "store"
    _divert(store)
    (path,) = (store / "quarantine").rglob("*.parquet")
    path.unlink()
    os.mkfifo(path)
    ran = sparklog("describe", store)

    assert ran.code == 0
    assert f"quarantine: a file can't be read: path={path} ([Errno 22] is a FIFO" in ran.out
