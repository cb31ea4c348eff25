"""Escapes written by the kernel and by Python are the same, and nothing is left that a terminal obeys."""

import re
import unicodedata

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.inspect.dump.line_program import Contents
from sparklog.storage_core.visible_text import visible, visible_json

_ODD = st.sampled_from(
    "\x00\t\n\r\x1b\x7f\x80\x9f\xa0\u061b\u061c\u200d\u200e\u200f\u2027\u2028\u202e\u202f\u2065\u2066\u2069\u206a\\"
)
_TEXTS = st.lists(st.none() | st.text(st.characters(codec="utf-8") | _ODD), min_size=1, max_size=20)


@given(_TEXTS, _TEXTS)
def test_contents_when_made_visible_then_each_is_what_visible_makes_of_it(
    first: list[str | None], second: list[str | None]
) -> None:
    """Columns and single texts have one rule, nulls included."""
    rows = min(len(first), len(second))
    shown = Contents.of_columns([pa.array(each[:rows], pa.string()) for each in (first, second)]).visible()

    for column, texts in enumerate((first, second)):
        for row, text in enumerate(texts[:rows]):
            size = int(shown.sizes[column, row])
            start = int(shown.starts[column, row])
            found = None if size < 0 else shown.source[start : start + size].tobytes().decode()
            assert found == (None if text is None else visible(text))


@given(st.text(st.characters() | _ODD))
def test_visible_when_text_is_any_then_no_control_or_direction_is_left(text: str) -> None:
    """Neither lines nor JSON hold a control character, a mark of direction, a line separator or half a pair."""
    for shown in (visible(text), visible_json(text)):
        kinds = {unicodedata.category(each) for each in shown}
        assert not kinds & {"Cc", "Cs", "Zl", "Zp"}
        assert not any(
            unicodedata.bidirectional(each) in _DIRECTIONS or re.match("[\u200e\u200f\u061c]", each) for each in shown
        )


_DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
