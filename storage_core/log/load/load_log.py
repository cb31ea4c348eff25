"""Loads a log directory as a broker's start does: leftovers, segments, recovery, offsets, epochs, producers.

| what is found | what is done |
|---|---|
| files on their way | finished or undone, see `load_plan` |
| an index without its `.log` | it goes |
| a `.log` without offset index, or with a damaged transaction index | that segment is recovered |
| no clean shutdown | segments are recovered, from the one that holds the recovery point on |
| damage or a torn tail in one of those | it is cut there, and every later segment is deleted |
| offsets that an index can't hold, in a segment that is recovered | the segment is split |
| a log that ends below its start | every segment is deleted; an empty one at the start |
| no segment | an empty one at the start |

As in Kafka a segment that is recovered because of its index alone may be cut without a word about later segments: a gap
is left then, and the step names it.

Killed at any step and run again, a loading comes to the same end. Where damage takes later segments with it, they go
before the damage does: once it is cut, nothing would show that they have to go.

Source: Kafka LogLoader.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklog.storage_core.checkpoint.leader_epochs import truncate_epochs_from_end, truncate_epochs_from_start
from sparklog.storage_core.errors import CorruptBatchError, CorruptFileError
from sparklog.storage_core.index.transaction_index import parse_transaction_index
from sparklog.storage_core.log.files.names import INDEX, LOG, TIMEINDEX, TXNINDEX, segment_file_name
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.changes import LoadChanges
from sparklog.storage_core.log.load.producers import LoadingProducers
from sparklog.storage_core.log.load.recover_segment import SegmentRecovery, scan_segment
from sparklog.storage_core.log.load.split_segment import plan_split
from sparklog.storage_core.log.load.steps import (
    LoadStep,
    cut_step,
    deleted_steps,
    leftover_steps,
    snapshot_steps,
    split_step,
)
from sparklog.storage_core.log.load.survey import EPOCH_FILE, LogSurvey
from sparklog.storage_core.log.producers.states import ProducerStates
from sparklog.storage_core.log.scan.segment_reader import SEEK_BYTES, SegmentReader
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_file
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["LoadOptions", "LoadedLog", "load_log"]

_NOT_CLEAN: Final = (
    "the log ends in what is no batch, though its root was shut down cleanly; delete .kafka_cleanshutdown, and it is"
    " recovered"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What is known of a log from outside of its directory.

    Attributes:
        now_ms: current time, for the expiry of producers.
        recovery_point: as checkpointed; everything below is taken on trust.
        log_start_offset: as checkpointed.
        is_clean: whether the log was shut down cleanly: then all of it is taken on trust.
        index_interval_bytes: Kafka's `index.interval.bytes`.
    """

    now_ms: int
    recovery_point: int = 0
    log_start_offset: int = 0
    is_clean: bool = False
    index_interval_bytes: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A log that is ready to be read and appended to.

    Attributes:
        recovery_point: everything below is known to be on the disk.
        base_offsets: of its segments; the last one is active.
        leader_epochs: (epoch, start offset) entries.
        producers: state of its producers at the end.
        steps: what was done, in order.
    """

    log: TopicPartition
    directory: Path
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    base_offsets: tuple[int, ...]
    leader_epochs: tuple[tuple[int, int], ...]
    producers: ProducerStates
    steps: tuple[LoadStep, ...]

    @property
    def lost_bytes(self) -> int:
        """Bytes that are no part of the log any more."""
        return sum(step.lost_bytes for step in self.steps)


def load_log(survey: LogSurvey, options: LoadOptions, changes: LoadChanges) -> LoadedLog:
    """Load a log; on the disk or in a plan, as `changes` does it.

    Args:
        survey: of the directory, as it still is.
        options: of the log.
        changes: carries each decision out.

    Raises:
        CorruptFileError: a file that decides what happens is damaged, the log's end can't be found in spite of a clean
            shutdown, or an overflowed segment is damaged.
        CorruptBatchError: offsets go back, and which batch is wrong is not known; or a batch before the
            recovered ones is damaged that producers have to be followed over.
        StorageError: the disk refused; what was done is done, and the next call continues.
    """
    loading = _Loading(survey, options, changes)
    loading.load_segments()
    if not options.is_clean:
        loading.recover_unflushed()
    return loading.finish()


@dataclass(slots=True)
class _Segment:
    """One segment while the log is loaded.

    Attributes:
        next_offset: after its last batch, once it was recovered.
        valid_bytes: of its `.log`, once it was recovered.
        is_readable: whether its batches can be followed; not after a truncation that is only planned.
    """

    files: SegmentFiles
    next_offset: int | None = None
    valid_bytes: int | None = None
    is_readable: bool = True

    @property
    def base_offset(self) -> int:
        return self.files.base_offset


class _Loading:
    """The state of one loading."""

    def __init__(self, survey: LogSurvey, options: LoadOptions, changes: LoadChanges) -> None:
        self._survey = survey
        self._name = survey.directory.absolute().name
        self._options = options
        self._changes = changes
        self._steps: list[LoadStep] = []
        self._epochs = self._epochs_on_disk = list(survey.leader_epochs)
        self._producers = LoadingProducers(survey.directory, survey.segments.snapshots, options.now_ms)
        self._files = survey.files
        self._segments: list[_Segment] = []
        self._without_index = set(survey.segments.without_index)

    def load_segments(self) -> None:
        """Leave nothing on its way, and give every segment its indexes."""
        found = self._survey.segments
        self._steps += leftover_steps(self._name, self._survey.leftovers)
        self._files = self._changes.finish_leftovers(self._survey.leftovers, self._survey.files)
        self._segments = [_Segment(SegmentFiles(base, self._path(base, LOG))) for base in found.base_offsets]
        self._steps += [self._step(name, "removed: an index without its log") for name in found.orphans]
        self._changes.drop(found.orphans)
        number = 0
        while number < len(self._segments):
            segment = self._segments[number]
            reason = self._reason_to_recover(segment.base_offset) if segment.next_offset is None else None
            if reason is not None:
                recovery = self._scan(number, number)
                if recovery is None:
                    continue  # it was split: its parts are next
                following = self._segments[number + 1].base_offset if number + 1 < len(self._segments) else None
                self._recover(segment, recovery, reason, following)
            elif segment.base_offset in found.without_time_index and number < self._first_unflushed():
                name = segment_file_name(segment.base_offset, TIMEINDEX)
                self._steps.append(self._step(name, "made, empty: it is missing, and its segment is taken on trust"))
                self._changes.add_empty(name)
            number += 1

    def recover_unflushed(self) -> None:
        """Recover the segments that may not be on the disk; the first one that has to be cut ends the log."""
        number = self._first_unflushed()
        while number < len(self._segments):
            segment = self._segments[number]
            if segment.next_offset is None:
                recovery = self._scan(number, len(self._segments))
                if recovery is None:
                    continue  # it was split: its parts are next
                if recovery.cut_bytes:
                    self._end_at(number, recovery)
                    return
                self._recover(segment, recovery, "the shutdown was not clean, and it was different", None)
            number += 1

    def finish(self) -> LoadedLog:
        """Settle offsets, epochs and producers."""
        end, point = self._settle_end()
        start = max(self._options.log_start_offset, self._segments[0].base_offset)
        epochs = truncate_epochs_from_end(self._epochs, end)
        epochs = truncate_epochs_from_start(epochs, self._options.log_start_offset)
        if epochs != self._epochs_on_disk:
            self._steps.append(self._step(EPOCH_FILE, f"written: {len(epochs)} leader epochs"))
            self._changes.write_epochs(epochs)
        bases = tuple(each.base_offset for each in self._segments)
        finish = self._producers.finish_clean if self._options.is_clean else self._producers.finish
        producers = finish(self._readable(len(self._segments)), bases, start, end)
        dropped, written = self._producers.dropped, self._producers.written
        self._steps += snapshot_steps(self._name, dropped, written)
        self._changes.write_snapshots(dropped, written)
        return LoadedLog(
            log=self._survey.log,
            directory=self._survey.directory,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=point,
            base_offsets=bases,
            leader_epochs=tuple(epochs),
            producers=producers,
            steps=tuple(self._steps),
        )

    def _settle_end(self) -> tuple[int, int]:
        """Return the log's end and its recovery point; there is a segment then."""
        start = self._options.log_start_offset
        end = self._next_offset(self._segments[-1]) if self._segments else None
        if end is not None and end >= start:
            return end, end if self._options.is_clean else min(self._options.recovery_point, end)
        if self._segments:
            self._delete(self._segments, f"the log ends at offset {end}, below its start {start}")
            self._segments, self._epochs = [], []
            self._producers.clear()
        for suffix in (LOG, TIMEINDEX, INDEX):
            self._changes.add_empty(segment_file_name(start, suffix))
        log = segment_file_name(start, LOG)
        self._steps.append(self._step(log, "made, empty: the log has no segment"))
        self._segments = [_Segment(SegmentFiles(start, self._survey.directory / log), start)]
        return start, min(self._options.recovery_point, start)

    def _first_unflushed(self) -> int:
        """Return the number of the first segment that is recovered because it may not have been on the disk."""
        if self._options.is_clean:
            return len(self._segments)
        bases = [each.base_offset for each in self._segments]
        return max(bisect_right(bases, self._options.recovery_point) - 1, 0)

    def _reason_to_recover(self, base_offset: int) -> str | None:
        """Say what is wrong with a segment's indexes, None if nothing that a start looks at."""
        if base_offset in self._without_index:
            return "there is no offset index"
        if segment_file_name(base_offset, TXNINDEX) not in self._files:
            return None
        path = self._path(base_offset, TXNINDEX)
        try:
            with storage_errors(path):
                parse_transaction_index(read_file(path), base_offset)
        except CorruptFileError as error:
            return str(error)
        return None

    def _scan(self, number: int, known: int) -> SegmentRecovery | None:
        """Return what a recovery of a segment writes; None where it had to be split.

        Args:
            number: of the segment.
            known: so many segments count for where snapshots are taken.
        """
        segment = self._segments[number]
        bases = [each.base_offset for each in self._segments[:known]]
        log_start = self._options.log_start_offset
        producers = self._producers.at(self._readable(known), log_start, segment.base_offset, bases[-2:])
        recovery = scan_segment(segment.files, self._options.index_interval_bytes, producers, self._epochs)
        if recovery.is_overflowed:
            self._split(number)
            return None
        self._epochs = list(recovery.leader_epochs)
        self._producers.take(producers)
        segment.next_offset, segment.valid_bytes = recovery.next_offset, recovery.valid_bytes
        return recovery

    def _split(self, number: int) -> None:
        segment = self._segments[number]
        parts = plan_split(segment.files)
        self._steps.append(split_step(self._name, segment_file_name(segment.base_offset, LOG), parts))
        files = self._changes.split(segment.files, parts)
        if len(files) == 1:  # not carried out: the parts would be found to be sound
            segment.next_offset = parts[-1].next_offset
            return
        gone = {segment_file_name(segment.base_offset, suffix) for suffix in (INDEX, TIMEINDEX, TXNINDEX)}
        self._files = {name: file for name, file in self._files.items() if name not in gone}
        self._segments[number : number + 1] = [_Segment(each) for each in files]
        self._without_index |= {each.base_offset for each in files}

    def _end_at(self, number: int, recovery: SegmentRecovery) -> None:
        """Truncate a segment after deleting those above it: the damage that goes is the only sign that they must."""
        later = self._segments[number + 1 :]
        following = later[0].base_offset if later else None
        left = f"the log ends at offset {recovery.next_offset} then"
        self._steps.append(cut_step(self._name, recovery, following, left))
        if later:
            self._delete(later, "damage before it")
            del self._segments[number + 1 :]
        self._write(self._segments[number], recovery, "the segment was cut")

    def _recover(self, segment: _Segment, recovery: SegmentRecovery, reason: str, following: int | None) -> None:
        if recovery.cut_bytes:
            left = "the segments above it stay" if following is not None else "it is the log's last segment"
            self._steps.append(cut_step(self._name, recovery, following, left))
        self._write(segment, recovery, reason)

    def _write(self, segment: _Segment, recovery: SegmentRecovery, reason: str) -> None:
        """Carry a recovery out, unless it changes nothing."""
        changed = self._changed_indexes(recovery)
        self._steps += [self._step(name, f"built anew: {reason}") for name in changed]
        if changed or recovery.cut_bytes:
            segment.is_readable = self._changes.recover(recovery) is not None

    def _changed_indexes(self, recovery: SegmentRecovery) -> list[str]:
        """Return the index files that do not hold what they should; an empty transaction index need not be there."""
        wanted = {TIMEINDEX: recovery.time_index, TXNINDEX: recovery.txn_index, INDEX: recovery.offset_index}
        base = recovery.files.base_offset
        return [
            segment_file_name(base, suffix)
            for suffix, content in wanted.items()
            if self._content(base, suffix) != content and (content or suffix != TXNINDEX or self._content(base, suffix))
        ]

    def _content(self, base_offset: int, suffix: str) -> bytes | None:
        if segment_file_name(base_offset, suffix) not in self._files:
            return None
        path = self._path(base_offset, suffix)
        with storage_errors(path):
            return read_file(path)

    def _delete(self, segments: Sequence[_Segment], why: str) -> None:
        ends = [*(each.base_offset for each in segments[1:]), self._end_if_told(segments[-1])]
        facts = [(each.base_offset, _size_bytes(each), end) for each, end in zip(segments, ends, strict=True)]
        self._steps += deleted_steps(self._name, facts, why)
        self._changes.delete_segments([each.base_offset for each in segments])

    def _end_if_told(self, segment: _Segment) -> int | None:
        try:
            return self._next_offset(segment)
        except CorruptFileError:
            return None

    def _next_offset(self, segment: _Segment) -> int:
        """Return the offset after a segment's last batch, by its header, as a broker does: what is clean is believed.

        Raises:
            CorruptFileError: what follows the batches is none.
        """
        if segment.next_offset is not None:
            return segment.next_offset
        with SegmentReader(segment.files) as reader:
            try:
                deque(reader.chunks() if reader.size_bytes <= SEEK_BYTES else reader.last_chunks(), maxlen=0)
            except CorruptBatchError as error:
                raise CorruptFileError(f"{_NOT_CLEAN}: {error}") from error
            if reader.valid_bytes != reader.size_bytes:
                raise CorruptFileError(f"{_NOT_CLEAN}: file={segment.files.log_path} position={reader.valid_bytes}")
        return reader.next_offset

    def _readable(self, known: int) -> list[SegmentFiles]:
        return [each.files for each in self._segments[:known] if each.is_readable]

    def _path(self, base_offset: int, suffix: str) -> Path:
        name = segment_file_name(base_offset, suffix)
        return self._survey.directory / self._files.get(name, name)

    def _step(self, name: str, what: str) -> LoadStep:
        return LoadStep(log=self._name, file=name, what=what)


def _size_bytes(segment: _Segment) -> int:
    if segment.valid_bytes is not None:
        return segment.valid_bytes
    path = segment.files.log_path
    with storage_errors(path):
        return path.stat().st_size
