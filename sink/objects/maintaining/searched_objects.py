"""A store of objects, searched for keys; its requests to forget keys are objects, too.

    control/forgotten/<request id>.<number>.json

An object never changes: each new form of a request has the next number, and the forms before it are removed, as they
hold the keys. The highest number counts. Of two runs that change a request one comes first; the other one's change does
not count, and the next run finds out again what there is to change.

A crash between the two steps leaves an earlier form, which maintenance removes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
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


class SearchedObjects:
    """Implements `SearchedStore`. A "segment" of its records is an extent; there is no active one.

    Args:
        ledger: read anew for each search.
    """

    searches: int = 2
    """A search holds about 100 MiB."""

    def __init__(self, ledger: ObjectLedger) -> None:
        self._ledger = ledger
        self._storage = ledger.place.open()
        self._extents: Mapping[TopicPartition, list[Extent]] = {}
        self._numbers: dict[str, int] = {}  # of the newest form of each request, when it was read

    def states(self) -> Mapping[TopicPartition, LogState]:
        """As in `SearchedStore`."""
        self._ledger.reload()
        self._extents = self._ledger.extents()
        return self._ledger.states()

    def requests(self) -> list[ForgetRequest]:
        """As in `SearchedStore`.

        Raises:
            StorageError: the storage does not answer.
        """
        for tries_left in reversed(range(_READ_TRIES)):
            newest = {request_id: max(numbers) for request_id, numbers in _list(self._storage).items()}
            try:
                found = [self._read(request_id, number) for request_id, number in newest.items()]
            except ObjectMissingError:  # a later form has taken its place since
                if not tries_left:
                    raise
                continue
            self._numbers.update(newest)
            return sorted(found, key=lambda each: (each.requested_ms, each.request_id))
        raise AssertionError

    def put(self, request: ForgetRequest) -> bool:
        """As in `SearchedStore`."""
        request_id = request.request_id
        number = self._numbers.get(request_id, -1) + 1
        name = _name(request_id, number)
        try:
            self._storage.create(name, render_request(request))
        except ObjectExistsError:
            is_newest = False
        else:
            # The number is free again where another run has made higher ones, and removed those before.
            is_newest = max(_list(self._storage).get(request_id, [number])) == number
            reach("forget.replaced")
            self._storage.remove([_name(request_id, each) for each in range(number)] if is_newest else [name])
        if is_newest:
            self._numbers[request_id] = number
        else:
            logger.info("Another run has changed a request to forget keys meanwhile request=%s", request_id)
        return is_newest

    def records(self, state: LogState, end_offset: int) -> Iterator[tuple[int, KeyedRecords]]:
        """As in `SearchedStore`."""
        wanted = [each for each in self._extents.get(state.log, ()) if each.base_offset < end_offset]
        for part in read_extents(self._storage, wanted):
            while part:
                each = part.pop(0)
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
            for request_id, numbers in _list(self._storage).items()
            for each in numbers
            if each < max(numbers)
        ]
        if old:
            self._storage.remove(old)

    def _read(self, request_id: str, number: int) -> ForgetRequest:
        name = _name(request_id, number)
        return parse_request(self._storage.address.child(name), self._storage.read(name))


def expect_keys_again(ledger: ObjectLedger, logs: Mapping[TopicPartition, str]) -> None:
    """Let maintenance search logs again for the keys of all requests: a copy may have brought them back.

    Each request gets a new form, so that a run that has searched before can't complete it.

    Args:
        logs: with their topic ids.

    Raises:
        CorruptFileError: a request is damaged.
        StorageError: the storage refuses, or other runs change the requests all the time.
    """
    store, done = SearchedObjects(ledger), set[str]()
    for _ in range(_CHANGE_TRIES):
        wanted = [each for each in store.requests() if each.request_id not in done]
        for each in wanted:
            partitions = {log.partition for log, topic_id in logs.items() if topic_id == each.topic_id}
            if not partitions or store.put(replace(each, cleared=each.cleared - partitions)):
                done.add(each.request_id)
        if not wanted:
            return
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
