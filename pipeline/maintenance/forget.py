"""The verb `forget`: records a request to erase keys, and reports how many of their records are left.

Never prints a key: an error names the line of the file.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa

from sparklog.pipeline.places.stored_logs import Place
from sparklog.pipeline.report import DONE, FAILED, show
from sparklog.sink.erasure.forget_keys import RequestState, ask_to_forget, search_requests
from sparklog.sink.erasure.forget_request import ForgetRequest
from sparklog.sink.erasure.search_keys import SearchedStore
from sparklog.sink.erasure.searched_folder import SearchedFolder
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import UNKNOWN_SETTINGS, read_topic_configs
from sparklog.storage_core.clock import Clock, SystemClock
from sparklog.storage_core.errors import InvalidConfigError, UnknownTopicError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.quantity_text import iso_time
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["ForgetReport", "forget_keys", "run", "search_forgotten"]

_BYTE_ORDER_MARKS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """Requests to forget keys, each with its remaining records."""

    states: Sequence[RequestState]

    def lines(self) -> Iterator[str]:
        """Yield a line for each request and one for each segment of it, for people."""
        for each in self.states:
            yield from _lines(each)

    def verdict(self) -> str:
        """Return the last line."""
        count, left = len(self.states), sum(each.records_count for each in self.states)
        unsearched = {log for each in self.states for log in each.unsearched}
        if unsearched:
            return f"unknown: {len(unsearched)} logs can't be searched; at least {_records(left)} left"
        if left:
            is_active = any(found.is_active for each in self.states for found in each.found)
            rolls = "; active segments are rolled first, by the sink where one runs" if is_active else ""
            return f"left: {_records(left)}; sparklog maintain --execute erases them{rolls}"
        if not count:
            return "no requests to forget keys"
        return "none left of 1 request" if count == 1 else f"none left of {count:,} requests"

    def as_dict(self) -> dict[str, Any]:
        """Return requests for JSON."""
        requests = [
            {
                "request_id": each.request.request_id,
                "topic": each.request.topic,
                "keys": each.request.count,
                "requested_ms": each.request.requested_ms,
                "completed_ms": each.request.completed_ms,
                "records_found": each.request.found_count,
                "records_left": each.records_count,
                "erased": [
                    {"log": str(log), "segment": base_offset, "records": count}
                    for log, base_offset, count in _erased(each.request)
                ],
                "segments": [found.as_dict() for found in each.found],
            }
            for each in self.states
        ]
        return {"requests": requests, "none_left": not any(each.found for each in self.states)}


def run(store: Place, topic: str | None, key_file: Path | None, is_base64: bool, verify: bool, as_json: bool) -> int:
    """Carry the verb out; return the exit code."""
    if verify == (key_file is not None):
        raise click.UsageError("one of --keys and --verify is needed")
    if key_file is None:
        states = search_forgotten(store, topic)
    elif topic is None:
        raise click.UsageError("--keys needs a TOPIC")
    else:
        keys = _read_key_file(key_file, is_base64=is_base64)
        states = [forget_keys(store, topic, keys, SystemClock())]
    show(ForgetReport(states), as_json=as_json)
    return FAILED if verify and any(each.found for each in states) else DONE


def _read_key_file(path: Path, *, is_base64: bool) -> pa.Array:
    """Return the keys of a file, one a line; skips empty lines, in base64 also blank ones.

    Raises:
        InvalidConfigError: the file has no key, a line that is not base64, or a byte order mark.
        StorageError: the file can't be read.
    """
    with storage_errors(path):
        data = path.read_bytes()
    if data.startswith(_BYTE_ORDER_MARKS):
        raise InvalidConfigError(
            f"the file begins with a byte order mark: save it as UTF-8 without one, or as base64: path={path}"
        )
    found = [(number, line.removesuffix(b"\r")) for number, line in enumerate(data.split(b"\n"), 1)]
    if is_base64:
        keys = [_decoded(path, number, text) for number, line in found if (text := line.strip())]
    else:
        keys = [line for _, line in found if line]
    if not keys:
        raise InvalidConfigError(f"the file has no key: path={path}")
    return pa.array(keys, pa.binary())


def forget_keys(place: Place, topic: str, keys: pa.Array, clock: Clock) -> RequestState:
    """Record a request for keys, durably; return it with the segments that hold their records now.

    Raises:
        InvalidConfigError: the place is no store, or the topic is not compacted: no cleaning would erase the keys.
        UnknownTopicError: the store has no such topic.
        StorageError: the storage does not answer.
    """
    store, configs = _open(place)
    _check_topic(store, topic, place)
    config = configs().get(topic)
    if config is None:
        raise InvalidConfigError(f"{UNKNOWN_SETTINGS}: topic={topic}")
    if not config.is_compacted:
        what = f"records of a key can be erased in compacted topics only: topic={topic}"
        raise InvalidConfigError(f"{what} cleanup.policy={config.cleanup_policy}")
    return ask_to_forget(store, topic, keys, clock)


def search_forgotten(place: Place, topic: str | None) -> list[RequestState]:
    """Return all requests, or those of a topic, each with its remaining records.

    Raises:
        InvalidConfigError: the place is no store.
        UnknownTopicError: the store has neither such a topic nor a request for it.
        CorruptFileError: a request can't be read.
        StorageError: the storage does not answer.
    """
    store, _ = _open(place)
    requests = [each for each in store.requests() if topic in (None, each.topic)]
    if topic is not None and not requests:
        _check_topic(store, topic, place)
    return search_requests(store, requests)


def _open(place: Place) -> tuple[SearchedStore, Callable[[], Mapping[str, LogConfig]]]:
    """Return the store, and what reads its topics' settings."""
    if isinstance(place, StoragePlace):
        from sparklog.sink.objects.fetch_store import known_configs
        from sparklog.sink.objects.maintaining.searched_objects import SearchedObjects
        from sparklog.sink.objects.object_ledger import ObjectLedger

        ledger = ObjectLedger.open(place)
        return SearchedObjects(ledger), lambda: known_configs(ledger)
    store = Store.find(place)
    return SearchedFolder(store), lambda: read_topic_configs(store)


