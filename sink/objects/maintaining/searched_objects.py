"""A store of objects, searched for keys; its requests to forget keys are objects, too.

    control/forgotten/<request id>.<number>.json

An object never changes: each new form of a request has the next number, and the forms before it are removed, as they
hold the keys. Of two maintenance runs that change a request at the same time one makes the next number; the other one's
change is dropped, and the next run finds out again what there is to change.

A crash between the two steps leaves an earlier form, which maintenance removes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.sink.erasure.forget_request import ForgetRequest, parse_request, render_request
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.objects.extents import Extent
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.read_extents import read_extents
from sparklog.storage_core.cleaner.keys.keyed_records import KeyedRecords, iter_keyed
from sparklog.storage_core.cleaner.survey.cleaned_transactions import is_control
from sparklog.storage_core.errors import ObjectExistsError, ObjectMissingError, StorageError
from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.objects.object_storage import ObjectStorage
from sparklog.storage_core.record.batch_scan import scan_batches
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["SearchedObjects", "expect_keys_again"]

logger = logging.getLogger(__name__)

FOLDER: Final = "control/forgotten"
_NAME: Final = re.compile(rf"{FOLDER}/(?P<id>[^/.]+)\.(?P<number>\d+)\.json")
_READ_TRIES: Final = 5
_CHANGE_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class SearchedObjects:
    """Implements `SearchedStore`, at one version of the ledger.

    A "segment" of its records is an extent; there is no active one.
    """

    storage: ObjectStorage
    logs: Mapping[TopicPartition, LogState]
    extents: Mapping[TopicPartition, list[Extent]]
    _numbers: dict[str, int] = field(default_factory=dict)
    """Of the newest form of each request, when it was read."""

    @classmethod
    def of(cls, ledger: ObjectLedger) -> SearchedObjects:
        """Return the store at a ledger's version.

        Raises:
            LedgerDamagedError: a data file can't be read.
        """
        return cls(ledger.place.open(), ledger.states(), ledger.extents())

    def at(self, ledger: ObjectLedger) -> SearchedObjects:
        """Return the store at another version of the ledger; it can change the requests that this one has read."""
        return replace(self, logs=ledger.states(), extents=ledger.extents())

    def states(self) -> Mapping[TopicPartition, LogState]:
        """As in `SearchedStore`."""
        return self.logs

    def requests(self) -> list[ForgetRequest]:
        """As in `SearchedStore`.

        Raises:
            StorageError: the storage does not answer.
        """
        for tries_left in reversed(range(_READ_TRIES)):
            newest = {request_id: max(numbers) for request_id, numbers in _list(self.storage).items()}
            try:
                found = [self._read(request_id, number) for request_id, number in newest.items()]
            except ObjectMissingError:  # a later form has taken its place since
                if not tries_left:
                    raise
                continue
            self._numbers.update(newest)
            return sorted(found, key=lambda each: (each.requested_ms, each.request_id))
        raise AssertionError

    def put(self, request: ForgetRequest) -> None:
        """As in `SearchedStore`; does nothing if another run has changed the request since it was read."""
        request_id = request.request_id
        number = self._numbers.get(request_id, -1) + 1
        try:
            self.storage.create(_name(request_id, number), render_request(request))
        except ObjectExistsError:
            logger.info("Another run has changed a request to forget keys meanwhile request=%s", request_id)
            return
        self._numbers[request_id] = number
        reach("forget.replaced")
        self.storage.remove([_name(request_id, each) for each in range(number)])

    def records(self, state: LogState, end_offset: int) -> Iterator[tuple[int, KeyedRecords]]:
        """As in `SearchedStore`."""
        wanted = [each for each in self.extents.get(state.log, ()) if each.base_offset < end_offset]
        for part in read_extents(self.storage, wanted):
            for each in part:
                scan = scan_batches(each.data)  # with the offsets that they have in the log
                for records in iter_keyed(each.data, scan.take(~is_control(scan))):
                    yield each.extent.base_offset, records

    def active_from(self, state: LogState) -> int:
        """As in `SearchedStore`."""
        return state.log_end_offset

    def remove_earlier_forms(self) -> None:
        """Remove what a crash has left of requests that were changed.

        Raises:
            StorageError: the storage refuses.
        """
        old = [
            _name(request_id, each)
            for request_id, numbers in _list(self.storage).items()
            for each in numbers
            if each < max(numbers)
        ]
        if old:
            self.storage.remove(old)

    def _read(self, request_id: str, number: int) -> ForgetRequest:
        name = _name(request_id, number)
        return parse_request(self.storage.address.child(name), self.storage.read(name))


def expect_keys_again(ledger: ObjectLedger, logs: Mapping[TopicPartition, str]) -> None:
    """Let maintenance search logs again for the keys of requests that are done: a copy may bring them back.

    Args:
        logs: with their topic ids.

    Raises:
        CorruptFileError: a request is damaged.
        StorageError: the storage refuses.
    """
    store = SearchedObjects(ledger.place.open(), {}, {})
    for _ in range(_CHANGE_TRIES):
        wanted = [
            (each, found)
            for each in store.requests()
            if (found := each.cleared & {log.partition for log, topic_id in logs.items() if topic_id == each.topic_id})
        ]
        if not wanted:
            return
        for request, partitions in wanted:
            store.put(replace(request, cleared=request.cleared - partitions))
    raise StorageError(f"other runs change requests to forget keys all the time: address={ledger.place.address}")


def _list(storage: ObjectStorage) -> dict[str, list[int]]:
    """Return the numbers of the forms of each request."""
    found: dict[str, list[int]] = {}
    for each in storage.list(FOLDER):
        if match := _NAME.fullmatch(each.name):
            found.setdefault(match["id"], []).append(int(match["number"]))
    return found


def _name(request_id: str, number: int) -> str:
    return f"{FOLDER}/{request_id}.{number}.json"
