"""What a broker's start does to the files of a log directory, as their names show it: the first four passes.

| pass | files | what becomes of them |
|---|---|---|
| 1 | `X.deleted` | go; `X.checkpoint.deleted` is the metadata log's own |
| 1 | `X.cleaned` | go: a replacement that was not complete |
| 1 | `X.swap` at or above the smallest `X.cleaned` | go: parts of that replacement |
| 2 | originals from the smallest complete `.log.swap` up to where the largest one ends | go: they are replaced |
| 3 | `X.swap` | takes its name |
| 4 | an index without its `.log` | goes |
| 4 | a `.log` without its `.index` | is recovered |
| 4 | a `.log` without its `.timeindex` | gets an empty one |

Names in, decisions out: nothing here touches a disk.

Source: Kafka LogLoader.load, removeTempFilesAndCollectSwapFiles, loadSegmentFiles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.files.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIMEINDEX,
    TXNINDEX,
    parse_base_offset,
    segment_file_name,
)

__all__ = ["LeftoverPlan", "SegmentNames", "complete_swap_logs", "name_offset", "plan_leftovers", "plan_segments"]

_METADATA_SNAPSHOT: Final = ".checkpoint.deleted"
_INDEXES: Final = (INDEX, TIMEINDEX, TXNINDEX)
_SEGMENT_SUFFIXES: Final = (LOG, *_INDEXES)
_OFFSET_DIGITS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverPlan:
    """What happens to leftovers, in this order.

    Attributes:
        deleted: `.deleted` files, which go.
        void_swaps: `.swap` files of a replacement that was not complete; they go before the `.cleaned` files.
        cleaned: `.cleaned` files, which go.
        replaced: originals that a complete replacement stands for; they go before it takes its names.
        renamed: `.swap` files that lose that suffix, each segment's `.log` first.
    """

    deleted: tuple[str, ...] = ()
    void_swaps: tuple[str, ...] = ()
    cleaned: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.deleted, self.void_swaps, self.cleaned, self.replaced, self.renamed))

    def names_after(self, names: Collection[str]) -> dict[str, str]:
        """Return the names that are there afterwards, each with the one its file has now."""
        gone = {*self.deleted, *self.void_swaps, *self.cleaned, *self.replaced, *self.renamed}
        after = {name: name for name in names if name not in gone}
        return after | {name.removesuffix(SWAP): name for name in self.renamed}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentNames:
    """What the names show of a log's segments, once its leftovers are gone.

    Attributes:
        base_offsets: of its segments, rising.
        orphans: index files without a `.log`, which go.
        without_index: segments without offset index, which are recovered.
        without_time_index: segments without time index.
        snapshots: offsets of producer snapshots, rising.
    """

    base_offsets: tuple[int, ...]
    orphans: tuple[str, ...]
    without_index: frozenset[int]
    without_time_index: frozenset[int]
    snapshots: tuple[int, ...]


def name_offset(name: str) -> int:
    """Return the offset that a file on its way starts with, e.g. of `00000000000000000042.log.x7.cleaned`.

    Raises:
        CorruptFileError: it starts with none; a broker does not start on such a file either.
    """
    digits = name.partition(".")[0]
    if len(digits) != _OFFSET_DIGITS or not digits.isascii() or not digits.isdigit():
        raise CorruptFileError(f"a file on its way is named after no offset: file={name}")
    return int(digits)


def complete_swap_logs(names: Collection[str], below: int | None = None) -> list[str]:
    """Return the `.log.swap` files of complete replacements: the offsets that they reach decide what they replace.

    Args:
        names: of every file in the directory.
        below: leave alone whatever is on its way at this base offset or above; None for nothing.
    """
    return [name for name in _complete_swaps(_considered(names, below)) if name.endswith(LOG + SWAP)]


def plan_leftovers(
    names: Collection[str], swap_next_offsets: Mapping[str, int], below: int | None = None
) -> LeftoverPlan:
    """Return what the first three passes do.

    Args:
        names: of every file in the directory.
        swap_next_offsets: offset after the last batch of each of `complete_swap_logs`.
        below: as there.

    Raises:
        CorruptFileError: a file on its way is named after no offset.
    """
    considered = _considered(names, below)
    if not considered:
        return LeftoverPlan()
    complete = _complete_swaps(considered)
    return LeftoverPlan(
        deleted=tuple(name for name in considered if _is_deleted(name)),
        void_swaps=tuple(name for name in considered if name.endswith(SWAP) and name not in complete),
        cleaned=tuple(name for name in considered if name.endswith(CLEANED)),
        replaced=tuple(_replaced(names, swap_next_offsets)),
        renamed=tuple(sorted(complete, key=lambda name: (name_offset(name), not name.endswith(LOG + SWAP), name))),
    )


def plan_segments(names: Collection[str]) -> SegmentNames:
    """Return what the fourth pass finds.

    Args:
        names: that are there once the leftovers are gone.
    """
    of_suffix = _bases(names)
    logs = of_suffix[LOG]
    return SegmentNames(
        base_offsets=tuple(sorted(logs)),
        orphans=tuple(
            segment_file_name(base, suffix) for suffix in _INDEXES for base in sorted(of_suffix[suffix] - logs)
        ),
        without_index=frozenset(logs - of_suffix[INDEX]),
        without_time_index=frozenset(logs - of_suffix[TIMEINDEX]),
        snapshots=tuple(sorted(of_suffix[SNAPSHOT])),
    )


def _considered(names: Collection[str], below: int | None) -> list[str]:
    """Return the files on their way that these passes decide about."""
    return sorted(
        name
        for name in names
        if _is_deleted(name) or (name.endswith((CLEANED, SWAP)) and (below is None or name_offset(name) < below))
    )


def _is_deleted(name: str) -> bool:
    return name.endswith(DELETED) and not name.endswith(_METADATA_SNAPSHOT)


def _complete_swaps(considered: Collection[str]) -> set[str]:
    unfinished = min((name_offset(name) for name in considered if name.endswith(CLEANED)), default=None)
    swaps = (name for name in considered if name.endswith(SWAP))
    return {name for name in swaps if unfinished is None or name_offset(name) < unfinished}


def _replaced(names: Collection[str], swap_next_offsets: Mapping[str, int]) -> Iterator[str]:
    """Yield the originals, of whatever kind: a snapshot inside a replaced range goes, too."""
    if not swap_next_offsets:
        return
    low, high = min(map(name_offset, swap_next_offsets)), max(swap_next_offsets.values())
    for name in sorted(names):
        base = None if name.endswith((SWAP, CLEANED, DELETED)) else parse_base_offset(name)
        if base is not None and low <= base < high:
            yield name


def _bases(names: Collection[str]) -> dict[str, set[int]]:
    """Return the offsets that files of each kind are named after."""
    found: dict[str, set[int]] = {suffix: set() for suffix in (*_SEGMENT_SUFFIXES, SNAPSHOT)}
    for name in names:
        digits, suffix = name[:_OFFSET_DIGITS], name[_OFFSET_DIGITS:]
        if suffix in found and len(digits) == _OFFSET_DIGITS and digits.isascii() and digits.isdigit():
            found[suffix].add(int(digits))
    return found