def _lines(state: RequestState) -> Iterator[str]:
    """Yield a line for the request and one for each segment, for people."""
    request = state.request
    keys = "1 key" if request.count == 1 else f"{request.count:,} keys"
    left = f"{_records(state.records_count)} left"
    left = f"at least {left}" if state.unsearched else f"{left} of {request.found_count:,}"
    if request.completed_ms is None:
        yield f"{request.request_id}: {keys} of topic {request.topic}: waits for maintenance, {left}"
    else:
        yield f"{request.request_id}: {keys} of topic {request.topic}: done at {iso_time(request.completed_ms)}, {left}"
        for log, base_offset, count in _erased(request):
            yield f"  {log} segment {base_offset}: {_records(count)} erased"
    for each in state.found:
        if each.failure is not None:
            yield f"  {each.log}: can't be searched: {each.failure}"
            continue
        active = ", the active one" if each.is_active else ""
        yield f"  {each.log} segment {each.base_offset}{active}: {_records(each.records_count)}"


def _check_topic(store: SearchedStore, topic: str, place: Place) -> None:
    if all(log.topic != topic for log in store.states()):
        where = place.address if isinstance(place, StoragePlace) else place
        raise UnknownTopicError(f"no topic {topic!r} in this store: {where}")


def _erased(request: ForgetRequest) -> Iterator[tuple[TopicPartition, int, int]]:
    """Yield log, base offset of the segment, and number of erased records; nothing for a waiting request."""
    if request.completed_ms is None:
        return
    for partition, segments in sorted(request.found.items()):
        for base_offset, count in sorted(segments.items()):
            yield TopicPartition(request.topic, partition), base_offset, count


def _decoded(path: Path, number: int, text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidConfigError(f"a line is not base64: path={path} line={number}") from None


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"
