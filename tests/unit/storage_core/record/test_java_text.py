import pytest

from sparklog.storage_core.record.java_text import java_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        ("aé€😀".encode(), "aé€😀"),
        (b"\xff", "�"),
        (b"a\x80b", "a�b"),
        (b"\xc3", "�"),
        (b"\xe2\x82", "�"),
        (b"\xe2\x28\xa1", "�(�"),
        (b"\xe0\x80\x80", "���"),
        (b"\xf0\x9f\x98", "�"),
        (b"\xf5\x80", "��"),
        (b"\xed\xa0\x80", "�"),
        (b"x\xed\xa0\x80\xed\xbf\xbfy", "x��y"),
        (b"\xed\xa0", "�"),
        (b"\xed\xa0z", "�z"),
        (b"\xed\x9f\xbf", "\ud7ff"),
    ],
)
def test_java_text_when_bytes_are_no_utf8_then_as_many_replacements_as_java(data: bytes, text: str) -> None:
    """Java's String makes these texts of these bytes."""
    assert java_text(data) == text
