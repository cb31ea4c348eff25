"""What a loading did to a log directory, or would do: a line for people each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.storage_core.checkpoint.producer_snapshot import parse_producer_snapshot
from sparklog.storage_core.log.files.names import LOG, SNAPSHOT, segment_file_name
from sparklog.storage_core.log.load.plan import LeftoverPlan
from sparklog.storage_core.log.load.recover_segment import SegmentRecovery
from sparklog.storage_core.log.load.split_segment import SplitPart

__all__ = ["LoadStep", "cut_step", "deleted_steps", "leftover_steps", "snapshot_steps", "split_step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStep:
    """One change.

    Attributes:
        log: name of its directory.
        file: in the directory.
        what: becomes of it.
        lost_bytes: of batches that are no part of the log any more.
        first_offset, end_offset: of the offsets that go with them; None where they are not known.
    """

    log: str
    file: str
    what: str
    lost_bytes: int = 0
    first_offset: int | None = None
    end_offset: int | None = None

    def __str__(self) -> str:
        return f"{self.log}/{self.file}: {self.what}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def leftover_steps(log: str, plan: LeftoverPlan) -> Iterator[LoadStep]:
    """Yield what becomes of files on their way."""
    for names, what in (
        (plan.deleted, "removed: it was deleted before"),
        (plan.void_swaps, "removed: a part of a replacement that was not complete"),
        (plan.cleaned, "removed: a replacement that was not complete"),
        (plan.replaced, "removed: a complete replacement stands for it"),
        (plan.renamed, "takes its name: a complete replacement"),
    ):
        for name in names:
            yield LoadStep(log=log, file=name, what=what)


def cut_step(log: str, recovery: SegmentRecovery, following: int | None, left: str) -> LoadStep:
    """Return the cut of a segment.

    Args:
        log: name of its directory.
        recovery: of the segment; something of it is cut.
        following: where the next segment starts; None if there is none.
        left: what the log is then, for people.
    """
    reason = recovery.stop.what if recovery.stop else "no batch"
    is_told = following is not None and following > recovery.next_offset
    offsets = f", offsets {recovery.next_offset} to {following - 1}" if following is not None and is_told else ""
    return LoadStep(
        log=log,
        file=recovery.files.log_path.name,
        what=f"cut at position {recovery.valid_bytes}, {recovery.cut_bytes} bytes{offsets}: {reason}; {left}",
        lost_bytes=recovery.cut_bytes,
        first_offset=recovery.next_offset,
        end_offset=following,
    )


def deleted_steps(log: str, segments: Sequence[tuple[int, int, int | None]], why: str) -> Iterator[LoadStep]:
    """Yield the deletion of whole segments.

    Args:
        log: name of its directory.
        segments: (base offset, bytes, offset after the last batch or None) of each.
        why: for people.
    """
    for base, size_bytes, end in segments:
        upto = "on" if end is None else f"to {end - 1}"
        offsets = "no offsets" if end == base else f"offsets {base} {upto}"
        yield LoadStep(
            log=log,
            file=segment_file_name(base, LOG),
            what=f"deleted with its indexes, {size_bytes} bytes, {offsets}: {why}",
            lost_bytes=size_bytes,
            first_offset=base,
            end_offset=end,
        )


def split_step(log: str, name: str, parts: Sequence[SplitPart]) -> LoadStep:
    """Return the split of a segment."""
    bases = ", ".join(str(part.base_offset) for part in parts)
    return LoadStep(
        log=log, file=name, what=f"split into segments at offsets {bases}: an index can't hold offsets so far apart"
    )


def snapshot_steps(log: str, dropped: Iterable[int], written: Mapping[int, bytes]) -> Iterator[LoadStep]:
    """Yield what becomes of producer snapshots."""
    for offset in dropped:
        yield LoadStep(log=log, file=segment_file_name(offset, SNAPSHOT), what="removed: of no use to this log")
    for offset, content in written.items():
        count = len(parse_producer_snapshot(content))
        yield LoadStep(log=log, file=segment_file_name(offset, SNAPSHOT), what=f"written: {count} producers")
