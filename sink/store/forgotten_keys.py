"""The list of keys whose records all go: one file for each request, below `control/forgotten/`.

A request says which keys of a topic, and where its logs ended then: what was written before goes, tombstones included.
Until it is done, the keys themselves are on the list, and cleanings drop every record that has one, later ones too.
Then the keys go as well: what stays are digests under a key of the request's own, enough to look whether one came back,
and how many records there were, by segment.

Who can read the list can try keys on the digests. It says less than the logs did, and not nothing.
"""

from __future__ import annotations

import base64
import json
import secrets
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.cleaner.keys.offset_map import HASH_KEY_BYTES, KeySet, digest_keys
from sparklog.storage_core.errors import CorruptFileError, UnsupportedFormatError
from sparklog.storage_core.storage.local import make_directory, storage_errors
from sparklog.storage_core.storage.open_regular import read_file
from sparklog.storage_core.storage.owned_names import Owner, replace_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = [
    "FOLDER",
    "ForgetRequest",
    "complete_request",
    "erased_keys",
    "lower_ends",
    "make_request",
    "put_request",
    "read_requests",
]

FOLDER: Final = Path("control/forgotten")
"""Of the requests, inside a store."""
_VERSION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """Keys of one topic that are to be forgotten.

    Attributes:
        topic_id: of the topic, so that a later one of the same name is not meant.
        end_offsets: where its logs ended when it was made, by partition.
        hash_key: of the digests.
        digests: 16 bytes for each key.
        found: how many records of its keys there were when it was made, by partition and base offset of the segment;
            without partitions that could not be searched.
        cleared: partitions of which a search found that none of its records is left, or was ever there: none can come.
        keys: binary; None once it is done.
        completed_ms: when no record was left; None before.
    """

    request_id: str
    topic: str
    topic_id: str
    requested_ms: int
    end_offsets: Mapping[int, int]
    hash_key: bytes
    digests: bytes
    found: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    cleared: frozenset[int] = frozenset()
    keys: pa.Array | None = None
    completed_ms: int | None = None

    @property
    def count(self) -> int:
        """How many keys there are."""
        return len(self.digests) // 16

    @property
    def found_count(self) -> int:
        """How many records of its keys there were when it was made."""
        return sum(sum(segments.values()) for segments in self.found.values())

    def key_set(self) -> KeySet:
        """Return the keys as a search takes them."""
        digests = np.frombuffer(self.digests, "<u8").reshape(-1, 2).astype(np.uint64)
        return KeySet.from_digests(digests, self.hash_key)


def make_request(topic: str, keys: pa.Array, states: Mapping[TopicPartition, LogState], now_ms: int) -> ForgetRequest:
    """Return a request that is not on the list yet.

    Args:
        topic: whose records they are.
        keys: binary, without nulls; each counts once.
        states: of the topic's logs at least.
        now_ms: time of the request.
    """
    logs = {log.partition: state for log, state in states.items() if log.topic == topic}
    unique, hash_key = keys.unique(), secrets.token_bytes(HASH_KEY_BYTES)
    return ForgetRequest(
        request_id=f"{now_ms}-{uuid.uuid4().hex[:8]}",
        topic=topic,
        topic_id=next(iter(logs.values())).topic_id,
        requested_ms=now_ms,
        end_offsets={partition: state.log_end_offset for partition, state in sorted(logs.items())},
        hash_key=hash_key,
        digests=digest_keys(unique, hash_key).astype("<u8").tobytes(),
        keys=unique,
    )


def put_request(store: Store, request: ForgetRequest, owner: Owner) -> None:
    """Put a request on the list, durably, in place of what the list has of it; one that is made needs no lock.

    Raises:
        StorageError: the disk refused.
    """
    content = {
        "version": _VERSION,
        "request_id": request.request_id,
        "topic": request.topic,
        "topic_id": request.topic_id,
        "requested_ms": request.requested_ms,
        "completed_ms": request.completed_ms,
        "end_offsets": request.end_offsets,
        "found": request.found,
        "cleared": sorted(request.cleared),
        "hash_key": request.hash_key.hex(),
        "digests": base64.b64encode(request.digests).decode(),
        "keys": None if request.keys is None else [base64.b64encode(key).decode() for key in request.keys.to_pylist()],
    }
    path = store.root / FOLDER / f"{request.request_id}.json"
    with storage_errors(path):
        make_directory(path.parent)
        replace_file(owner, path, f"{json.dumps(content, indent=1)}\n".encode())


def complete_request(store: Store, request: ForgetRequest, now_ms: int, owner: Owner) -> ForgetRequest:
    """Say that no record is left, and drop the keys from the list."""
    done = replace(request, keys=None, completed_ms=now_ms)
    put_request(store, done, owner)
    return done


def lower_ends(store: Store, topic_id: str, partition: int, offset: int, owner: Owner) -> None:
    """Let no request reach above the offset that a log was truncated to; the caller holds both locks of the store.

    Other records get the offsets behind it, which were not there when the request was made.

    Raises:
        CorruptFileError: a request is damaged.
    """
    for each in read_requests(store):
        if each.topic_id == topic_id and each.end_offsets.get(partition, 0) > offset:
            put_request(store, replace(each, end_offsets={**each.end_offsets, partition: offset}), owner)


def read_requests(store: Store) -> list[ForgetRequest]:
    """Return all requests, in the order in which they were made.

    Raises:
        CorruptFileError: one is damaged; the message names its file.
        UnsupportedFormatError: a newer release made one.
    """
    folder = store.root / FOLDER
    with storage_errors(folder):
        paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
        found = [_parse(path, read_file(path)) for path in paths]
    return sorted(found, key=lambda each: (each.requested_ms, each.request_id))


def erased_keys(requests: Iterable[ForgetRequest]) -> dict[str, pa.Array]:
    """Return the keys of requests that are not done, by topic id: a later topic of that name keeps its own."""
    found: dict[str, list[pa.Array]] = {}
    for each in requests:
        if each.keys is not None:
            found.setdefault(each.topic_id, []).append(each.keys)
    return {topic_id: pa.concat_arrays(arrays).unique() for topic_id, arrays in found.items()}


def _parse(path: Path, data: bytes) -> ForgetRequest:
    try:
        content: dict[str, Any] = json.loads(data)
        if content["version"] > _VERSION:
            what = f"a request to forget keys has version {content['version']}: path={path}; use a newer release"
            raise UnsupportedFormatError(what)
        keys = content["keys"]
        digests = base64.b64decode(content["digests"], validate=True)
        hash_key = bytes.fromhex(content["hash_key"])
        if len(digests) % 16 or len(hash_key) != HASH_KEY_BYTES:
            raise ValueError("digests are cut off")
        return ForgetRequest(
            request_id=str(content["request_id"]),
            topic=str(content["topic"]),
            topic_id=str(content["topic_id"]),
            requested_ms=int(content["requested_ms"]),
            completed_ms=None if content["completed_ms"] is None else int(content["completed_ms"]),
            end_offsets=_counts(content["end_offsets"]),
            found={int(partition): _counts(segments) for partition, segments in content["found"].items()},
            cleared=frozenset(int(partition) for partition in content["cleared"]),
            hash_key=hash_key,
            digests=digests,
            keys=None if keys is None else _decoded(keys),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            f"a request to forget keys is damaged: path={path} ({error}); delete it and make the request again"
        ) from error


def _counts(content: dict[str, Any]) -> dict[int, int]:
    return {int(number): int(count) for number, count in content.items()}


def _decoded(keys: list[str]) -> pa.Array:
    return pa.array([base64.b64decode(key, validate=True) for key in keys], pa.binary())
