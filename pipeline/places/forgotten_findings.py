"""Findings of `verify` about forgotten keys: searches logs for records of keys in requests to forget.

Logs of topics without a request are not searched. A waiting request is a note. After a finished request no record may
be left: a found record came back with an older copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from sparklog.pipeline.places.store_view import StoreView
from sparklog.sink.erasure.forget_keys import RequestState, search_requests
from sparklog.sink.erasure.request_files import FOLDER
from sparklog.sink.erasure.search_keys import FoundRecords
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.objects.maintaining.erase_objects import unnamed_objects
from sparklog.sink.objects.maintaining.searched_objects import SearchedObjects
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError, LogStorageError, UnsupportedFormatError
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.log.files.deleted_files import list_deleted
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["forgotten_findings", "forgotten_in_objects"]


def forgotten_findings(view: StoreView) -> Iterator[Finding]:
    """Yield a finding for each waiting request, and for each segment with records of a finished request.

    Args:
        view: the store as it is now; a plain folder has no requests.

    Raises:
        LedgerDamagedError: the ledger can't be read.
    """
    if view.ledger_version is None:
        return
    store, name = SearchedFolder(Store.find(view.root)), view.root.absolute().name
    try:
        requests = store.requests()
    except (CorruptFileError, UnsupportedFormatError) as error:
        yield _unreadable(name, error)
        return
    offline = {each.log for each in view.logs if each.offline is not None}  # findings of the check of the logs
    for state in search_requests(store, requests):
        yield from _findings_of(state, name, offline, lambda found: segment_file_name(found.base_offset, LOG))
    yield from _old_files(view, {each.topic for each in requests})


def forgotten_in_objects(place: StoragePlace, unread: Collection[TopicPartition]) -> Iterator[Finding]:
    """As `forgotten_findings`, of a store of objects.

    Args:
        unread: logs that have findings as they can't be read.

    Raises:
        LedgerDamagedError: the ledger can't be read.
        StorageError: the storage does not answer.
    """
    ledger, name = ObjectLedger.open(place), str(place.address)
    store = SearchedObjects(ledger)
    try:
        requests = store.requests()
    except (CorruptFileError, UnsupportedFormatError) as error:
        yield _unreadable(name, error)
        return
    for state in search_requests(store, requests):
        yield from _findings_of(state, name, unread, lambda found: str(found.log))
    if requests and (count := len(unnamed_objects(ledger))):
        what = f"{count:,} objects that no version names may hold erased records; maintenance removes them later"
        yield Finding(log=name, file=name, kind="pending", rule="forgotten-keys", what=what)


def _unreadable(name: str, error: LogStorageError) -> Finding:
    return Finding(
        log=name,
        file=str(FOLDER),
        kind="checkpoint",
        rule="newer-release" if isinstance(error, UnsupportedFormatError) else "forgotten-keys",
        what=str(error),
    )


def _findings_of(
    state: RequestState, name: str, unread: Collection[TopicPartition], file_of: Callable[[FoundRecords], str]
) -> Iterator[Finding]:
    """Yield the findings of one request.

    Args:
        name: of the store.
        unread: logs that have findings of their own.
        file_of: returns the file that holds found records.
    """
    request = state.request
    if request.completed_ms is None:
        yield Finding(
            log=name,
            file=str(FOLDER / f"{request.request_id}.json"),
            kind="pending",
            rule="forgotten-keys",
            what=_pending(state),
        )
    for found in state.found:
        if found.failure is not None and found.log not in unread:
            what = f"can't be searched for forgotten keys: {found.failure}"
            yield Finding(log=str(found.log), file=str(found.log), kind="damage", rule="unreadable", what=what)
        elif found.failure is None and request.completed_ms is not None:
            yield Finding(
                log=str(found.log),
                file=file_of(found),
                kind="forgotten",
                rule="forgotten-keys",
                what=f"has {found.records_count:,} records of keys that were erased: request={request.request_id}",
                first_offset=found.first_offset,
                last_offset=found.last_offset,
            )


def _pending(state: RequestState) -> str:
    segments = sum(each.failure is None for each in state.found)
    return f"erasure pending, {state.records_count:,} records in {segments:,} segments"


def _old_files(view: StoreView, topics: Collection[str]) -> Iterator[Finding]:
    for each in view.logs:
        if each.log.topic not in topics or each.offline is not None or not each.directory.is_dir():
            continue
        if count := len(list_deleted(each.directory)):
            name, what = str(each.log), f"{count:,} old files wait to be removed and may hold erased records"
            yield Finding(log=name, file=name, kind="pending", rule="forgotten-keys", what=what)
