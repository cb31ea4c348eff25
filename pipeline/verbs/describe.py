"""The verb `describe`: shows logs with segments, sizes and offsets, the cleaner's state, and the quarantine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from sparklog.pipeline.maintenance.cleaner_view import cleaner_lines, describe_cleaner
from sparklog.pipeline.places.cuts_view import cut_lines, cut_verdict, describe_cuts
from sparklog.pipeline.places.lost_view import lost_of
from sparklog.pipeline.places.quarantine_view import describe_quarantine, describe_stored_quarantine, quarantine_lines
from sparklog.pipeline.places.store_view import LogView, StoreView, open_named
from sparklog.pipeline.places.stored_logs import Place
from sparklog.pipeline.report import show
from sparklog.pipeline.terminal import PeopleTable
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.past.end_in_files import find_end_in_files
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.inspect.describe_log import describe_log
from sparklog.storage_core.log.read.log_offsets import LogOffsetMetadata, LogOffsets, find_log_offsets
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
        yield from (f"{log['state']}: {log['log']}: {log['reason']}" for log in self.found["logs"] if log.get("reason"))
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
        ledger = self.found.get("as_of", "no ledger" if version is None else f"ledger version {version}")
        return f"{len(logs):,} logs, {segments:,} segments, {offsets:,} offsets, {size_text(size)}, {ledger}"


@dataclass(frozen=True, slots=True)
class _Cuts:
    """The cuts as JSON has them."""

    path: str
    cuts: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        return {"path": self.path, "cuts": self.cuts}

    def lines(self) -> Iterator[str]:
        return cut_lines(self.cuts, SystemClock().now_ms())

    def verdict(self) -> str:
        return cut_verdict(self.cuts)


def run(
    store: Place, topic: str | None, as_of: AsOf | None, with_cuts: bool, keep_in: Path | None, as_json: bool
) -> None:
    """Carry the verb out."""
    if with_cuts and as_of is not None:
        raise click.UsageError("--cuts and --as-of exclude each other")
    if with_cuts:
        _show_cuts(store, topic, as_json=as_json)
        return
    view, logs = open_named(store, topic, as_of)
    found = _describe(view, logs, with_offsets=topic is not None) | {"lost_ranges": lost_of(view, logs, keep_in)}
    if view.past is None:
        found |= describe_cleaner(view, logs, SystemClock())
        if topic is None:
            found |= describe_quarantine(view) if isinstance(store, Path) else describe_stored_quarantine(store)
    if not as_json:
        _print_table(found["logs"], with_segments=topic is not None)
    show(_Description(found), as_json=as_json)


def _show_cuts(store: Place, topic: str | None, *, as_json: bool) -> None:
    """Print the cuts of a store, with what can be read of all its logs, or of a topic's."""
    view, logs = open_named(store, topic)
    if view.ledger_version is None:
        raise InvalidConfigError(f"only a store has cuts, which this is not: path={store}")
    cuts = describe_cuts(view.root, logs)
    if not as_json:
        table = PeopleTable(_WIDE)
        table.texts("cut")
        table.numbers("ledger version", "logs", "offsets")
        table.texts("state")
        table.folded("why")
        for each in cuts:
            numbers = (f"{each[name]:,}" for name in ("ledger_version", "logs", "offsets"))
            table.row(iso_time(each["cut_ms"]), *numbers, each["state"], each["reason"])
        table.print()
    show(_Cuts(str(store), cuts), as_json=as_json)


def _describe(view: StoreView, logs: Sequence[LogView], *, with_offsets: bool) -> dict[str, Any]:
    """Return segments, sizes and largest timestamps of logs.

    Args:
        with_offsets: also each log's offsets with segment and position, which reads its segments.
    """
    described = [
        {"topic": each.log.topic, "partition": each.log.partition}
        | _describe_log(each)
        | {"log": str(each.log)}  # during a move its directory has another name
        | (_describe_offsets(each) if with_offsets and _is_readable(each) else {})
        for each in logs
    ]
    found = {"path": str(view.root), "ledger_version": view.ledger_version, "logs": described}
    found |= {} if view.past is None else {"as_of": str(view.past)}
    return found | ({"set_aside": [str(path) for path in view.set_aside]} if view.set_aside else {})


