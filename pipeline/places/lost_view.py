"""The list of lost offsets, and the folder where a repair keeps dropped bytes.

A store has both below `control/`. A broker refuses foreign files in a log directory, so a plain folder gets another
folder beside it: `<folder>-cut`, or `<parent>-cut` for a single log.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparklog.pipeline.places.store_view import LogView, StoreView
from sparklog.sink.ledger.lost_ranges import LostRange, LostRangeFile, LostRangeTable, cut_folder_beside
from sparklog.storage_core.inspect.verify.findings import OffsetRange
from sparklog.storage_core.topic_partition import parse_directory_name

__all__ = ["cut_folder", "cut_folder_of_store", "known_lost", "lost_of", "lost_ranges", "lost_store"]


def cut_folder(view: StoreView, keep_in: Path | None = None) -> Path:
    """Return the folder for the bytes that a repair drops; it need not exist.

    Args:
        keep_in: the user's folder for a plain folder.
    """
    if view.ledger_version is not None:
        return cut_folder_of_store(view.root)
    if keep_in is not None:
        return keep_in
    root = view.root.absolute()
    if parse_directory_name(root.name) and any(each.directory.absolute() == root for each in view.logs):
        root = root.parent
    return cut_folder_beside(root)


def cut_folder_of_store(store: Path) -> Path:
    """Return the same folder of a store, whose ledger may be torn."""
    return store / "control" / "cut"


def lost_store(view: StoreView, keep_in: Path | None = None) -> LostRangeTable | LostRangeFile:
    """Return the list of a place's lost offsets."""
    if view.ledger_version is not None:
        return LostRangeTable(view.root / "control" / "lost_ranges")
    return LostRangeFile(cut_folder(view, keep_in))


def lost_ranges(view: StoreView, keep_in: Path | None = None) -> list[LostRange]:
    """Return the lost offsets of a place's logs, oldest first."""
    return lost_store(view, keep_in).read()


def lost_of(view: StoreView, logs: Sequence[LogView], keep_in: Path | None = None) -> list[dict[str, Any]]:
    """Return the lost offsets of some logs, for JSON."""
    wanted = {(each.log.topic, each.log.partition) for each in logs}
    return [each.as_dict() for each in lost_ranges(view, keep_in) if (each.topic, each.partition) in wanted]


def known_lost(view: StoreView, keep_in: Path | None = None) -> Mapping[tuple[str, int], Sequence[OffsetRange]]:
    """Return the lost offsets of each log, except ranges without a known end."""
    found: dict[tuple[str, int], list[OffsetRange]] = defaultdict(list)
    for each in lost_ranges(view, keep_in):
        if each.last_offset is not None:
            found[each.topic, each.partition].append((each.first_offset, each.last_offset))
    return found
