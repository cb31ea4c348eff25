"""Memory follows the bytes of a batch, not the number of tiny things in it."""

from pathlib import Path

from tests.build.tiny_records import CLEANINGS, OPERATIONS, write_many_headers, write_many_records
from tests.programs.own_peak import peak_bytes

_RECORDS = 3_000_000
_RECORD_SECTION_BYTES = 10 * _RECORDS
_HEADERS = 15_000_000
_HEADER_SECTION_BYTES = 2 * _HEADERS
_BUDGET_BYTES = 40 << 20
"""Columns of a piece of a batch, and what they are made into."""


def test_operations_when_a_small_batch_opens_to_very_many_records_then_memory_is_bounded(tmp_path: Path) -> None:
    """Opening a batch takes twice its bytes; its records take no more than some of them do at a time."""
    small, large = write_many_records(tmp_path / "s-0", 1000), write_many_records(tmp_path / "l-0", _RECORDS)

    peaks = peak_bytes(list(OPERATIONS), small, large)

    bound = 2.5 * _RECORD_SECTION_BYTES + _BUDGET_BYTES
    assert list(peaks) == list(OPERATIONS)
    assert {name: peak for name, peak in peaks.items() if peak > bound} == {}


def test_cleanings_when_a_small_batch_opens_to_very_many_records_then_memory_is_bounded(tmp_path: Path) -> None:
    """Beside the batch's bytes there is a byte a record, and what the new batch is made of."""
    small = write_many_records(tmp_path / "s-0", 1000, b"k")
    large = write_many_records(tmp_path / "l-0", _RECORDS, b"k")

    peaks = peak_bytes(list(CLEANINGS), small, large)

    bound = 3.5 * 1.1 * _RECORD_SECTION_BYTES + _BUDGET_BYTES
    assert list(peaks) == list(CLEANINGS)
    assert {name: peak for name, peak in peaks.items() if peak > bound} == {}


def test_operations_when_a_record_has_very_many_headers_then_memory_follows_their_bytes(tmp_path: Path) -> None:
    """A record comes as a whole: each of its headers, of two bytes at least, takes nine in its columns."""
    small, large = write_many_headers(tmp_path / "s-0", 1000), write_many_headers(tmp_path / "l-0", _HEADERS)

    peaks = peak_bytes(list(OPERATIONS), small, large)

    bound = 8 * _HEADER_SECTION_BYTES + _BUDGET_BYTES
    assert list(peaks) == list(OPERATIONS)
    assert {name: peak for name, peak in peaks.items() if peak > bound} == {}