def _is_readable(each: LogView) -> bool:
    return each.offline is None and (each.judgement is None or each.judgement.state != "passed")


def _describe_log(each: LogView) -> dict[str, Any]:
    """Return what a log has, for an earlier state in the files of today."""
    expected, judgement = each.expected, each.judgement
    if not _is_readable(each):
        found = _describe_unread(each)
    elif expected is not None and judgement is not None:
        base, size = find_end_in_files(each.directory, expected.log_end_offset)
        then = replace(expected, active_base_offset=base, active_size_bytes=size)
        found = describe_log(each.directory, then).as_dict()
    else:
        found = describe_log(each.directory, expected).as_dict()
    return found | ({} if judgement is None else {"state": judgement.state, "reason": judgement.reason})


def _describe_offsets(each: LogView) -> dict[str, Any]:
    found = find_log_offsets(each.reader(), each.recovery_point)
    above = {
        name: {"offsets": found.log_end_offset.message_offset_diff(lower), "bytes": _bytes_above(lower, found)}
        for name, lower in (("last_stable_offset", found.last_stable_offset), ("recovery_point", found.recovery_point))
    }
    return {"offsets": asdict(found), "above": above}


def _bytes_above(lower: LogOffsetMetadata, found: LogOffsets) -> int | None:
    """Return the bytes from an offset to the log's end; None if they are in several segments, or not known."""
    end = found.log_end_offset
    if min(lower.position, end.position) < 0 or lower.on_older_segment(end):
        return None
    return end.position_diff(lower)


def _describe_unread(each: LogView) -> dict[str, Any]:
    """Return the ledger's facts about a log that is offline, or whose earlier state has passed."""
    expected = each.expected
    return {
        "log": str(each.log),
        "directory": str(each.directory),
        **({} if each.offline is None else {"offline": each.offline}),
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
            table.row(*_offset_row(name, found, log["above"].get(name)))
        for each in log["segments"] if with_segments else ():
            _add(table, f"  {each['base_offset']:020}", each["base_offset"], each["next_offset"], "", each)
    table.print()


def _add(table: PeopleTable, name: str, start: int, end: int, segments: str, sizes: Mapping[str, Any]) -> None:
    latest = sizes["max_timestamp_ms"]
    numbers = (f"{start:,}", f"{end:,}", segments, size_text(sizes["size_bytes"]), size_text(sizes["index_bytes"]))
    table.row(name, *numbers, "-" if latest < 0 else iso_time(latest))


def _offset_row(name: str, found: Mapping[str, int], above: Mapping[str, int | None] | None) -> tuple[str, ...]:
    """Return the row of one offset: its name, the offset, its segment and position, and what lies above it."""
    base, position = found["segment_base_offset"], found["position"]
    place = "no segment" if base < 0 else f"{base:020}.log" + (f":{position:,}" if position >= 0 else "")
    if above and above["offsets"]:
        size = "" if above["bytes"] is None else f", {size_text(above['bytes'])}"
        place += f", {above['offsets']:,} offsets{size} below the end"
    return f"  {name.replace('_', ' ')}", f"{found['offset']:,}", "", "", "", "", place


def _lost_line(lost: Mapping[str, Any]) -> str:
    last = "?" if lost["last_offset"] is None else f"{lost['last_offset']:,}"
    offsets = f"{lost['topic']}-{lost['partition']} offsets {lost['first_offset']:,}..{last}"
    return f"lost: {offsets}, found {iso_time(lost['found_ms'])} in {lost['file']}: {lost['reason']}"
