import pytest

from sparklog.storage_core.log.files.names import INDEX, LOG, parse_base_offset, segment_file_name


def test_segment_file_name_when_offset_given_then_twenty_digits() -> None:
    """A segment's files are named after its base offset, zero-padded."""
    assert segment_file_name(42, LOG) == "00000000000000000042.log"
    assert segment_file_name(2**63 - 1, INDEX) == "09223372036854775807.index"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000042.log", 42),
        ("00000000000000000042.log.deleted", 42),
        ("42.log", None),
        ("00000000000000000042", None),
        ("leader-epoch-checkpoint", None),
        ("0000000000000000004x.log", None),
    ],
)
def test_parse_base_offset_when_name_given_then_offset_or_none(name: str, expected: int | None) -> None:
    """Only names of twenty digits and a suffix belong to a segment."""
    assert parse_base_offset(name) == expected
