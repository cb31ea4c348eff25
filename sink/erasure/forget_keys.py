"""Erasure: finds the records of forgotten keys, plans their erasure, and checks that none is left.

    search -> request -> search -> plan -> roll of active segments -> cleaning -> search -> request is done

A cleaner never touches an active segment. If no sink holds the store, the plan rolls it first; otherwise the request
waits until the sink rolls it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from sparklog.sink.erasure.forget_request import ForgetRequest, completed, make_request
from sparklog.sink.erasure.search_keys import FoundRecords, SearchedStore, find_keys, search_log
from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.clock import Clock
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "NO_ERASURE",
    "Erasure",
    "RequestState",
    "ask_to_forget",
    "finish_requests",
    "known_erasure",
    "prepare_erasure",
    "search_requests",
]

logger = logging.getLogger(__name__)

States = Mapping[TopicPartition, LogState]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """A request and the result of a search.

    Attributes:
        found: segments that have older records of its keys, or could not be searched.
    """

    request: ForgetRequest
    found: Sequence[FoundRecords]

    @property
    def records_count(self) -> int:
        """Number of records left, in logs that can be searched."""
        return sum(each.records_count for each in self.found)

    @property
    def unsearched(self) -> set[TopicPartition]:
        """Logs that could not be searched."""
        return {each.log for each in self.found if each.failure is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """Erasures of a maintenance run.

    Attributes:
        requests: unfinished ones.
        closed: logs with their records in closed segments, or that could not be searched: cleaned, due or not.
        active: logs with their records in the active segment, which must be rolled first.
    """

    requests: Sequence[ForgetRequest] = ()
    closed: Collection[TopicPartition] = frozenset()
    active: Collection[TopicPartition] = frozenset()


NO_ERASURE: Final = Erasure()


def ask_to_forget(store: SearchedStore, topic: str, keys: pa.Array, clock: Clock) -> RequestState:
    """Write a request to forget keys of a topic, durably, with the counts of their records.

    It is written once, after the search: a second write could undo the update of a run that began meanwhile.

    Args:
        keys: binary, without nulls; each counts once.

    Raises:
        LedgerDamagedError: the ledger can't be read.
    """
    states = store.states()
    (searched,) = _search_requests(store, [make_request(topic, keys, states, clock.now_ms())])
    request = _with_found(searched)
    store.put(request)
    return replace(searched, request=request)


def search_requests(store: SearchedStore, requests: Sequence[ForgetRequest]) -> list[RequestState]:
    """Search the logs for the records of requests; changes nothing.

    Raises:
        LedgerDamagedError: the ledger can't be read.
    """
    searched = _search_requests(store, [replace(each, cleared=frozenset()) for each in requests])
    return [replace(state, request=each) for state, each in zip(searched, requests, strict=True)]


def known_erasure(store: SearchedStore) -> Erasure:
    """Return the erasures that earlier searches found; reads no log."""
    wanted = [each for each in store.requests() if each.completed_ms is None]
    if not wanted:
        return NO_ERASURE
    states = store.states()
    closed, active = set(), set()
    for each in wanted:
        for log, state in _logs_of(each, states):
            bases = each.found.get(log.partition, {-1: 1})  # clean logs that could not be searched
            if any(base < store.active_from(state) for base in bases):
                closed.add(log)
            if any(base >= store.active_from(state) for base in bases):
                active.add(log)
    return Erasure(requests=wanted, closed=closed, active=active)


def prepare_erasure(store: SearchedStore, clock: Clock) -> Erasure:
    """Search for the erasures of a run; updates only the requests.

    A request whose topic was deleted is done. One that was done begins again if an import has brought records back.

    Raises:
        CorruptFileError, UnsupportedFormatError: a request can't be read.
    """
    requests = store.requests()
    wanted = _without_gone(store, requests, clock) + _begun_again(store, requests)
    searched = [_noted(store, each) for each in _search_requests(store, wanted)]
    found = [found for each in searched for found in each.found]
    return Erasure(
        requests=[each.request for each in searched],
        closed={each.log for each in found if not each.is_active},
        active={each.log for each in found if each.is_active},
    )


def finish_requests(
    store: SearchedStore,
    requests: Sequence[ForgetRequest],
    clock: Clock,
    clear_away: Callable[[], bool] = lambda: True,
) -> list[RequestState]:
    """Search again after a cleaning; complete the requests without records left.

    Args:
        clear_away: called if there is such a request; returns whether nothing is left of what cleanings have dropped.
    """
    found, searched = list[RequestState](), _search_requests(store, requests)
    is_cleared = all(each.found for each in searched) or clear_away()
    for each in searched:
        if each.found:
            found.append(_noted(store, each))
            ids = each.request.request_id, each.records_count
            logger.info("Records of forgotten keys are left request=%s records=%d", *ids)
        elif not is_cleared:
            found.append(each)
        else:
            done = completed(each.request, clock.now_ms())
            found.append(RequestState(request=done if store.put(done) else each.request, found=()))
    return found


def _without_gone(store: SearchedStore, requests: Sequence[ForgetRequest], clock: Clock) -> list[ForgetRequest]:
    """Return the unfinished requests; complete those of deleted topics."""
    wanted = [each for each in requests if each.completed_ms is None]
    if not wanted:
        return []
    topic_ids = {state.topic_id for state in store.states().values()}
    for each in wanted:
        if each.topic_id not in topic_ids:
            store.put(completed(each, clock.now_ms()))
            logger.info("A topic with forgotten keys was deleted request=%s topic=%s", each.request_id, each.topic)
    return [each for each in wanted if each.topic_id in topic_ids]


def _begun_again(store: SearchedStore, requests: Sequence[ForgetRequest]) -> list[ForgetRequest]:
    """Return the finished requests whose keys are back in imported logs, with these keys, as unfinished ones."""
    done, begun = [each for each in requests if each.completed_ms is not None], list[ForgetRequest]()
    states = store.states() if done else {}
    for each in done:
        logs = _logs_of(each, states)
        try:
            keys = _keys_in(store, each, logs)
        except LogStorageError as error:
            logger.warning("A log can't be searched for forgotten keys request=%s: %s", each.request_id, error)
            continue
        if keys:
            again = replace(each, keys=pa.array(sorted(keys), pa.binary()), completed_ms=None)
            store.put(again)
            logger.info("Forgotten keys came back request=%s keys=%d", each.request_id, len(keys))
            begun.append(again)
        elif logs:
            store.put(replace(each, cleared=each.cleared.union(log.partition for log, _ in logs)))
    return begun


def _keys_in(
    store: SearchedStore, request: ForgetRequest, logs: Sequence[tuple[TopicPartition, LogState]]
) -> set[bytes]:
    """Return the keys of a request that logs have records of."""
    wanted = request.key_set()
    found = (find_keys(store, state, wanted, request.end_offsets[log.partition]) for log, state in logs)
    return set[bytes]().union(*found)


def _search_requests(store: SearchedStore, requests: Sequence[ForgetRequest]) -> list[RequestState]:
    """Search the logs that are not cleared, each once for all requests."""
    if not requests:
        return []
    states = store.states()
    keys = {each.request_id: each.key_set() for each in requests}
    by_log: dict[TopicPartition, list[ForgetRequest]] = {}
    for each in requests:
        for log, _ in _logs_of(each, states):
            by_log.setdefault(log, []).append(each)

    def search(log: TopicPartition) -> list[list[FoundRecords]]:
        wanted = [(keys[each.request_id], each.end_offsets[log.partition]) for each in by_log[log]]
        return search_log(store, states[log], wanted)

    logs = sorted(by_log)
    with ThreadPoolExecutor(store.searches, thread_name_prefix="forget") as pool:
        searched = list(pool.map(search, logs))
    found: dict[str, list[FoundRecords]] = {each.request_id: [] for each in requests}
    for log, results in zip(logs, searched, strict=True):
        for request, segments in zip(by_log[log], results, strict=True):
            found[request.request_id] += segments
    return [RequestState(request=each, found=found[each.request_id]) for each in requests]


def _noted(store: SearchedStore, state: RequestState) -> RequestState:
    """Update a request from a search, if it found anything new."""
    request = _with_found(state)
    if request.found == state.request.found and request.cleared == state.request.cleared:
        return state
    store.put(request)
    return replace(state, request=request)


def _with_found(state: RequestState) -> ForgetRequest:
    """Return a request with the counts of newly searched logs, and its cleared partitions."""
    request, found = state.request, dict(state.request.found)
    failed = {log.partition for log in state.unsearched}
    for partition in request.end_offsets.keys() - found.keys() - failed:
        found[partition] = {
            each.base_offset: each.records_count for each in state.found if each.log.partition == partition
        }
    left = {each.log.partition for each in state.found}
    return replace(request, found=found, cleared=frozenset(request.end_offsets.keys() - left))


def _logs_of(request: ForgetRequest, states: States) -> list[tuple[TopicPartition, LogState]]:
    return [
        (log, state)
        for log, state in sorted(states.items())
        if log.topic == request.topic
        and state.topic_id == request.topic_id
        and request.end_offsets.get(log.partition, 0) > 0
        and log.partition not in request.cleared
    ]
