"""The settings file of `sparklog stream`: YAML in, frozen dataclasses out.

All problems of a file are reported at once, each with its full key. A relative path is relative to the folder where the
command is started (Spark's own paths on a cluster: to Spark's default filesystem), in `log_dirs` to the store.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from sparklog.pipeline.settings.maintenance_settings import MaintenanceSettings, parse_maintenance
from sparklog.pipeline.settings.overrides import apply_override, split_key
from sparklog.pipeline.settings.places import SettingsPlaces, repeated_keys
from sparklog.pipeline.settings.section import SettingsSection
from sparklog.sink.config import SinkConfig, TopicConfig
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log_config import LogConfig
from sparklog.storage_core.objects.address import is_address, parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace

__all__ = [
    "SOURCE_FORMATS",
    "RecordSettings",
    "Settings",
    "SourceSettings",
    "TriggerSettings",
    "load_settings",
    "load_topics",
]

SOURCE_FORMATS = ("csv", "json", "parquet", "text", "delta", "rate", "kafka")

_PATH_FORMATS = ("csv", "json", "parquet", "text", "delta")
_SCHEMA_FORMATS = ("csv", "json", "parquet")
_KAFKA_TOPIC_OPTIONS = ("subscribe", "subscribepattern", "assign")
_USUAL_MAINTENANCE = MaintenanceSettings()
_EXPRESSIONS = ("topic", "partition", "key", "value", "timestamp", "headers", "offset")
_TEXT_LITERAL = re.compile(r"""\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*""")
_INTERVAL = re.compile(r"(interval\s+)?(\d+\s+(millisecond|second|minute|hour|day|week)s?\s*)+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The source of rows.

    Attributes:
        format: one of `SOURCE_FORMATS`.
        path: folder or glob of a file source; None for rate and kafka.
        schema: DDL of the rows; None: the format's own, or inferred once.
        options: options of Spark's source, as text.
    """

    format: str
    path: str | None = None
    schema: str | None = None
    options: Mapping[str, str]

    def option(self, name: str) -> str | None:
        """Return an option; their names are case-insensitive, as in Spark."""
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """Spark SQL expressions over the source's columns that make a record of a row.

    Attributes:
        topic: name of the row's topic.
        partition: None, or null in a row: the partitioner chooses.
        timestamp: None: the time of the append.
        offset: of every row; only with preserved offsets.
        on_invalid: `fail` or `quarantine`.
    """

    topic: str
    value: str
    partition: str | None = None
    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None
    offset: str | None = None
    on_invalid: str = "fail"

    @property
    def fixed_topic(self) -> str | None:
        """The topic of all rows, if `topic` is a text in quotes; None if it depends on the row."""
        literal = _TEXT_LITERAL.fullmatch(self.topic)
        return None if literal is None else literal[1] or literal[2] or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """The trigger of micro-batches.

    Attributes:
        available_now: read all available rows in several micro-batches, then stop.
        processing_time: interval such as `10 seconds`; used if `available_now` is false.
    """

    available_now: bool = False
    processing_time: str = "0 seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A whole settings file.

    Attributes:
        topics: `partitions` and Kafka's properties of each topic, already checked.
        offsets: `assigned` or `preserved`.
        quarantine: folder for diverted rows; None: the sink's default.
        spark: Spark's settings, as text.
        cuts: `every` and `keep`, already checked.
        storage: what the storage of a store at an address needs to be reached; it may be secret.
        objects: where a store of objects lies; None for a folder.
        maintenance: of `sparklog maintain`.
        places: of the settings, for messages.
    """

    store: str
    checkpoint: str
    source: SourceSettings
    records: RecordSettings
    trigger: TriggerSettings
    topics: Mapping[str, Mapping[str, object]]
    log_dirs: tuple[str, ...] = ()
    offsets: str = "assigned"
    quarantine: str | None = None
    spark: Mapping[str, str]
    cuts: Mapping[str, object] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    objects: StoragePlace | None = None
    maintenance: MaintenanceSettings = _USUAL_MAINTENANCE
    places: SettingsPlaces = field(compare=False, repr=False)


def load_settings(path: str | Path, overrides: Sequence[str] = ()) -> Settings:
    """Read a settings file.

    Args:
        overrides: `key=value` each, later ones win; a value is YAML, and kept as typed if that is a text.

    Raises:
        InvalidConfigError: the file can't be read, or has problems; names all of them.
    """
    wrong: list[str] = []
    tree, places, problems = _read_yaml(Path(path))
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        problem = apply_override(tree, key, _override_value(text)) if equals else "is not of the form key=value"
        if problem:
            wrong.append(f"--set {key.partition(':')[0]}: {problem}")  # never the value: it may be a password
        else:
            places.override(".".join(split_key(key)))
    settings = _parse(SettingsSection(tree, "", problems), problems, places)
    if problems or wrong or settings is None:
        raise InvalidConfigError(*wrong, *map(places.located, problems))
    return settings


def load_topics(path: Path) -> dict[str, LogConfig]:
    """Read the settings of topics from a settings file, which may have nothing else.

    Raises:
        InvalidConfigError: the file can't be read, or its topics have problems; names all of them.
    """
    tree, places, problems = _read_yaml(path)
    found = {}
    for name, properties in _parse_topics(SettingsSection(tree, "", problems).section("topics", required=True)).items():
        try:
            found[name] = TopicConfig.from_properties(name, properties).log
        except InvalidConfigError as error:
            problems += error.problems
    if problems:
        raise InvalidConfigError(*map(places.located, problems))
    return found


def _read_yaml(path: Path) -> tuple[dict[object, object], SettingsPlaces, list[str]]:
    """Return the content of a file, the places of its keys, and a problem for each repeated key."""
    loader = None
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        problems = list(repeated_keys(root))
        tree = None if root is None else loader.construct_document(root)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise InvalidConfigError(f"{path}: can't read the settings file: {reason}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date
        raise InvalidConfigError(f"{path}: is not YAML: {_yaml_reason(error)}") from error
    finally:
        if loader is not None:
            loader.dispose()
    if not isinstance(tree, dict):
        raise InvalidConfigError(f"{path}: is not a mapping of settings")
    return tree, SettingsPlaces(str(path), root), problems


def _yaml_reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or str(error)
    place = f" line={mark.line + 1} column={mark.column + 1}" if mark else ""
    return " ".join(f"{reason}{place}".split())


def _override_value(text: str) -> object:
    try:
        value: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text
    return text if isinstance(value, str) else value


def _parse(root: SettingsSection, problems: list[str], places: SettingsPlaces) -> Settings | None:
    store = root.text("store", required=True)
    checkpoint = root.text("checkpoint", required=True)
    offsets = root.choice("offsets", ("assigned", "preserved"), "assigned") or "assigned"
    source = _parse_source(root.section("source", required=True))
    needs_records = source is not None and source.format != "kafka"
    records = _parse_records(root.section("records", required=needs_records), source, offsets)
    trigger = _parse_trigger(root.section("trigger"))
    topics = _parse_topics(root.section("topics", required=True))
    log_dirs = root.texts("log_dirs")
    quarantine = root.text("quarantine")
    spark = _parse_spark(root.section("spark"))
    maintenance = parse_maintenance(root.section("maintenance"))
    cuts = _parse_scalars(root.section("cuts"))
    storage = _parse_scalars(root.section("storage"))
    root.finish()
    on_invalid = records.on_invalid if records else "fail"
    given = {"on_invalid": on_invalid, "log_dirs": log_dirs, "cuts": cuts, "storage": storage}
    objects = _objects(store, topics, problems, given)
    if records:
        _check_records(root, records, topics, quarantine)
    if store and checkpoint:
        _check_places(root, store, checkpoint, quarantine)
    if not (store and checkpoint and source and records):
        return None
    return Settings(
        store=store,
        checkpoint=checkpoint,
        source=source,
        records=records,
        trigger=trigger,
        topics=topics,
        log_dirs=log_dirs,
        offsets=offsets,
        quarantine=quarantine,
        spark=spark,
        cuts=cuts,
        storage=storage,
        objects=objects,
        maintenance=maintenance,
        places=places,
    )


def _objects(
    store: str | None, topics: Mapping[str, Mapping[str, object]], problems: list[str], given: Mapping[str, Any]
) -> StoragePlace | None:
    """Return where a store of objects lies; add the problems that a sink would find in these settings."""
    try:
        return SinkConfig.from_options(store or ".", topics, **given).objects
    except InvalidConfigError as error:
        problems += error.problems
        return None


def _parse_source(section: SettingsSection) -> SourceSettings | None:
    if not section.names:
        return None
    kind = section.choice("format", SOURCE_FORMATS)
    path = section.text("path", required=kind in _PATH_FORMATS)
    schema = section.text("schema")
    options = _parse_scalars(section.section("options"))
    if kind and path and kind not in _PATH_FORMATS:
        section.note("path", f"is not a setting of {kind} sources")
    if kind and schema and kind not in _SCHEMA_FORMATS:
        section.note("schema", f"is fixed by {kind} sources")
    section.finish()
    if kind is None:
        return None
    source = SourceSettings(format=kind, path=path, schema=schema, options=options)
    if kind == "kafka":
        _check_kafka_options(section, source)
    return source


def _check_kafka_options(section: SettingsSection, source: SourceSettings) -> None:
    if source.option("kafka.bootstrap.servers") is None:
        section.note("options.kafka.bootstrap.servers", "is missing")
    if sum(source.option(name) is not None for name in _KAFKA_TOPIC_OPTIONS) != 1:
        section.note("options", "give exactly one of subscribe, subscribePattern and assign")


def _parse_records(section: SettingsSection, source: SourceSettings | None, offsets: str) -> RecordSettings | None:
    mirrored = _mirror(source, offsets) if source else {}
    texts: dict[str, str | None] = {}
    for name in _EXPRESSIONS:
        required = name in ("topic", "value") and (name not in mirrored or name in section) and bool(section.names)
        given = section.scalar(name, required=required)
        texts[name] = given if name in section else mirrored.get(name)
    on_invalid = section.choice("on_invalid", ("fail", "quarantine"), "fail") or "fail"
    if offsets == "preserved" and texts["offset"] is None and (section.names or mirrored):
        section.note("offset", "is missing: with offsets: preserved it is the offset of each record")
    if offsets == "assigned" and texts["offset"] is not None:
        section.note("offset", "is only used with offsets: preserved")
    section.finish()
    topic, value = texts.pop("topic"), texts.pop("value")
    if topic is None or value is None:
        return None
    return RecordSettings(topic=topic, value=value, on_invalid=on_invalid, **texts)


def _mirror(source: SourceSettings, offsets: str) -> dict[str, str]:
    """Return the columns of a Kafka source that are used unchanged, unless `records` sets them."""
    if source.format != "kafka":
        return {}
    names = {name: name for name in _EXPRESSIONS}
    if offsets != "preserved":
        del names["offset"]
    if (source.option("includeHeaders") or "true").lower() != "true":
        del names["headers"]
    return names


def _parse_trigger(section: SettingsSection) -> TriggerSettings:
    available_now = section.flag("available_now")
    interval = section.text("processing_time")
    if available_now and interval:
        section.note("processing_time", "can't be set together with available_now: true")
    if interval and not _INTERVAL.fullmatch(interval.strip()):
        section.note("processing_time", f"{interval!r} is not an interval such as '10 seconds'")
    section.finish()
    return TriggerSettings(available_now=bool(available_now), processing_time=interval or "0 seconds")


def _parse_topics(section: SettingsSection) -> Mapping[str, Mapping[str, object]]:
    topics: dict[str, Mapping[str, object]] = {}
    for name in section.names:
        if not isinstance(name, str):
            section.note(name, "the topic's name is not text; put it in quotes")
            continue
        below = section.section(name)
        topics[name] = {str(key): below.raw(str(key)) for key in below.names if below.raw(str(key)) is not None}
    return topics


def _parse_spark(section: SettingsSection) -> Mapping[str, str]:
    for name in section.names:
        if not str(name).startswith("spark."):
            section.note(name, "the name of a Spark setting starts with 'spark.'")
    return _parse_scalars(section)


def _parse_scalars(section: SettingsSection) -> Mapping[str, str]:
    values = {str(name): section.scalar(str(name)) for name in section.names}
    return {name: value for name, value in values.items() if value is not None}


def _check_records(
    root: SettingsSection, records: RecordSettings, topics: Mapping[str, object], quarantine: str | None
) -> None:
    if records.fixed_topic is not None and records.fixed_topic not in topics:
        root.note("records.topic", f"topic {records.fixed_topic!r} is not among topics: {', '.join(topics) or 'none'}")
    if quarantine and records.on_invalid != "quarantine":
        root.note("quarantine", "is only used with records.on_invalid: quarantine")


def _check_places(root: SettingsSection, store: str, checkpoint: str, quarantine: str | None) -> None:
    if checkpoint.startswith("hdfs:///"):  # Spark's own error does not say so: FileContext needs the host
        root.note("checkpoint", "names no name node, which Spark needs here: hdfs://namenode:8020/...")
    if is_address(store):
        _check_address(root, store, checkpoint)
        return
    folder = PurePosixPath(store)
    for name, place in (("checkpoint", checkpoint), ("quarantine", quarantine)):
        if place is None:
            continue
        if PurePosixPath(place) == PurePosixPath(store):
            root.note(name, "is the store itself; give it a folder of its own")
        if PurePosixPath(place).is_relative_to(folder / "logs"):
            root.note(name, "lies in the store's logs folder, where a broker accepts nothing but logs")
        for own in ("ledger", "staging"):
            if PurePosixPath(place).is_relative_to(folder / own):
                root.note(name, f"lies in the store's {own} folder, in which the sink deletes files")


def _check_address(root: SettingsSection, store: str, checkpoint: str) -> None:
    """Refuse a checkpoint among the objects of a store; addresses that are wrong are other problems."""
    if not is_address(checkpoint):
        return
    try:
        ours, theirs = parse_address(store), parse_address(checkpoint)
    except InvalidConfigError:
        return
    if ours.root == theirs.root and PurePosixPath(theirs.path).is_relative_to(ours.path):
        root.note("checkpoint", "lies in the store; give it a folder of its own")
