"""What is known of a log's transactions and producers before it is cleaned."""

from pathlib import Path

import pytest

from sparklog.storage_core.cleaner.survey.survey_log import survey_transactions
from sparklog.storage_core.index.transaction_index import AbortedTransaction, pack_transaction_entries
from sparklog.storage_core.log.files.names import TXNINDEX, segment_file_name
from sparklog.storage_core.log.scan.log_walk import SegmentList
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.record.control_records import ControlType
from tests.build.transaction_log import Data, Marker, write_transaction_log

_ABORT = ControlType.ABORT


def _survey(directory: Path, end: int, start: int = 0, now_ms: int = 0) -> tuple[list[AbortedTransaction], int]:
    surveyed = survey_transactions(SegmentList(directory, end), start, now_ms)
    return list(surveyed.aborted), surveyed.last_stable_offset


def test_survey_when_transactions_are_aborted_then_as_their_indexes_say(memory_path: Path) -> None:
    """Nested ones, over segment borders, and one that is open at the end."""
    log = write_transaction_log(
        memory_path,
        [
            [Data(2), Data(1, 7), Data(3, 8)],
            [Data(1, 7), Marker(8, _ABORT), Data(1, 9), Marker(7, _ABORT)],
            [Data(1, 7), Marker(7), Data(1)],
        ],
    )
    aborted, stable = _survey(memory_path, log.log_end_offset)

    assert aborted == [each for entries in log.aborted.values() for each in entries]
    assert stable == log.last_stable_offset < log.log_end_offset


@pytest.mark.parametrize(("first", "stable", "is_taken"), [(1, 5, True), (1, 6, True), (0, 5, False), (1, 7, False)])
def test_survey_when_an_index_knows_an_earlier_beginning_then_taken_if_it_can_be(
    memory_path: Path, first: int, stable: int, is_taken: bool
) -> None:
    """The first data may be gone; what lies before the producer's last marker is another transaction's."""
    write_transaction_log(memory_path, [[Marker(7), Data(2), Data(2, 7), Marker(7, _ABORT), Data(1)]])
    entry = AbortedTransaction(0, 7, first, 5, stable)
    (memory_path / segment_file_name(0, TXNINDEX)).write_bytes(pack_transaction_entries([entry]))
    aborted, _ = _survey(memory_path, 7)

    assert aborted == [entry if is_taken else AbortedTransaction(0, 7, 3, 5, 6)]


def test_survey_when_an_index_is_damaged_then_the_log_says_it(memory_path: Path) -> None:
    """Indexes have no CRC, and are not needed."""
    write_transaction_log(memory_path, [[Data(2, 7), Marker(7, _ABORT), Data(1)]])
    (memory_path / segment_file_name(0, TXNINDEX)).write_bytes(b"\x00\x07" * 17)

    assert _survey(memory_path, 4)[0] == [AbortedTransaction(0, 7, 0, 2, 3)]


def test_survey_when_producers_have_expired_then_left_out(memory_path: Path) -> None:
    """A broker forgets them after a day, and cleans their last batches like any other."""
    write_transaction_log(memory_path, [[Data(2, 7), Marker(7), Data(1)]])
    known = survey_transactions(SegmentList(memory_path, 4), 0, 0).producers
    expired = survey_transactions(SegmentList(memory_path, 4), 0, INT64_MAX).producers

    assert [(each.producer_id, each.last_offset) for each in known] == [(7, -1)]
    assert expired == ()


def test_survey_when_a_transaction_spans_segments_then_it_is_open_at_their_borders(memory_path: Path) -> None:
    """Whoever begins at a segment knows of whose transactions data lies in front of it, and which are aborted."""
    log = write_transaction_log(
        memory_path,
        [[Data(1, 7), Data(1, 8), Data(1, 9), Marker(9)], [Data(1), Marker(7, _ABORT)], [Marker(8), Data(1, 7)]],
    )
    surveyed = survey_transactions(SegmentList(memory_path, log.log_end_offset), 0, 0)
    borders = [(base, sorted(producers)) for base, producers in surveyed.borders]

    assert borders == [(0, []), (4, [7, 8]), (6, [8])]
    assert list(surveyed.transactions_of(4, 6).aborted) == log.aborted[4]
    assert list(surveyed.transactions_of(6, 8).aborted) == []
