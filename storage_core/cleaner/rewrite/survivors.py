"""Judges which records and batches survive a cleaning: masks over columns, without files.

A batch:

| batch                                                                | its records          | without records |
|----------------------------------------------------------------------|----------------------|-----------------|
| data of an aborted transaction                                       | dropped              | dropped         |
| control batch without data, its delete horizon has passed            | dropped              | dropped         |
| other control batch                                                  | stay                 |                 |
| the last one of an active producer, or below the end of the cleaning | as of any batch      | stays, empty    |
| any other                                                            | one by one, as below | dropped         |

The last batch of a producer is the one with its last data; if none is left, the control batch of its epoch. Format v0
and v1 have no empty batches.

A record of a data batch:

| record                                | stays                                                                      |
|---------------------------------------|----------------------------------------------------------------------------|
| of a key to erase                     | never, except in the last line of this table                               |
| above the map's latest offset         | always                                                                     |
| without key                           | never                                                                      |
| with a value                          | if the map has no later one of its key                                     |
| without value (a tombstone)           | the same, and v2: until its batch's delete horizon; v0, v1: while its      |
|                                       | segment's modification time is above the legacy delete horizon             |
| a tombstone of the dirty part, if     | if the map has no later record of its key: its deleted records may lie in  |
| tasks clean groups                    | a group that is not done                                                   |

A batch of v2 that keeps a tombstone, or is a marker without data, gets a delete horizon if it has none: so each stays
for `delete.retention.ms` after the first cleaning that saw it.

Source: Kafka Cleaner.cleanInto, shouldRetainRecord, MemoryRecords.filterTo; KIP-534.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparklog.storage_core.checkpoint.producer_snapshot import ProducerState
from sparklog.storage_core.cleaner.survey.cleaned_transactions import is_control
from sparklog.storage_core.log_config import INT64_MAX
from sparklog.storage_core.record.attributes import DELETE_HORIZON_BIT
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.record.batch_scan import BatchScan

__all__ = ["BatchFates", "RecordFacts", "RecordFates", "RetentionRules", "judge_batches", "judge_records"]

_Bools = npt.NDArray[np.bool_]
_Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """Settings for the judgement of batches.

    Attributes:
        cleaning_end_offset: the batch right below it stays.
        tombstones_stay_from: tombstones of batches that reach this offset stay, old or to be erased.
    """

    now_ms: int
    cleaning_end_offset: int
    producers: Sequence[ProducerState] = ()
    tombstones_stay_from: int = INT64_MAX
    _ids: _Int64s = field(init=False)
    _last_offsets: _Int64s = field(init=False)
    _epochs: _Int64s = field(init=False)

    def __post_init__(self) -> None:
        known = sorted({each.producer_id: each for each in self.producers}.items())
        columns = [(producer_id, each.last_offset, each.producer_epoch) for producer_id, each in known]
        ids, last_offsets, epochs = np.array(columns, np.int64).reshape(-1, 3).T
        object.__setattr__(self, "_ids", ids.copy())
        object.__setattr__(self, "_last_offsets", last_offsets.copy())
        object.__setattr__(self, "_epochs", epochs.copy())

    def is_last_of_producer(self, scan: BatchScan, control: _Bools) -> _Bools:
        """Return (b,) whether each batch is the last one of an active producer."""
        found = np.zeros(len(scan), np.bool_)
        places = np.flatnonzero((scan.magic >= MAGIC_V2) & (scan.producer_id >= 0))
        if not len(places) or not len(self._ids):
            return found
        slots = np.minimum(np.searchsorted(self._ids, scan.producer_id[places]), len(self._ids) - 1)
        last_offset = self._last_offsets[slots]
        by_epoch = control[places] & (scan.producer_epoch[places] == self._epochs[slots])
        is_last = np.where(last_offset >= 0, scan.last_offset[places] == last_offset, by_epoch)
        found[places] = is_last & (self._ids[slots] == scan.producer_id[places])
        return found


@dataclass(frozen=True, slots=True)
class BatchFates:
    """Judgement of each of b batches.

    Attributes:
        is_control: whether it is a control batch: all its records stay, or none.
        is_aborted: whether it is aborted data.
        loses_records: whether all its records are dropped.
        stays_empty: whether it stays without records.
        keeps_tombstones: whether its tombstones are too young to drop.
        holds_tombstones: whether its tombstones stay until a later one of their keys, to be erased or not.
        is_done_marker: whether it is a marker without data, which gets a delete horizon.
    """

    is_control: _Bools
    is_aborted: _Bools
    loses_records: _Bools
    stays_empty: _Bools
    keeps_tombstones: _Bools
    holds_tombstones: _Bools
    is_done_marker: _Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """Facts of n records.

    Attributes:
        batch: (n,) number of each one's batch.
        has_later: (n,) whether there is a later record of its key.
        has_key: (n,) and `has_value` (n,): whether these are not null.
        is_erased: (n,) whether its key is to be erased; None for none.
    """

    batch: _Int64s
    offset: _Int64s
    has_later: _Bools
    has_key: _Bools
    has_value: _Bools
    is_erased: _Bools | None = None


@dataclass(frozen=True, slots=True)
class RecordFates:
    """Judgement of n records; at most one of the reasons is true.

    Attributes:
        stays: (n,).
        is_erased, is_keyless, is_superseded, is_expired: (n,) why a record of a kept batch is dropped; expired ones are
            tombstones.
    """

    stays: _Bools
    is_erased: _Bools
    is_keyless: _Bools
    is_superseded: _Bools
    is_expired: _Bools


def judge_batches(scan: BatchScan, may_go: _Bools, keeps_legacy_tombstones: bool, rules: RetentionRules) -> BatchFates:
    """Judge batches, before their records.

    Args:
        may_go: (b,) of `CleanedTransactions`.
        keeps_legacy_tombstones: whether their segment was modified after the legacy delete horizon.
    """
    control, is_v2 = is_control(scan), scan.magic >= MAGIC_V2
    has_horizon = is_v2 & ((scan.attributes & DELETE_HORIZON_BIT) != 0)
    is_over = has_horizon & (scan.base_timestamp <= rules.now_ms)
    is_end = scan.next_offset == rules.cleaning_end_offset
    return BatchFates(
        is_control=control,
        is_aborted=may_go & ~control,
        loses_records=may_go & (~control | is_over),
        stays_empty=is_v2 & (is_end | rules.is_last_of_producer(scan, control)),
        keeps_tombstones=np.where(is_v2, ~is_over, keeps_legacy_tombstones),
        holds_tombstones=scan.last_offset >= rules.tombstones_stay_from,
        is_done_marker=may_go & control,
    )


def judge_records(fates: BatchFates, facts: RecordFacts, latest_offset: int) -> RecordFates:
    """Judge records.

    Args:
        fates: (b,) of their batches.
        latest_offset: last offset that the map covers.
    """
    batch, has_key, has_value = facts.batch, facts.has_key, facts.has_value
    is_data = ~(fates.is_control | fates.loses_records)[batch]
    nothing = np.zeros(len(batch), np.bool_)
    may_expire = ~has_value & ~fates.holds_tombstones[batch]
    erased = nothing if facts.is_erased is None else facts.is_erased & is_data & has_key & (has_value | may_expire)
    is_known = is_data & (facts.offset <= latest_offset) & ~erased
    is_keyless = is_known & ~has_key
    is_superseded = is_known & has_key & facts.has_later
    is_expired = nothing
    if not has_value.all():
        is_expired = is_known & has_key & ~is_superseded & may_expire & ~fates.keeps_tombstones[batch]
    goes = erased | is_keyless | is_superseded | is_expired
    if fates.loses_records.any():
        goes |= fates.loses_records[batch]
    return RecordFates(~goes, erased, is_keyless, is_superseded, is_expired)
