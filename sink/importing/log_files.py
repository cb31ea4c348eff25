"""The files of one log that a store takes over, as a broker's start would load them: looked at, then placed.

| file | how |
|---|---|
| `.log` of a closed segment | shared blocks, else a second name, else a copy |
| `.log` of the last segment, or of one that a start would cut | shared blocks or a copy of the bytes that are batches |
| indexes, `.txnindex`, `.snapshot` | copies: a broker changes index files in place |
| indexes that a start would build anew | built |
| an empty segment at the end | new: the store's active one |
| `leader-epoch-checkpoint` | the broker's entries, and one for what the store appends |
| `partition.metadata` | the topic's id |

All taken segments are closed, so the store never appends to a file that a broker has, nor to batches of v0 or v1.

Source: Kafka LogLoader, UnifiedLog.roll, LeaderEpochFileCache.assign.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from sparklog.storage_core.checkpoint.leader_epochs import (
    assign_batch_epochs,
    assign_leader_epoch,
    render_leader_epochs,
)
from sparklog.storage_core.checkpoint.partition_metadata import render_partition_metadata
from sparklog.storage_core.errors import CorruptFileError, InvalidConfigError
from sparklog.storage_core.log.files.names import INDEX, LOG, SNAPSHOT, TIMEINDEX, TXNINDEX, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.changes import NotedChanges
from sparklog.storage_core.log.load.load_log import LoadedLog
from sparklog.storage_core.log.load.recover_segment import scan_segment
from sparklog.storage_core.log.load.survey import EPOCH_FILE, LogSurvey
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.log.read.largest_timestamp import largest_timestamp
from sparklog.storage_core.log.scan.segment_reader import SEEK_BYTES, SegmentReader, find_time
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX
from sparklog.storage_core.record.batch_probe import MAGIC_V2
from sparklog.storage_core.storage.local import storage_errors, write_file
from sparklog.storage_core.storage.share_file import Sharing, copy_file, share_file

__all__ = ["ImportedFiles", "ImportedSegment", "place_files", "survey_files"]

_INDEXES: Final = (INDEX, TIMEINDEX, TXNINDEX)
_INDEX_INTERVAL: Final = 4096
"""Kafka's default of `index.interval.bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSegment:
    """One segment to take.

    Attributes:
        files: of it, under the names that they will have.
        source: its `.log`; its name may still be one on its way.
        size_bytes: of its batches; bytes past them stay behind.
        next_offset: after its last batch.
        is_last: whether a broker may append to it.
        leader_epoch: of its last batch, -1 without one, or where the log's entries have it.
        copied: index files to copy, and the names that they get.
        built: content of index files to write.
    """

    files: SegmentFiles
    source: Path
    size_bytes: int
    next_offset: int
    max_timestamp_ms: int
    is_last: bool
    leader_epoch: int = -1
    copied: tuple[tuple[Path, str], ...] = ()
    built: tuple[tuple[str, bytes], ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all bytes of its `.log` are taken."""
        return self.source.stat().st_size == self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFiles:
    """The files of one log.

    Attributes:
        segments: that hold readable offsets, closed in the store.
        snapshots: name of each producer snapshot, and its file or content.
        leader_epochs: (epoch, start offset) entries, the store's own the last one.
        lost: what a broker's start would drop, other than a torn tail; a line each.
        gaps: (first, last) missing offsets between segments.
        torn: what a broker was writing when it stopped, and is left out; a line each.
    """

    loaded: LoadedLog
    segments: tuple[ImportedSegment, ...]
    snapshots: tuple[tuple[str, Path | bytes], ...]
    leader_epochs: tuple[tuple[int, int], ...]
    lost: tuple[str, ...]
    gaps: tuple[tuple[int, int], ...]
    torn: tuple[str, ...]

    @property
    def leader_epoch(self) -> int:
        """Epoch of what the store appends."""
        return self.leader_epochs[-1][0]

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of the log, -1 none."""
        return max((each.max_timestamp_ms for each in self.segments), default=-1)

    @property
    def size_bytes(self) -> int:
        """Bytes of batches."""
        return sum(each.size_bytes for each in self.segments)

    @property
    def index_bytes(self) -> int:
        """Bytes of indexes and producer snapshots."""
        copied = (source for each in self.segments for source, _ in each.copied)
        built = (content for each in self.segments for _, content in each.built)
        files = (*copied, *built, *(snapshot for _, snapshot in self.snapshots))
        return sum(each.stat().st_size if isinstance(each, Path) else len(each) for each in files)


def survey_files(survey: LogSurvey, loaded: LoadedLog, changes: NotedChanges) -> ImportedFiles:
    """Return what to take of a log.

    Args:
        survey: of its directory.
        loaded: as a broker's start would load it.
        changes: that such a start would make.

    Raises:
        InvalidConfigError: a segment has to be split first.
        CorruptFileError: two segments have the same offsets.
        CorruptBatchError: a closed segment ends in what is no batch.
        StorageError: the disk refused.
    """
    if changes.is_split:
        raise InvalidConfigError(
            f"a segment has to be split first: log={loaded.directory}; sparklog recover {loaded.directory} --execute"
        )
    known = survey.segments.base_offsets
    kept = [base for base in loaded.base_offsets if base in known]
    segments = [_segment(survey, base, changes, is_last=base == known[-1]) for base in kept]
    start, end = loaded.log_start_offset, loaded.log_end_offset
    segments = [each for each in segments if each.next_offset > start and each.size_bytes]
    epochs = _with_missing_epochs(loaded.leader_epochs, segments)
    lost = [step for step in loaded.steps if step.lost_bytes and not _is_torn_tail(step.file, known, loaded, changes)]
    return ImportedFiles(
        loaded=loaded,
        segments=tuple(segments),
        snapshots=_snapshots(survey, {*(each.files.base_offset for each in segments), end}, changes),
        leader_epochs=tuple(assign_leader_epoch(epochs, max([0, *(epoch for epoch, _ in epochs)]) + 1, end)),
        lost=tuple(map(str, lost)),
        gaps=tuple(_gaps(loaded.directory, segments)),
        torn=tuple(str(step) for step in loaded.steps if step.lost_bytes and step not in lost),
    )


def place_files(
    files: ImportedFiles, topic_id: str, target: Path, check: Callable[[], None], *, may_link: bool
) -> set[Sharing]:
    """Put a log's files into a new directory, without a sync; return how whole closed segments got there.

    Args:
        check: called before each segment; raises to stop here. The target is partial then.

    Raises:
        StorageError: the disk refused, or a file has fewer bytes than when it was looked at; the target is partial.
    """
    used = set[Sharing]()
    end = files.loaded.log_end_offset
    with storage_errors(target):
        target.mkdir()
        for segment in files.segments:
            check()
            path = target / segment.files.log_path.name
            if segment.is_whole and not segment.is_last:
                used.add(share_file(segment.source, path, may_link=may_link))
            elif segment.is_whole:
                share_file(segment.source, path, may_link=False)
            else:
                copy_file(segment.source, path, segment.size_bytes)
            for source, name in segment.copied:
                copy_file(source, target / name, source.stat().st_size)
            for name, content in segment.built:
                write_file(target / name, content)
        for suffix in (LOG, INDEX, TIMEINDEX):
            write_file(target / segment_file_name(end, suffix), b"")
        for name, snapshot in files.snapshots:
            if isinstance(snapshot, Path):
                copy_file(snapshot, target / name, snapshot.stat().st_size)
            else:
                write_file(target / name, snapshot)
        write_file(target / EPOCH_FILE, render_leader_epochs(files.leader_epochs))
        write_file(target / "partition.metadata", render_partition_metadata(topic_id))
    return used


def _segment(survey: LogSurvey, base_offset: int, changes: NotedChanges, *, is_last: bool) -> ImportedSegment:
    source = survey.segment(base_offset)
    names = {suffix: segment_file_name(base_offset, suffix) for suffix in _INDEXES}
    files = SegmentFiles(base_offset, survey.directory / segment_file_name(base_offset, LOG))
    recovery = changes.recoveries.get(base_offset)
    if recovery is not None:
        contents = {INDEX: recovery.offset_index, TIMEINDEX: recovery.time_index, TXNINDEX: recovery.txn_index}
        return ImportedSegment(
            files=files,
            source=source.log_path,
            size_bytes=recovery.valid_bytes,
            next_offset=recovery.next_offset,
            max_timestamp_ms=recovery.max_timestamp,
            is_last=is_last,
            built=tuple((names[suffix], data) for suffix, data in contents.items() if data or suffix != TXNINDEX),
        )
    epoch, magic, built = -1, MAGIC_V2, tuple[tuple[str, bytes], ...]()
    if names[TIMEINDEX] not in survey.files:
        built = ((names[TIMEINDEX], scan_segment(source, _INDEX_INTERVAL, ProducerStates()).time_index),)
    with SegmentReader(source) as reader:
        for chunk in reader.chunks() if reader.size_bytes <= SEEK_BYTES else reader.last_chunks():
            epoch, magic = int(chunk.scan.leader_epoch[-1]), int(chunk.scan.magic[-1])
        reader.check_end()
        timestamp = find_time(source, INT64_MAX)[0]  # a closed segment's last entry has its largest one
        if timestamp < 0 and magic > 0:
            timestamp = largest_timestamp(reader, reader.next_offset)
        return ImportedSegment(
            files=files,
            source=source.log_path,
            size_bytes=reader.valid_bytes,
            next_offset=reader.next_offset,
            max_timestamp_ms=timestamp,
            leader_epoch=epoch,
            is_last=is_last,
            copied=tuple(
                (survey.directory / survey.files[name], name) for name in names.values() if name in survey.files
            ),
            built=built,
        )


def _with_missing_epochs(
    entries: Sequence[tuple[int, int]], segments: Sequence[ImportedSegment]
) -> list[tuple[int, int]]:
    """Add the entries of epochs that batches have below the first one: an epoch file may be lost."""
    first = entries[0] if entries else (INT32_MAX, INT64_MAX)
    unnamed = [each for each in segments if each.leader_epoch >= 0 and each.files.base_offset < first[1]]
    found: list[tuple[int, int]] = []
    for each in unnamed:
        with SegmentReader(SegmentFiles(each.files.base_offset, each.source)) as reader:
            for chunk in reader.chunks():
                found = assign_batch_epochs(found, chunk.scan.leader_epoch, chunk.scan.base_offset)
    return [*(entry for entry in found if entry[0] < first[0] and entry[1] < first[1]), *entries]


def _gaps(directory: Path, segments: list[ImportedSegment]) -> Iterator[tuple[int, int]]:
    for each, following in pairwise(segments):
        base = following.files.base_offset
        if each.next_offset > base:
            raise CorruptFileError(
                f"two segments have the same offsets: log={directory} segment={each.files.base_offset} ends at"
                f" {each.next_offset - 1}, the next one starts at {base}; sparklog verify {directory}"
            )
        if each.next_offset < base:
            yield each.next_offset, base - 1


def _is_torn_tail(file: str, bases: tuple[int, ...], loaded: LoadedLog, changes: NotedChanges) -> bool:
    """Whether a cut takes what a broker was writing: the end of the last segment, without a whole batch in it."""
    recovery = changes.recoveries.get(bases[-1])
    is_cut = recovery is not None and recovery.stop is not None and not recovery.stop.is_damage
    return is_cut and loaded.base_offsets[-1] == bases[-1] and file == segment_file_name(bases[-1], LOG)


def _snapshots(survey: LogSurvey, offsets: set[int], changes: NotedChanges) -> tuple[tuple[str, Path | bytes], ...]:
    """Return the producer snapshots at these offsets that the log would have."""
    there = set(survey.segments.snapshots).difference(changes.dropped)
    found: dict[int, Path | bytes] = {
        offset: survey.directory / survey.files[segment_file_name(offset, SNAPSHOT)] for offset in there & offsets
    }
    found |= {offset: data for offset, data in changes.snapshots.items() if offset in offsets}
    return tuple((segment_file_name(offset, SNAPSHOT), found[offset]) for offset in sorted(found))
