"""The table that `sparklog describe` prints for people."""

from collections.abc import Mapping
from typing import Any

from sparklog.pipeline.maintenance.cleaner_view import cleaner_lines
from sparklog.pipeline.terminal import PeopleTable, say
from sparklog.pipeline.verbs.quarantine_view import quarantine_lines
from sparklog.storage_core.quantity_text import iso_time, size_text

__all__ = ["print_description"]

_WIDE = 160


def print_description(described: Mapping[str, Any], *, with_segments: bool) -> None:
    """Print one row per log, with its segments below if asked for, then what is lost, and a line of totals."""
    table = PeopleTable(_WIDE)
    table.texts("log")
    table.numbers("start", "end", "segments", "size", "index size")
    table.texts("max timestamp")
    for log in described["logs"]:
        _add(table, log["log"], log["log_start_offset"], log["log_end_offset"], f"{len(log['segments']):,}", log)
        for name, found in log.get("offsets", {}).items():
            table.row(*_offset_row(name, found))
        for each in log["segments"] if with_segments else ():
            _add(table, f"  {each['base_offset']:020}", each["base_offset"], each["next_offset"], "", each)
    table.print()
    offline = (each for each in described["logs"] if each.get("offline"))
    say(*(f"offline: {log['directory']}: {log['offline']}" for log in offline))
    say(*(f"set aside: {path}" for path in described.get("set_aside", ())))
    say(*quarantine_lines(described))
    say(*cleaner_lines(described), *map(_lost_line, described.get("lost_ranges", ())), _totals(described))


def _add(table: PeopleTable, name: str, start: int, end: int, segments: str, sizes: Mapping[str, Any]) -> None:
    latest = sizes["max_timestamp_ms"]
    numbers = (f"{start:,}", f"{end:,}", segments, size_text(sizes["size_bytes"]), size_text(sizes["index_bytes"]))
    table.row(name, *numbers, "-" if latest < 0 else iso_time(latest))


def _offset_row(name: str, found: Mapping[str, int]) -> tuple[str, ...]:
    """Return one of a log's offsets and its place: in the columns of names and starts, and behind them."""
    base, position = found["segment_base_offset"], found["position"]
    place = "no segment" if base < 0 else f"{base:020}.log" + (f":{position:,}" if position >= 0 else "")
    return f"  {name.replace('_', ' ')}", f"{found['offset']:,}", "", "", "", "", place


def _lost_line(lost: Mapping[str, Any]) -> str:
    last = "?" if lost["last_offset"] is None else f"{lost['last_offset']:,}"
    offsets = f"{lost['topic']}-{lost['partition']} offsets {lost['first_offset']:,}..{last}"
    return f"lost: {offsets}, found {iso_time(lost['found_ms'])} in {lost['file']}: {lost['reason']}"


def _totals(described: Mapping[str, Any]) -> str:
    logs = described["logs"]
    offsets = sum(each["log_end_offset"] - each["log_start_offset"] for each in logs)
    segments = sum(len(each["segments"]) for each in logs)
    size = sum(each["size_bytes"] for each in logs)
    version = described["ledger_version"]
    ledger = "no ledger" if version is None else f"ledger version {version}"
    return f"{len(logs):,} logs, {segments:,} segments, {offsets:,} offsets, {size_text(size)}, {ledger}"
