"""The producer state and the snapshots of a log while it is loaded, as a broker's passes leave them.

A broker writes and deletes snapshots as it goes. Here they are kept in mind, as the bytes that they will be: what a
loading would do can be shown without doing it, and a snapshot that is deleted and written again as it was stays
untouched.

| when | what becomes of snapshots |
|---|---|
| a segment is recovered | those above its base go; one is taken at its base, and one after its last batch |
| the log is loaded | those of no segment go, but for the newest if it lies above the last segment's base |
| then, where there is none and the shutdown was clean | empty ones at the last two segments and the log's end |
| then, otherwise | those outside the log go; one is taken at the end, and at the last two segments if scanned |

Source: Kafka LogLoader.recoverSegment, UnifiedLog.rebuildProducerState, ProducerStateManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from sparklog.storage_core.checkpoint.producer_snapshot import (
    ProducerState,
    parse_producer_snapshot,
    render_producer_snapshot,
)
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.files.names import SNAPSHOT, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.producers.follow import follow_producers
from sparklog.storage_core.log.producers.snapshots import stray_snapshots
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_if_there

__all__ = ["LoadingProducers"]


class LoadingProducers:
    """The producers of a log that is being loaded.

    Args:
        directory: of the log.
        offsets: of the snapshots that are there, once leftovers are gone.
        now_ms: current time, for the expiry of producers.
    """

    def __init__(self, directory: Path, offsets: Iterable[int], now_ms: int) -> None:
        self._directory = directory
        self._now_ms = now_ms
        self._on_disk = frozenset(offsets)
        self._snapshots: dict[int, bytes | None] = dict.fromkeys(self._on_disk)
        self._last_taken = 0

    def at(
        self,
        segments: Sequence[SegmentFiles],
        log_start_offset: int,
        end_offset: int,
        snapshot_bases: Collection[int] = (),
    ) -> ProducerStates:
        """Return the state at an offset; snapshots above it, and those of no use, are gone then.

        Raises:
            CorruptBatchError: a batch that is to be followed is damaged.
            StorageError: the disk refused.
        """
        for offset in list(self._snapshots):
            if not log_start_offset < offset <= end_offset:
                del self._snapshots[offset]
        producers = self._newest(log_start_offset)
        producers.remove_expired(self._now_ms)
        self._last_taken = max(producers.map_end_offset, end_offset)
        for offset, entries in follow_producers(producers, segments, end_offset, snapshot_bases).items():
            self._snapshots[offset] = render_producer_snapshot(entries)
        return producers

    def take(self, producers: ProducerStates) -> None:
        """Take a snapshot of a state, unless there is one at its offset or above it."""
        if producers.map_end_offset > self._last_taken:
            self._last_taken = producers.map_end_offset
            self._snapshots[producers.map_end_offset] = render_producer_snapshot(producers.states())

    def clear(self) -> None:
        """Drop every snapshot: the log starts anew."""
        self._snapshots.clear()

    def finish_clean(
        self, segments: Sequence[SegmentFiles], bases: Sequence[int], log_start_offset: int, end_offset: int
    ) -> ProducerStates:
        """Return the state at a log's end after a clean shutdown: without any snapshot there are no producers."""
        self._drop_strays(bases)
        if self._snapshots:
            return self.at(segments, log_start_offset, end_offset, bases[-2:])
        for offset in sorted({*bases[-2:], end_offset} - {0}):
            self._snapshots[offset] = render_producer_snapshot()
        return ProducerStates(end_offset)

    def finish(
        self, segments: Sequence[SegmentFiles], bases: Sequence[int], log_start_offset: int, end_offset: int
    ) -> ProducerStates:
        """Return the state at a log's end.

        Args:
            segments: of the log, as they can be read now.
            bases: offsets of the segments that the log will have.
            log_start_offset: of the log.
            end_offset: of the log.
        """
        self._drop_strays(bases)
        return self.at(segments, log_start_offset, end_offset, bases[-2:])

    @property
    def dropped(self) -> list[int]:
        """Offsets of the snapshots that go, in order."""
        return sorted(self._on_disk - self._snapshots.keys())

    @property
    def written(self) -> dict[int, bytes]:
        """Content of the snapshots that are to be written, by offset; not of those that hold the same already."""
        wanted = {offset: content for offset, content in sorted(self._snapshots.items()) if content is not None}
        return {offset: content for offset, content in wanted.items() if not self._says(offset, content)}

    def _newest(self, log_start_offset: int) -> ProducerStates:
        """Return the state of the newest snapshot; damaged ones go."""
        for offset in sorted(self._snapshots, reverse=True):
            entries = _entries(self._snapshots[offset] or self._read(offset))
            if entries is not None:
                return ProducerStates(offset, entries)
            del self._snapshots[offset]
        return ProducerStates(log_start_offset)

    def _says(self, offset: int, content: bytes) -> bool:
        """Whether a snapshot on the disk holds the same, in any order."""
        found = self._read(offset) if offset in self._on_disk else None
        if found is None or len(found) != len(content):
            return False
        return found == content or set(_entries(found) or ()) == set(_entries(content) or ())

    def _read(self, offset: int) -> bytes | None:
        """Return a snapshot on the disk, None if it is gone."""
        path = self._directory / segment_file_name(offset, SNAPSHOT)
        with storage_errors(path):
            return read_if_there(path)

    def _drop_strays(self, bases: Sequence[int]) -> None:
        for offset in stray_snapshots(self._snapshots, bases):
            del self._snapshots[offset]


def _entries(content: bytes | None) -> list[ProducerState] | None:
    """Return the content of a snapshot, None if it can't be read."""
    try:
        return None if content is None else parse_producer_snapshot(content)
    except CorruptFileError:
        return None
