"""The verb `describe`: shows logs with segments, sizes and offsets, the cleaner's state, and the quarantine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparklog.pipeline.maintenance.cleaner_view import cleaner_lines, describe_cleaner
from sparklog.pipeline.places.lost_view import lost_of
from sparklog.pipeline.places.quarantine_view import describe_quarantine, quarantine_lines
from sparklog.pipeline.places.store_view import LogView, StoreView, open_named
from sparklog.pipeline.report import show
from sparklog.pipeline.terminal import PeopleTable
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.inspect.describe_log import describe_log
from sparklog.storage_core.log.read.log_offsets import find_log_offsets
from sparklog.storage_core.quantity_text import iso_time, size_text

__all__ = ["run"]

_WIDE = 160


@dataclass(frozen=True, slots=True)
class _Description:
    """The description as JSON has it."""

    found: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return self.found

    def lines(self) -> Iterator[str]:
        """Yield the lines below the table."""
        offline = (each for each in self.found["logs"] if each.get("offline"))
        yield from (f"offline: {log['directory']}: {log['offline']}" for log in offline)
        yield from (f"set aside: {path}" for path in self.found.get("set_aside", ()))
        yield from quarantine_lines(self.found)
        yield from cleaner_lines(self.found)
        yield from map(_lost_line, self.found.get("lost_ranges", ()))

    def verdict(self) -> str:
        """Return the totals."""
        logs = self.found["logs"]
        offsets = sum(each["log_end_offset"] - each["log_start_offset"] for each in logs)
        segments = sum(len(each["segments"]) for each in logs)
        size = sum(each["size_bytes"] for each in logs)
        version = self.found["ledger_version"]
        ledger = "no ledger" if version is None else f"ledger version {version}"
        return f"{len(logs):,} logs, {segments:,} segments, {offsets:,} offsets, {size_text(size)}, {ledger}"


def run(store: Path, topic: str | None, keep_in: Path | None, as_json: bool) -> None:
    """Carry the verb out."""
    view, logs = open_named(store, topic)
    found = _describe(view, logs, with_offsets=topic is not None) | {"lost_ranges": lost_of(view, logs, keep_in)}
    found |= describe_cleaner(view, logs, SystemClock()) | ({} if topic else describe_quarantine(view))
    if not as_json:
        _print_table(found["logs"], with_segments=topic is not None)
    show(_Description(found), as_json=as_json)


def _describe(view: StoreView, logs: Sequence[LogView], *, with_offsets: bool) -> dict[str, Any]:
    """Return segments, sizes and largest timestamps of logs.

    Args:
        with_offsets: also each log's offsets with segment and position, which reads its segments.
    """
    described = [
        {"topic": each.log.topic, "partition": each.log.partition}
        | (_describe_offline(each) if each.offline else describe_log(each.directory, each.expected).as_dict())
        | {"log": str(each.log)}  # during a move its directory has another name
        | (_describe_offsets(each) if with_offsets and not each.offline else {})
        for each in logs
    ]
    found = {"path": str(view.root), "ledger_version": view.ledger_version, "logs": described}
    return found | ({"set_aside": [str(path) for path in view.set_aside]} if view.set_aside else {})


def _describe_offsets(each: LogView) -> dict[str, Any]:
    return {"offsets": asdict(find_log_offsets(each.reader(), each.recovery_point))}


def _describe_offline(each: LogView) -> dict[str, Any]:
    """Return the ledger's facts about an offline log."""
    expected = each.expected
    return {
        "log": str(each.log),
        "directory": str(each.directory),
        "offline": each.offline,
        "log_start_offset": expected.log_start_offset if expected else 0,
        "log_end_offset": expected.log_end_offset if expected else 0,
        "size_bytes": 0,
        "index_bytes": 0,
        "max_timestamp_ms": -1,
        "segments": [],
    }


def _print_table(logs: Sequence[Mapping[str, Any]], *, with_segments: bool) -> None:
    """Print one row per log, and on request one per segment."""
    table = PeopleTable(_WIDE)
    table.texts("log")
    table.numbers("start", "end", "segments", "size", "index size")
    table.texts("max timestamp")
    for log in logs:
        _add(table, log["log"], log["log_start_offset"], log["log_end_offset"], f"{len(log['segments']):,}", log)
        for name, found in log.get("offsets", {}).items():
            table.row(*_offset_row(name, found))
        for each in log["segments"] if with_segments else ():
            _add(table, f"  {each['base_offset']:020}", each["base_offset"], each["next_offset"], "", each)
    table.print()


def _add(table: PeopleTable, name: str, start: int, end: int, segments: str, sizes: Mapping[str, Any]) -> None:
    latest = sizes["max_timestamp_ms"]
    numbers = (f"{start:,}", f"{end:,}", segments, size_text(sizes["size_bytes"]), size_text(sizes["index_bytes"]))
    table.row(name, *numbers, "-" if latest < 0 else iso_time(latest))


def _offset_row(name: str, found: Mapping[str, int]) -> tuple[str, ...]:
    """Return the row of one offset: its name, the offset, its segment and position."""
    base, position = found["segment_base_offset"], found["position"]
    place = "no segment" if base < 0 else f"{base:020}.log" + (f":{position:,}" if position >= 0 else "")
    return f"  {name.replace('_', ' ')}", f"{found['offset']:,}", "", "", "", "", place


def _lost_line(lost: Mapping[str, Any]) -> str:
    last = "?" if lost["last_offset"] is None else f"{lost['last_offset']:,}"
    offsets = f"{lost['topic']}-{lost['partition']} offsets {lost['first_offset']:,}..{last}"
    return f"lost: {offsets}, found {iso_time(lost['found_ms'])} in {lost['file']}: {lost['reason']}"
