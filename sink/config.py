"""Settings of a sink: the store, its topics, and the treatment of rows that can't become records."""

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log_config import INT32_MAX, LogConfig
from sparklog.storage_core.objects.address import is_address, parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.property_names import ignored_properties
from sparklog.storage_core.quantity_text import parse_duration
from sparklog.storage_core.topic_partition import check_topic_name, topic_names_collide
from sparklog.storage_core.topic_pattern import INTERNAL_TOPICS

__all__ = ["CutSettings", "MirroredTopic", "SinkConfig", "TopicConfig", "log_dir_problem"]

logger = logging.getLogger(__name__)

_OFFSETS = ("assigned", "preserved")
_ON_INVALID = ("fail", "quarantine")
_OWN_FOLDERS = ("ledger", "staging", "control")
_CUT_KEYS = {"every": 1000, "keep": 0}
"""Keys of the settings of cuts, with their least values in ms."""
_MOST_CUTS = 2000
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_UNUSABLE = re.compile(r"[\[\]\\^|%\x00-\x1f\x7f]")
"""Characters in a path that the ledger's library misreads."""
_OF_A_PROPERTY = re.compile(r"([a-z][a-z0-9.]*)=")
_UNKNOWN_PROPERTY = re.compile(r"unknown property '([^']+)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic: its name, its number of logs, and their settings."""

    name: str
    partitions: int = 1
    log: LogConfig = field(default_factory=LogConfig)

    @classmethod
    def from_properties(cls, name: str, properties: Mapping[str, object]) -> "TopicConfig":
        """Build a topic from `partitions` and Kafka's property names.

        Raises:
            InvalidConfigError: every problem, each with its key.
        """
        problems = []
        try:
            check_topic_name(name)
        except InvalidConfigError as error:
            problems.append(str(error))
        if name in INTERNAL_TOPICS:
            problems.append(f"topic name {name!r} is internal to Kafka")
        partitions = properties.get("partitions", 1)
        if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= INT32_MAX:
            problems.append(f"partitions={partitions!r} is not an integer from 1")
        for ignored in ignored_properties(properties):
            _note_ignored(name, ignored)
        log = LogConfig()
        try:
            log = LogConfig.from_properties({key: value for key, value in properties.items() if key != "partitions"})
        except InvalidConfigError as error:
            problems += error.problems
        if problems:
            raise InvalidConfigError(*(_topic_problem(name, problem) for problem in problems))
        return cls(name=name, partitions=int(partitions), log=log)  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTopic:
    """What a mirror's source has of a topic.

    Attributes:
        topic_id: of new logs, 22 characters; empty if the source has none.
        settings: recorded in place of the sink's own: what the source let producers send is not checked again.
        others: further properties of the topic, that only brokers use.
        starts: offsets at which new logs begin, by partition; 0 for others.
    """

    topic_id: str
    settings: LogConfig
    others: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict, compare=False)


