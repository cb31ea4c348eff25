"""The list of topics being deleted and logs being moved: read back as written, and damage is an error of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.sink.opening.pending_work import LogMove, PendingWork, TopicDeletion, read_pending, write_pending
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.storage.owned_names import UNSHARED

_TOPICS = st.from_regex(r"[a-zA-Z0-9_-]{1,249}", fullmatch=True)
_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30)
_PARTITIONS = st.integers(0, 2**31 - 1)
_DELETIONS = st.builds(
    TopicDeletion,
    topic=_TOPICS,
    topic_id=_NAMES,
    logs=st.lists(st.tuples(_PARTITIONS, _NAMES), max_size=4).map(tuple),
)
_MOVES = st.builds(
    LogMove,
    topic=_TOPICS,
    partition=_PARTITIONS,
    topic_id=_NAMES,
    source=_NAMES,
    target=_NAMES,
    unique_id=st.uuids().map(lambda value: value.hex),
)
_WORK = st.builds(
    PendingWork,
    deletions=st.lists(_DELETIONS, max_size=3).map(tuple),
    moves=st.lists(_MOVES, max_size=3).map(tuple),
    roots=st.lists(_NAMES, max_size=3).map(tuple),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a store that has the list, so that an empty one is written, too."""
    store = Store(tmp_path_factory.mktemp("store"), "id")
    _file(store).parent.mkdir()
    _file(store).touch()
    return store


def _file(store: Store) -> Path:
    return store.root / "control" / "pending-directories.json"


def _content(store: Store, work: PendingWork) -> dict[str, Any]:
    write_pending(store, work, UNSHARED)
    content: dict[str, Any] = json.loads(_file(store).read_bytes())
    return content


@given(work=_WORK)
def test_pending_work_is_read_back_as_written(store: Store, work: PendingWork) -> None:
    """Whatever is under way."""
    write_pending(store, work, UNSHARED)

    assert read_pending(store) == work


def _is_read_or_refused(store: Store, data: bytes) -> None:
    _file(store).write_bytes(data)
    try:
        work = read_pending(store)
    except CorruptFileError:
        return
    write_pending(store, work, UNSHARED)
    assert read_pending(store) == work


@given(data=st.binary(max_size=60))
def test_read_pending_when_bytes_are_arbitrary_then_refused_as_damage(store: Store, data: bytes) -> None:
    """Nothing but this module's own error comes out."""
    _is_read_or_refused(store, data)


@given(work=_WORK, data=st.data())
def test_read_pending_when_one_value_is_another_then_refused_or_read(
    store: Store, work: PendingWork, data: st.DataObject
) -> None:
    """A value of a wrong type is damage, wherever it stands."""
    content = _content(store, work)
    lists = [each for each in (content, *content["deletions"], *content["moves"]) if each]
    changed = data.draw(st.sampled_from(lists))
    changed[data.draw(st.sampled_from(sorted(changed)))] = data.draw(_JSON)

    _is_read_or_refused(store, json.dumps(content).encode())


@given(move=_MOVES, name=st.sampled_from(["../x", "a/b", "..", "", "a\0b"]))
def test_read_pending_when_a_name_is_a_path_then_refused(store: Store, move: LogMove, name: str) -> None:
    """A damaged list must not lead out of a log directory."""
    for key in ("topic", "unique_id"):
        content = _content(store, PendingWork(moves=(move,)))
        content["moves"][0][key] = name
        _file(store).write_text(json.dumps(content))
        with pytest.raises(CorruptFileError):
            read_pending(store)
