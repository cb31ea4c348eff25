"""The logs of a store of objects for a check, some at a time: a copy of the whole store may not fit on this machine."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparklog.pipeline.places.store_view import StoreView, open_logs
from sparklog.sink.ledger.lost_ranges import LostRangeFile, cut_folder_beside
from sparklog.sink.objects.fetch_store import fetch_store
from sparklog.sink.objects.ledger_part import LedgerPart
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.errors import CorruptFileError, LedgerDamagedError, ObjectMissingError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["UnfetchedLog", "fetched_parts", "plan_parts"]


@dataclass(frozen=True, slots=True)
class UnfetchedLog:
    """A log with an object that is gone or damaged, and what is wrong with that."""

    log: TopicPartition
    error: str


def plan_parts(ledger: ObjectLedger, part_bytes: int) -> list[list[TopicPartition]]:
    """Return all logs, in order, in lists of about so many bytes.

    Raises:
        LedgerDamagedError: the ledger can't be read.
    """
    extents, parts, size_bytes = ledger.extents(), list[list[TopicPartition]](), 0
    for log in sorted(ledger.states()):
        more = sum(each.size_bytes for each in extents.get(log, ()))
        if not parts or size_bytes + more > part_bytes:
            parts.append([])
            size_bytes = 0
        parts[-1].append(log)
        size_bytes += more
    return parts


def fetched_parts(
    ledger: ObjectLedger | LedgerPart, parts: Iterable[Sequence[TopicPartition]]
) -> Iterator[StoreView | UnfetchedLog]:
    """Yield some logs after the other as a folder of log directories, which goes as the next ones are asked for.

    Raises:
        LogStorageError: the ledger can't be read, or the storage does not answer.
    """
    for part in parts:
        yield from _fetched(ledger, part)


def _fetched(ledger: ObjectLedger | LedgerPart, logs: Sequence[TopicPartition]) -> Iterator[StoreView | UnfetchedLog]:
    """Yield the logs as one folder; if one of them can't be copied, halves of them."""
    wanted = set(logs)
    with storage_errors(tempfile.gettempdir()), tempfile.TemporaryDirectory(prefix="sparklog-") as temporary:
        folder = Path(temporary, "logs")
        folder.mkdir()
        LostRangeFile(cut_folder_beside(folder)).add(ledger.lost())
        try:
            fetch_store(ledger, folder, lambda log: log in wanted)
        except (CorruptFileError, LedgerDamagedError, ObjectMissingError) as error:
            damage = str(error)
        else:
            yield open_logs(folder)
            return
    if len(logs) == 1:
        yield UnfetchedLog(logs[0], damage)
        return
    middle = len(logs) // 2
    yield from _fetched(ledger, logs[:middle])
    yield from _fetched(ledger, logs[middle:])
