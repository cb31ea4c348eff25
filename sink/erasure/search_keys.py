"""Finds the segments of a log that have records of some keys.

Segments may change during a search; if retention removes the first ones, the search starts again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from sparklog.sink.erasure.forget_request import ForgetRequest
from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.cleaner.keys.keyed_records import KeyedRecords
from sparklog.storage_core.cleaner.keys.offset_map import KeySet
from sparklog.storage_core.errors import CorruptBatchError, LogStorageError, OffsetOutOfRangeError
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["FoundRecords", "SearchedStore", "find_keys", "search_log"]

_TRIES: Final = 3
"""Searches of a log that loses its first segments to retention."""

_Offsets = dict[int, list[npt.NDArray[np.int64]]]
"""Offsets of found records, by base offset of their segment."""


class SearchedStore(Protocol):
    """A store with requests to forget keys. `records` is safe to call from several threads."""

    @property
    def searches(self) -> int:
        """How many logs are searched at once."""

    def states(self) -> Mapping[TopicPartition, LogState]:
        """Return the newest rows of all logs; a search is one of this state, later than the requests read before.

        Raises:
            LedgerDamagedError: the ledger can't be read.
        """

    def requests(self) -> list[ForgetRequest]:
        """Return all requests, oldest first.

        Raises:
            CorruptFileError: one is damaged; the message names its file.
            UnsupportedFormatError: a newer release made one.
        """

    def put(self, request: ForgetRequest) -> bool:
        """Write a request, or put it in place of the form that was read, durably.

        Returns:
            whether it counts; another run may have changed the request since it was read.
        """

    def records(self, state: LogState, end_offset: int) -> Iterator[tuple[int, KeyedRecords]]:
        """Yield a log's records, also some from an offset on, with the base offset of their segment; no markers.

        Raises:
            LogStorageError: the log can't be read.
        """

    def active_from(self, state: LogState) -> int:
        """Return the base offset of the active segment, which no cleaner touches; the log's end if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecords:
    """Records of forgotten keys in one segment.

    Attributes:
        first_offset, last_offset: of the first and the last record; -1 without any.
        is_active: whether it is the active segment, which no cleaner touches.
        failure: why the log can't be searched; it may have more records.
    """

    log: TopicPartition
    base_offset: int
    records_count: int
    first_offset: int = -1
    last_offset: int = -1
    is_active: bool = False
    failure: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the facts, for JSON."""
        return {
            "log": str(self.log),
            "segment": self.base_offset,
            "records": self.records_count,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "active": self.is_active,
            "failure": self.failure,
        }


def search_log(store: SearchedStore, state: LogState, wanted: Sequence[tuple[KeySet, int]]) -> list[list[FoundRecords]]:
    """Return the segments of a log that have records of some keys below an offset, and one with a failure.

    Existing records below the log's start are searched, too.

    Args:
        wanted: keys, and the offset below which they count.

    Returns:
        segments for each of `wanted`; the log is read once for all.
    """
    log = TopicPartition(state.topic, state.partition)
    found: list[_Offsets] = []
    failure = None
    for tries_left in range(_TRIES - 1, -1, -1):
        found = [{} for _ in wanted]
        try:
            _search(found, store, state, wanted)
        except OffsetOutOfRangeError as error:
            if tries_left:
                continue
            failure = str(error)
        except CorruptBatchError as error:
            failure = f"{error} log={log}"
        except LogStorageError as error:
            failure = str(error)
        break
    segments = [_found_records(state, offsets, store.active_from(state)) for offsets in found]
    if failure is not None:
        for each in segments:
            each.append(FoundRecords(log=log, base_offset=state.log_start_offset, records_count=0, failure=failure))
    return segments


def find_keys(store: SearchedStore, state: LogState, keys: KeySet, end_offset: int) -> set[bytes]:
    """Return those of some keys that a log has records of below an offset: a digest alone does not tell its key.

    Raises:
        LogStorageError: the log can't be read.
    """
    return {
        records.source[start : start + size].tobytes()
        for records, hits in _matches(store, state, keys, end_offset)
        for start, size in zip(records.key_start[hits].tolist(), records.key_size[hits].tolist(), strict=True)
    }


def _search(
    found: Sequence[_Offsets], store: SearchedStore, state: LogState, wanted: Sequence[tuple[KeySet, int]]
) -> None:
    """Add offsets to `found`, as far as a log can be read."""
    for base_offset, records in store.records(state, min(max(end for _, end in wanted), state.log_end_offset)):
        for offsets, (keys, end) in zip(found, wanted, strict=True):
            hits = _hits(records, keys, min(end, state.log_end_offset))
            if hits.any():
                offsets.setdefault(base_offset, []).append(records.offset[hits])


def _matches(
    store: SearchedStore, state: LogState, keys: KeySet, end_offset: int
) -> Iterator[tuple[KeyedRecords, npt.NDArray[np.bool_]]]:
    """Yield records with some of the keys."""
    end = min(end_offset, state.log_end_offset)
    for _, records in store.records(state, end):
        hits = _hits(records, keys, end)
        if hits.any():
            yield records, hits


def _hits(records: KeyedRecords, keys: KeySet, end_offset: int) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = keys.contains(records.digests(keys.hash_key))
    return found & records.has_key & (records.offset < end_offset)


def _found_records(state: LogState, found: _Offsets, active_from: int) -> list[FoundRecords]:
    return [
        FoundRecords(
            log=TopicPartition(state.topic, state.partition),
            base_offset=base_offset,
            records_count=len(offsets),
            first_offset=int(offsets[0]),
            last_offset=int(offsets[-1]),
            is_active=base_offset >= active_from,
        )
        for base_offset, offsets in ((base, np.concatenate(hits)) for base, hits in sorted(found.items()))
    ]
