"""Which records stay, case by case."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparklog.storage_core.cleaner.rewrite.survivors import RecordFacts, RetentionRules, judge_batches, judge_records
from sparklog.storage_core.record.batch_scan import BatchScan, scan_batches
from tests.build.batch_bytes import BatchSpec, segment_bytes
from tests.build.cleaned_log import active

_RULES = RetentionRules(now_ms=0, cleaning_end_offset=1000)


def _scan(*specs: BatchSpec) -> BatchScan:
    return scan_batches(segment_bytes(specs, 0))


def _judge(may_go: bool = False, keeps_tombstones: bool = True, **facts: Any) -> dict[str, bool]:
    """Return what becomes of one record at offset 5 of a data batch; the map speaks for offsets up to 10."""
    scan = _scan(BatchSpec())
    fates = judge_batches(scan, np.array([may_go]), True, _RULES)
    fates.keeps_tombstones[:] = keeps_tombstones
    values = {"offset": 5, "has_later": False, "has_key": True, "has_value": True, "is_erased": False, **facts}
    columns = {name: np.array([value]) for name, value in values.items()}
    judged = judge_records(fates, RecordFacts(batch=np.array([0]), **columns), 10)
    names = ("stays", "is_erased", "is_keyless", "is_superseded", "is_expired")
    return {name: True for name in names if getattr(judged, name)[0]}


@pytest.mark.parametrize(
    ("facts", "fate"),
    [
        ({}, "stays"),
        ({"has_later": True}, "is_superseded"),
        ({"offset": 10, "has_later": True}, "is_superseded"),
        ({"offset": 11, "has_later": True}, "stays"),
        ({"has_key": False}, "is_keyless"),
        ({"has_key": False, "offset": 11}, "stays"),
        ({"has_value": False}, "stays"),
        ({"has_value": False, "keeps_tombstones": False}, "is_expired"),
        ({"has_value": False, "keeps_tombstones": False, "has_later": True}, "is_superseded"),
        ({"has_value": False, "keeps_tombstones": False, "offset": 11}, "stays"),
        ({"is_erased": True}, "is_erased"),
        ({"is_erased": True, "offset": 11}, "is_erased"),
        ({"is_erased": True, "has_value": False, "has_later": True}, "is_erased"),
    ],
)
def test_judge_records_of_a_data_batch_gives_one_fate(facts: dict[str, Any], fate: str) -> None:
    """A record stays, or goes for one reason: erasure first, then no key, a later record, an old tombstone."""
    assert _judge(**facts) == {fate: True}


def test_judge_records_of_a_lost_batch_keeps_none() -> None:
    """Records of an aborted transaction go, above the map too."""
    assert _judge(may_go=True, offset=11) == {}


@pytest.mark.parametrize(
    ("last_offset", "epoch", "expected"),
    [(1, 0, [False, True, False]), (-1, 4, [False, False, True]), (-1, 5, [False, False, False])],
)
def test_judge_batches_keeps_the_last_batch_of_an_active_producer(
    last_offset: int, epoch: int, expected: list[bool]
) -> None:
    """It is the one with its last data; without data left, the control batch of its epoch."""
    data = BatchSpec(producer_id=7, producer_epoch=4)
    scan = _scan(data, data, replace(data, marker=1))
    rules = RetentionRules(now_ms=0, cleaning_end_offset=1000, producers=[active(6, 0), active(7, last_offset, epoch)])

    assert judge_batches(scan, np.zeros(3, np.bool_), True, rules).stays_empty.tolist() == expected


def test_judge_batches_keeps_the_batch_before_the_end_of_the_range() -> None:
    """The batch whose next offset is the end stays, empty if need be, and no other."""
    scan = _scan(BatchSpec(), BatchSpec(last_offset_delta=3), BatchSpec())
    rules = RetentionRules(now_ms=0, cleaning_end_offset=5)

    assert judge_batches(scan, np.zeros(3, np.bool_), True, rules).stays_empty.tolist() == [False, True, False]
