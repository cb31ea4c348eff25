"""What a ledger row says is left to do: read back as written, and anything else is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.sink.ledger.intents import (
    Copy,
    Deletion,
    Import,
    Intent,
    Move,
    Truncation,
    parse_intents,
    render_intents,
)

_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30)
_IDS = st.uuids().map(lambda value: value.hex)
_OFFSETS = st.integers(0, 2**63 - 1)
_INTENTS = st.lists(
    st.builds(Truncation, offset=_OFFSETS, log_start_offset=_OFFSETS, lost_from=_OFFSETS, began_ms=_OFFSETS)
    | st.builds(Copy, target=_NAMES, unique_id=_IDS)
    | st.builds(Move, source=_NAMES, unique_id=_IDS)
    | st.builds(Deletion)
    | st.builds(Import, unique_id=_IDS),
    max_size=4,
).map(tuple)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _is_read_or_refused(text: str) -> None:
    try:
        intents = parse_intents(text)
    except ValueError:
        return
    assert parse_intents(render_intents(intents)) == intents


@given(intents=_INTENTS)
def test_intents_are_read_back_as_written(intents: tuple[Intent, ...]) -> None:
    """Whatever is left to do, in one line."""
    text = render_intents(intents)

    assert parse_intents(text) == intents
    assert "\n" not in text
    assert bool(text) == bool(intents)


@given(text=st.text(max_size=60) | _JSON.map(json.dumps))
def test_parse_when_the_text_is_arbitrary_then_refused(text: str) -> None:
    """Nothing but a `ValueError` comes out."""
    _is_read_or_refused(text)


@given(intents=_INTENTS.filter(bool), data=st.data())
def test_parse_when_one_value_is_another_then_refused_or_read(intents: tuple[Intent, ...], data: st.DataObject) -> None:
    """A value of a wrong type is refused, wherever it stands."""
    content = json.loads(render_intents(intents))
    changed = data.draw(st.sampled_from(content))
    changed[data.draw(st.sampled_from(sorted(changed)))] = data.draw(_JSON)

    _is_read_or_refused(json.dumps(content))


@given(name=st.sampled_from(["../x", "a/b", "..", "", "a\0b"]))
def test_parse_when_an_id_is_a_path_then_refused(name: str) -> None:
    """It must not lead out of a log directory."""
    text = json.dumps([{"kind": "move", "source": "logs", "unique_id": name}])

    with pytest.raises(ValueError, match="unique_id"):
        parse_intents(text)