@cache
def _note_ignored(topic: str, name: str) -> None:
    """Warn once about a property without effect: settings are checked when they are read, and when they are used."""
    logger.warning("topics.%s: %s is ignored, it has no meaning without a broker", topic, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSettings:
    """When cuts are written, the states of the past that a store can be read as of, and for how long they stay.

    Attributes:
        every_ms: between two cuts; None: none are written.
        keep_ms: how far back moments have the newest cut before them; the newest cut of all stays anyway.
    """

    every_ms: int | None = 60 * 60 * 1000
    keep_ms: int = 7 * 24 * 60 * 60 * 1000

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> "CutSettings":
        """Build the settings from `every` and `keep`, each a duration such as `1h`; `every` may be `never`.

        Raises:
            InvalidConfigError: every problem, each with its key.
        """
        problems = [f"cuts.{name}: unknown key; known are every and keep" for name in sorted(values.keys() - _CUT_KEYS)]
        found: dict[str, int | None] = {}
        for name, least_ms in _CUT_KEYS.items():
            text = str(values.get(name, "")).strip()
            duration_ms = parse_duration(text)
            if name == "every" and text == "never":
                found["every_ms"] = None
            elif duration_ms is not None and duration_ms >= least_ms:
                found[f"{name}_ms"] = duration_ms
            elif name in values:
                problems.append(f"cuts.{name}: {text!r} is no duration such as 1h or 7d, of at least {least_ms} ms")
        settings = cls(**found)  # type: ignore[arg-type]
        if settings.every_ms is not None and settings.keep_ms > settings.every_ms * _MOST_CUTS:
            problems.append(f"cuts.keep: more than {_MOST_CUTS:,} cuts at one each cuts.every")
        if problems:
            raise InvalidConfigError(*problems)
        return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """A sink's settings.

    Attributes:
        store: folder of the store, absolute; of a store of objects, the folder that its address would be.
        objects: where a store of objects lies; None for a folder of this machine.
        topics: by name.
        topic: topic of every row, for frames without a `topic` column.
        offsets: `assigned` (dense, from the log's end) or `preserved` (from the frame's `offset` column).
        on_invalid: `fail` refuses the whole micro-batch, `quarantine` diverts the row.
        quarantine: folder of diverted rows, absolute.
        log_dirs: Kafka's `log.dirs`, relative to the store or absolute.
        cuts: when they are written.
        stage_buffer_bytes: input that a task holds before it encodes.
        mirrored: topics of a mirror, as their source has them.
    """

    store: Path
    topics: Mapping[str, TopicConfig]
    topic: str | None = None
    offsets: str = "assigned"
    on_invalid: str = "fail"
    quarantine: Path
    log_dirs: tuple[str, ...] = ("logs",)
    cuts: CutSettings = field(default_factory=CutSettings)
    stage_buffer_bytes: int = 64 << 20
    mirrored: Mapping[str, MirroredTopic] = field(default_factory=dict)
    objects: StoragePlace | None = None

    def __post_init__(self) -> None:
        problems = self._place_problems() if self.objects is None else self._object_problems()
        if not self.topics:
            problems.append("topics is empty")
        if self.topic is not None and self.topic not in self.topics:
            problems.append(f"topic={self.topic!r} is not among topics: {', '.join(sorted(self.topics)) or 'none'}")
        if self.offsets not in _OFFSETS:
            problems.append(f"offsets={self.offsets!r} is none of {', '.join(_OFFSETS)}")
        if self.on_invalid not in _ON_INVALID:
            problems.append(f"on_invalid={self.on_invalid!r} is none of {', '.join(_ON_INVALID)}")
        names = sorted(self.topics)
        problems += [
            f"topics {first!r} and {second!r} collide: Kafka's metric names have '_' for '.'"
            for i, first in enumerate(names)
            for second in names[i + 1 :]
            if topic_names_collide(first, second)
        ]
        if problems:
            raise InvalidConfigError(*problems)

    def _place_problems(self) -> list[str]:
        """Refuse folders that overlap: each start empties `staging`."""
        problems = []
        if _UNUSABLE.search(str(self.store)):
            problems.append(f"store={str(self.store)!r} holds one of [ ] \\ ^ | % or a control character")
        roots = [Path(os.path.normpath(self.store / name)) for name in self.log_dirs]
        if not roots or len(set(roots)) != len(roots):
            problems.append(f"log_dirs={list(self.log_dirs)!r} is empty or names a folder twice")
        store = Path(os.path.normpath(self.store))
        own = [store / name for name in _OWN_FOLDERS]
        problems += [problem for name in self.log_dirs if (problem := log_dir_problem(store, name))]
        problems += [
            f"log_dirs={inner!r} lies in {outer!r}: a broker does not start on a folder among logs"
            for inner, below in zip(self.log_dirs, roots, strict=True)
            for outer, above in zip(self.log_dirs, roots, strict=True)
            if below != above and below.is_relative_to(above)
        ]
        quarantine = Path(os.path.normpath(self.quarantine))
        if quarantine == store or any(quarantine.is_relative_to(each) for each in (*own, *roots)):
            problems.append(
                f"quarantine={str(self.quarantine)!r} is the store, or lies in a folder that the store itself uses"
            )
        return problems

    def _object_problems(self) -> list[str]:
        """Refuse what a store of objects does not have yet."""
        problems = []
        if self.log_dirs != ("logs",):
            problems.append("log_dirs: a store of objects has none")
        return problems

    @classmethod
    def from_options(
        cls,
        store: str | Path,
        topics: Mapping[str, Mapping[str, object]],
        *,
        topic: str | None = None,
        offsets: str = "assigned",
        on_invalid: str = "fail",
        quarantine: str | Path | None = None,
        log_dirs: tuple[str, ...] = (),
        cuts: Mapping[str, object] | None = None,
        storage: Mapping[str, str] | None = None,
    ) -> "SinkConfig":
        """Build the settings from plain values; every problem is reported at once.

        Args:
            store: a folder, or the address of a store of objects.
            storage: what the storage of that address needs to be reached.

        Raises:
            InvalidConfigError: with every problem.
        """
        objects, problems = _objects(store, storage or {})
        if objects is not None and quarantine:
            problems.append("quarantine: a store of objects has its own, below quarantine/")
        if objects is not None and cuts:
            problems.append("cuts: a store of objects has none yet")
        folder = () if is_address(str(store)) else (store,)
        places = {"store": folder, "quarantine": (quarantine,), "log_dirs": log_dirs}
        problems += [
            f"{name}={str(place)!r} is not a folder of this machine"
            for name, each in places.items()
            for place in each
            if place is not None and _URI.match(str(place))
        ]
        built = {}
        for name, properties in topics.items():
            try:
                built[name] = TopicConfig.from_properties(name, properties)
            except InvalidConfigError as error:
                problems += error.problems
                built[name] = TopicConfig(name=name)
        root = Path(store).absolute() if objects is None else Path("/", objects.address.path)
        found_cuts = CutSettings()
        try:
            found_cuts = CutSettings.from_values(cuts or {})
        except InvalidConfigError as error:
            problems += error.problems
        try:
            config = cls(
                store=root,
                topics=built,
                topic=topic,
                offsets=offsets,
                on_invalid=on_invalid,
                quarantine=Path(quarantine).absolute() if quarantine else root / "quarantine",
                log_dirs=log_dirs or ("logs",),
                cuts=found_cuts,
                objects=objects,
            )
        except InvalidConfigError as error:
            problems += error.problems
        if problems:
            raise InvalidConfigError(*problems)
        return config


def _objects(store: str | Path, storage: Mapping[str, str]) -> tuple[StoragePlace | None, list[str]]:
    """Return where a store of objects lies, None for a folder, and the problems of that."""
    if not is_address(str(store)):
        return None, [f"storage.{name}: is only used with a store at an address such as s3://" for name in storage]
    try:
        return StoragePlace(parse_address(str(store)), storage), []
    except InvalidConfigError as error:
        return None, [f"store={problem}" for problem in error.problems]


def _topic_problem(name: str, problem: str) -> str:
    """Return a problem of a topic with the full key of its setting."""
    if found := _UNKNOWN_PROPERTY.match(problem):
        return f"topics.{name}.{found[1]}: unknown property{problem[found.end() :]}"
    found = _OF_A_PROPERTY.match(problem)
    return f"topics.{name}.{found[1]}: {problem[found.end() :]}" if found else f"topics.{name}: {problem}"


def log_dir_problem(store: Path, name: str) -> str | None:
    """Return why a folder can't be a log directory of a store; None if it can.

    Args:
        name: the folder, relative to the store or absolute.
    """
    store = Path(os.path.normpath(store))
    root = Path(os.path.normpath(store / name))
    if store.is_relative_to(root) or any(root.is_relative_to(store / each) for each in _OWN_FOLDERS):
        return f"log_dirs={name!r} is the store, a folder above it, or one that the store itself uses"
    return None
