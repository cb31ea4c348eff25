from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage_core.inspect.dump.control import control_text


@given(st.binary(max_size=8) | st.integers(0, 7).map(lambda number: bytes((0, 0, 0, number))), st.binary(max_size=60))
def test_arbitrary_control_records_are_one_line(key: bytes, value: bytes) -> None:
    """Whatever key and value hold, there is one line of text that names a type."""
    text = control_text(key, value)

    assert text
    assert "\n" not in text
