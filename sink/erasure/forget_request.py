"""Requests to forget keys: what one holds, and the bytes of its file below `control/forgotten/`.

A request has keys of a topic and the ends of its logs: earlier records of these keys are erased, tombstones included.
Until it is done, it has the keys themselves, and cleanings drop every record of them, later ones too. Then the keys
are dropped from it, too. It keeps digests under a hash key of its own, to find a key that came back, and the number of
records by segment. If an import brings keys back, the next maintenance run finds them by the digests, puts these keys
into the request again, and erases them.

A reader of these files can test keys against the digests.
"""

from __future__ import annotations

import base64
import json
import secrets
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.errors import CorruptFileError, UnsupportedFormatError
from sparklog.storage_core.topic_partition import TopicPartition

if TYPE_CHECKING:  # its kernels cost every opening of a store 0.2 s; a store without requests needs none
    from sparklog.storage_core.cleaner.keys.offset_map import KeySet

__all__ = ["ForgetRequest", "completed", "erased_keys", "make_request", "parse_request", "render_request"]

_VERSION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """Keys of one topic to forget.

    Attributes:
        topic_id: of the topic; a later topic of the same name is another one.
        end_offsets: ends of its logs at the request, by partition.
        digests: 16 bytes for each key.
        found: number of records of its keys at the request, by partition and base offset of the segment; without
            partitions that could not be searched.
        cleared: partitions where a search found none of its records left; only an import brings new ones.
        keys: binary; None after it is done.
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
        """Number of keys."""
        return len(self.digests) // 16

    @property
    def found_count(self) -> int:
        """Number of records of its keys at the request."""
        return sum(sum(segments.values()) for segments in self.found.values())

    def covers(self, partitions: Iterable[int]) -> bool:
        """Whether records of one of these logs count as earlier than the request."""
        return any(self.end_offsets.get(each, 0) > 0 for each in partitions)

    def key_set(self) -> KeySet:
        """Return the keys for a search."""
        from sparklog.storage_core.cleaner.keys.offset_map import KeySet

        digests = np.frombuffer(self.digests, "<u8").reshape(-1, 2).astype(np.uint64)
        return KeySet.from_digests(digests, self.hash_key)


def make_request(topic: str, keys: pa.Array, states: Mapping[TopicPartition, LogState], now_ms: int) -> ForgetRequest:
    """Return a new request, not written yet.

    Args:
        keys: binary, without nulls; each counts once.
        states: of the topic's logs at least.
    """
    from sparklog.storage_core.cleaner.keys.offset_map import HASH_KEY_BYTES, digest_keys

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


def render_request(request: ForgetRequest) -> bytes:
    """Return the bytes of a request's file."""
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
    return f"{json.dumps(content, indent=1)}\n".encode()


def parse_request(path: object, data: bytes) -> ForgetRequest:
    """Return the request of a file.

    Args:
        path: for errors.

    Raises:
        CorruptFileError: it is damaged; the message names its file.
        UnsupportedFormatError: a newer release made it.
    """
    from sparklog.storage_core.cleaner.keys.offset_map import HASH_KEY_BYTES

    try:
        content: dict[str, Any] = json.loads(data)
        if content["version"] > _VERSION:
            what = f"a request to forget keys has version {content['version']}: path={path}; use a newer release"
            raise UnsupportedFormatError(what)
        keys = content["keys"] and [base64.b64decode(key, validate=True) for key in content["keys"]]
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
            keys=None if keys is None else pa.array(keys, pa.binary()),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            f"a request to forget keys is damaged: path={path} ({error}); delete it and make the request again"
        ) from error


def completed(request: ForgetRequest, now_ms: int) -> ForgetRequest:
    """Return a request without records left: its keys are dropped."""
    return replace(request, keys=None, completed_ms=now_ms, cleared=frozenset(request.end_offsets))


def erased_keys(requests: Iterable[ForgetRequest]) -> dict[str, pa.Array]:
    """Return the keys of unfinished requests, by topic id: a later topic of that name keeps its own."""
    found: dict[str, list[pa.Array]] = {}
    for each in requests:
        if each.keys is not None:
            found.setdefault(each.topic_id, []).append(each.keys)
    return {topic_id: pa.concat_arrays(arrays).unique() for topic_id, arrays in found.items()}


def _counts(content: dict[str, Any]) -> dict[int, int]:
    return {int(number): int(count) for number, count in content.items()}
