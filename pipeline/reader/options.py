"""The options of `format("kafka-log")`: names, forms and defaults of Spark's Kafka connector, and a few of our own.

Options of the connector that need a broker are refused by name; no option is silently ignored. Names are
case-insensitive. All problems are reported at once.

Source: Spark's Structured Streaming + Kafka Integration Guide.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar, cast
from urllib.parse import unquote, urlsplit

from sparklog.pipeline.places.stored_logs import Place, stored_place
from sparklog.pipeline.reader.offset_limits import (
    EARLIEST,
    LATEST,
    LATEST_OFFSETS,
    OffsetLimit,
    parse_assignment,
    parse_limit,
    parse_time,
    parse_times,
)
from sparklog.sink.ledger.versions import AsOf
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log.producers.transactions import Isolation
from sparklog.storage_core.objects.address import is_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.topic_partition import TopicPartition

__all__ = ["ReadKind", "ReaderOptions", "parse_options"]

ReadKind = Literal["any", "batch", "stream"]

_Value = TypeVar("_Value")

_SELECTIONS = ("subscribe", "subscribePattern", "assign")
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_BATCH_ONLY = (*_ENDS, "asOfVersion", "asOfTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_NAMES = (
    "path",
    *_SELECTIONS,
    *_STARTS,
    "startingOffsetsByTimestampStrategy",
    *_BATCH_ONLY,
    *_STREAM_ONLY,
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
    "kafka.isolation.level",
)
_REFUSED = {
    "paths": "one path at a time; join frames with union",
    "kafka.bootstrap.servers": "there is no broker; path names the logs",
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.group.id": "there are no consumer groups",
    "groupidprefix": "there are no consumer groups",
    "topic": "it is an option for writing; use subscribe",
}
_STORAGE = "storage."
_DURATION = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d|)\s*")
_DURATION_MS = {"": 1, "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """The options of a query.

    Attributes:
        path: a store, a folder of log directories, or one log directory; or where a store of objects lies.
        subscribe: topics; None if not given.
        subscribe_pattern: regular expression for the whole name of a topic.
        assign: logs.
        starting, ending: limits of the read; ending is `LATEST_OFFSETS` in a stream.
        no_match_starts_latest: whether a log whose records are all earlier than its starting time is read from its
            end; otherwise it is an error.
        as_of: an earlier version of a store's ledger.
        min_partitions: least number of tasks; None: by the size of the logs.
        max_records_per_partition: most offsets of a task.
        max_offsets_per_trigger, min_offsets_per_trigger: of a stream, over all its logs.
        max_trigger_delay_ms: time after which a micro-batch may have fewer offsets than the least.
    """

    path: Place
    subscribe: tuple[str, ...] | None
    subscribe_pattern: str | None
    assign: tuple[TopicPartition, ...] | None
    starting: OffsetLimit
    ending: OffsetLimit
    no_match_starts_latest: bool
    as_of: AsOf | None
    isolation: Isolation
    include_headers: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int


def parse_options(options: Mapping[str, str], kind: ReadKind = "any") -> ReaderOptions:
    """Return the parsed options.

    Args:
        kind: of the query, a frame or a stream; `any` if Spark only asks for the columns.

    Raises:
        InvalidConfigError: options are wrong; names every problem.
    """
    given = _GivenOptions(options)
    parsed = ReaderOptions(
        path=_path(given),
        subscribe=given.take("subscribe", _parse_topics),
        subscribe_pattern=given.take("subscribePattern", _parse_pattern),
        assign=given.take("assign", parse_assignment),
        starting=_limit(given, _STARTS) or (LATEST_OFFSETS if kind == "stream" else OffsetLimit(common=EARLIEST)),
        ending=_limit(given, _ENDS) or LATEST_OFFSETS,
        no_match_starts_latest=given.choose("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        as_of=_as_of(given),
        isolation=cast("Isolation", given.choose("kafka.isolation.level", ("read_uncommitted", "read_committed"))),
        include_headers=given.choose("includeHeaders", ("false", "true")) == "true",
        fail_on_data_loss=given.choose("failOnDataLoss", ("true", "false")) == "true",
        min_partitions=given.take("minPartitions", _parse_count),
        max_records_per_partition=given.take("maxRecordsPerPartition", _parse_count),
        max_offsets_per_trigger=given.take("maxOffsetsPerTrigger", _parse_count),
        min_offsets_per_trigger=given.take("minOffsetsPerTrigger", _parse_count),
        max_trigger_delay_ms=given.take("maxTriggerDelay", _parse_duration) or _DEFAULT_MAX_TRIGGER_DELAY_MS,
    )
    _check_together(parsed, kind, given)
    given.finish()
    return parsed


class _GivenOptions:
    """Options by lower-case name; collects problems.

    Attributes:
        storage: what the storage of an address needs, by names without `storage.`; never printed.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._values = {name: value for name, value in given.items() if not name.startswith(_STORAGE)}
        self.storage = {
            name.removeprefix(_STORAGE): value for name, value in given.items() if name.startswith(_STORAGE)
        }
        self._problems: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def note(self, name: str, what: str) -> None:
        self._problems.append(f"{name}: {what}")

    def take(self, name: str, parse: Callable[[str], _Value], *, required: bool = False) -> _Value | None:
        text = self._values.get(name.lower())
        if text is None:
            if required:
                self.note(name, "is missing")
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.note(name, str(error))
            return None

    def choose(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of the choices; the first is the default."""
        value = self._values.get(name.lower(), choices[0]).strip().lower()
        if value not in choices:
            self.note(name, f"{value!r} is none of {', '.join(choices)}")
        return value

    def finish(self) -> None:
        """Add unknown options to the problems, and raise if there are any."""
        known = {name.lower(): name for name in _NAMES}
        for name in self._values.keys() - known.keys():
            if name in _REFUSED:
                self.note(name, f"not supported: {_REFUSED[name]}")
            elif name.startswith("kafka."):
                self.note(name, "not supported: there is no Kafka client")
            else:
                close = difflib.get_close_matches(name, known, n=1)
                self.note(name, "unknown option" + (f"; did you mean {known[close[0]]}?" if close else ""))
        if self._problems:
            raise InvalidConfigError("; ".join(sorted(self._problems)))


def _path(given: _GivenOptions) -> Place:
    found = given.take("path", _parse_path, required=True)
    if isinstance(found, StoragePlace):
        return replace(found, options=given.storage)
    if given.storage:
        given.note("storage", "its options are only used with an address such as s3://")
    return found or Path()


def _limit(given: _GivenOptions, names: tuple[str, str, str]) -> OffsetLimit | None:
    """Return the first given limit, in this order: one time for all, times, offsets."""
    time, times, offsets = names
    found = [
        given.take(time, parse_time),
        given.take(times, parse_times),
        given.take(offsets, parse_limit),
    ]
    return next((each for each in found if each is not None), None)


def _as_of(given: _GivenOptions) -> AsOf | None:
    if "asOfVersion" in given and "asOfTimestamp" in given:
        given.note("asOfVersion and asOfTimestamp", "only one of them can be given")
    version = given.take("asOfVersion", _parse_number)
    timestamp_ms = given.take("asOfTimestamp", _parse_moment)
    return None if version is None and timestamp_ms is None else AsOf(version=version, timestamp_ms=timestamp_ms)


def _check_together(parsed: ReaderOptions, kind: ReadKind, given: _GivenOptions) -> None:
    named = [name for name in _SELECTIONS if name in given]
    if len(named) > 1:
        given.note(" and ".join(named), "only one of them can select the logs")
    if kind == "stream":
        for name in _BATCH_ONLY:
            if name in given:
                given.note(name, "not an option of a stream; read a frame")
    if kind == "batch":
        for name in _STREAM_ONLY:
            if name in given:
                given.note(name, "only a stream has triggers")
        if parsed.starting.has(LATEST) and not parsed.starting.is_time:
            given.note("startingOffsets", "a frame can't start at the latest offset")
    if parsed.ending.has(EARLIEST) and not parsed.ending.is_time:
        given.note("endingOffsets", "reading can't end at the earliest offset")
    least, most = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        given.note("minOffsetsPerTrigger", f"{least} is above maxOffsetsPerTrigger, {most}")
    for log, start in parsed.starting.by_log.items():
        end = parsed.ending.by_log.get(log, LATEST)
        if parsed.starting.is_time == parsed.ending.is_time and 0 <= end < start:
            given.note("start and end", f"{log.topic}:{log.partition} starts at {start} and ends at {end}")


def _parse_path(text: str) -> Place:
    if is_address(text):
        try:
            place = stored_place(text)
        except InvalidConfigError as error:
            raise ValueError(str(error)) from error
        if place is not None:
            return place
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text):
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise ValueError(f"{text!r} is not a path of a local or mounted disk")
        text = unquote(parts.path)
    if not text.strip():
        raise ValueError("is empty")
    return Path(text).absolute()


def _parse_topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise ValueError(f"{text!r} names no topic")
    return topics


def _parse_pattern(text: str) -> str:
    pattern = text.strip()
    if not pattern:
        raise ValueError("is empty")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression ({error})") from error
    return pattern


def _parse_number(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a number of 0 or more")
    return int(text)


def _parse_count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) == 0:
        raise ValueError(f"{text!r} is not a number above 0")
    return int(text)


def _parse_duration(text: str) -> int:
    match = _DURATION.fullmatch(text.lower())
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 30s or 15m")
    return max(int(int(match[1]) * _DURATION_MS[match[2]]), 1)


def _parse_moment(text: str) -> int:
    """Return ms since the epoch; without a zone the text is in UTC."""
    if text.strip().isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValueError(f"{text!r} is neither ms since 1970 nor a time such as 2024-01-31T12:00:00Z") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
