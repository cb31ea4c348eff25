"""A store of this machine, searched for keys."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from sparklog.sink.erasure.forget_request import ForgetRequest
from sparklog.sink.erasure.request_files import put_request, read_requests
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.cleaner.keys.keyed_records import KeyedRecords, iter_keyed
from sparklog.storage_core.cleaner.survey.cleaned_transactions import is_control
from sparklog.storage_core.cleaner.survey.listed_segments import list_cleanable_segments
from sparklog.storage_core.log.scan.log_walk import LogWalk, SegmentList
from sparklog.storage_core.storage.owned_names import UNSHARED
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["SearchedFolder"]


@dataclass(frozen=True, slots=True)
class SearchedFolder:
    """Implements `SearchedStore`."""

    store: Store

    @property
    def searches(self) -> int:
        """As in `SearchedStore`: one a core."""
        return os.cpu_count() or 1

    def states(self) -> Mapping[TopicPartition, LogState]:
        """As in `SearchedStore`."""
        return Ledger.open(self.store.ledger_path).states()

    def requests(self) -> list[ForgetRequest]:
        """As in `SearchedStore`."""
        return read_requests(self.store)

    def put(self, request: ForgetRequest) -> bool:
        """As in `SearchedStore`; maintenance has a lock."""
        put_request(self.store, request, UNSHARED)
        return True

    def records(self, state: LogState, end_offset: int) -> Iterator[tuple[int, KeyedRecords]]:
        """As in `SearchedStore`; markers are skipped, as their keys look like int32."""
        path = self.store.log_path(state)
        list_cleanable_segments(path, state.committed_end, state.log_start_offset)  # refuses lost ones
        segments = SegmentList(path, state.log_end_offset)
        first = segments.files[0].base_offset if segments.files else 0
        with closing(LogWalk(segments, first, end_offset).chunks()) as chunks:
            for reader, chunk in chunks:
                reader.check_crcs(chunk, chunk.scan)
                for records in iter_keyed(chunk.data, chunk.scan.take(~is_control(chunk.scan))):
                    yield reader.files.base_offset, records

    def active_from(self, state: LogState) -> int:
        """As in `SearchedStore`."""
        return state.active_base_offset
