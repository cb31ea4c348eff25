"""The list of topics being deleted and logs being moved: read back as written, and damage is an error of its own."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.sink.opening.pending_work import LogMove, PendingWork, TopicDeletion, parse_pending, render_pending
from sparklog.storage_core.errors import CorruptFileError

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


@given(_WORK)
def test_pending_work_is_read_back_as_written(work: PendingWork) -> None:
    """Whatever is under way."""
    assert parse_pending(render_pending(work)) == work


def _is_parsed_or_refused(data: bytes) -> None:
    try:
        work = parse_pending(data)
    except CorruptFileError:
        return
    assert parse_pending(render_pending(work)) == work


@given(st.binary(max_size=60))
def test_parse_pending_when_bytes_are_arbitrary_then_refused_as_damage(data: bytes) -> None:
    """Nothing but this module's own error comes out."""
    _is_parsed_or_refused(data)


@given(_WORK, st.data())
def test_parse_pending_when_one_value_is_another_then_refused_or_read(work: PendingWork, data: st.DataObject) -> None:
    """A value of a wrong type is damage, wherever it stands."""
    content = json.loads(render_pending(work))
    lists = [each for each in (content, *content["deletions"], *content["moves"]) if each]
    changed = data.draw(st.sampled_from(lists))
    changed[data.draw(st.sampled_from(sorted(changed)))] = data.draw(_JSON)

    _is_parsed_or_refused(json.dumps(content).encode())


@given(_MOVES, st.sampled_from(["../x", "a/b", "..", "", "a\0b"]))
def test_parse_pending_when_a_name_is_a_path_then_refused(move: LogMove, name: str) -> None:
    """A damaged list must not lead out of a log directory."""
    for key in ("topic", "unique_id"):
        content = json.loads(render_pending(PendingWork(moves=(move,))))
        content["moves"][0][key] = name
        with pytest.raises(CorruptFileError):
            parse_pending(json.dumps(content).encode())
