"""The note of truncations under way: what it says comes back, and what it can't say is refused."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.sink.opening.pending_truncations import (
    PendingTruncation,
    read_truncations,
    write_truncations,
)
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.storage.owned_names import UNSHARED

_NOTE = PendingTruncation(
    topic="t",
    partition=1,
    topic_id="id",
    offset=50,
    log_start_offset=5,
    next_offset=44,
    segment_base=40,
    size_bytes=200,
    lost_from=44,
    began_ms=7,
)


def test_truncations_when_written_then_read_back_in_order(tmp_path: Path) -> None:
    """A store without such a file has none under way, and none is made for nothing."""
    store = Store(tmp_path, "id")
    write_truncations(store, [], UNSHARED)
    assert (read_truncations(store), list(tmp_path.iterdir())) == ([], [])

    write_truncations(store, [_NOTE, _NOTE], UNSHARED)
    assert read_truncations(store) == [_NOTE, _NOTE]

    write_truncations(store, [], UNSHARED)
    assert read_truncations(store) == []


@given(data=st.binary(max_size=200) | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps).map(str.encode))
def test_read_truncations_when_bytes_are_arbitrary_then_a_list_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """No other error comes out, whatever is in the file."""
    store = Store(tmp_path_factory.mktemp("store"), "id")
    _put(store, data)
    with contextlib.suppress(CorruptFileError):
        assert read_truncations(store) == []


def _put(store: Store, data: bytes) -> None:
    (store.root / "control").mkdir(exist_ok=True)
    (store.root / "control" / "pending-truncations.json").write_bytes(data)


@pytest.mark.parametrize(
    "wrong",
    [{"offset": -1}, {"offset": "5"}, {"partition": True}, {"topic": "../t"}, {"topic": 1}, {"topic_id": None}],
    ids=str,
)
def test_read_truncations_when_a_field_can_not_be_then_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    """Names become paths, and offsets become a log's end: neither is taken unseen."""
    store = Store(tmp_path, "id")
    write_truncations(store, [_NOTE], UNSHARED)
    content = json.loads((tmp_path / "control" / "pending-truncations.json").read_bytes())
    content["truncations"][0] |= wrong
    _put(store, json.dumps(content).encode())

    with pytest.raises(CorruptFileError):
        read_truncations(store)


def test_read_truncations_when_damaged_then_the_message_names_the_file(tmp_path: Path) -> None:
    """Whoever has to restore it knows which."""
    store = Store(tmp_path, "id")
    write_truncations(store, [_NOTE], UNSHARED)
    _put(store, b"{")

    with pytest.raises(CorruptFileError, match=r"pending-truncations\.json.*restore it from a copy"):
        read_truncations(store)
