"""The verb `check`: validates a settings file with its source, store and checkpoint. Starts no query, writes nothing.

Spark analyses the expressions against the source's columns, as at a stream's start. An existing store and checkpoint
are read without a lock. Not found: a store that another writer holds, a full disk, leftovers of a crash, a row without
a value.
"""

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sparklog.pipeline.settings.stream_settings import Settings, TriggerSettings
from sparklog.pipeline.streaming.check_objects import check_objects
from sparklog.pipeline.streaming.checkpoint_check import check_checkpoint
from sparklog.pipeline.streaming.job import spark_session
from sparklog.pipeline.streaming.sources import open_source
from sparklog.pipeline.streaming.start import what_text
from sparklog.pipeline.streaming.transforms import select_records
from sparklog.pipeline.terminal import say
from sparklog.sink.config import SinkConfig
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.spark.errors import explain, silence_spark_loggers
from sparklog.sink.store.log_dirs import find_unreadable
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topics import topic_problems
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import duration_text

__all__ = ["check_store", "run"]

_Found = TypeVar("_Found")


def run(settings: Settings) -> None:
    """Carry the verb out."""
    silence_spark_loggers()
    with settings.places.locating():
        say(*_check_stream(settings))


def _check_stream(settings: Settings) -> list[str]:
    """Return for people what a stream with these settings would do.

    Raises:
        InvalidConfigError: all problems that would prevent its start.
        LogStorageError: the store can't be read, or Spark can't start.
    """
    problems: list[str] = []
    _noting(problems, lambda: check_store(settings))
    columns = _noting(problems, lambda: _columns(settings))
    if problems or columns is None:
        raise InvalidConfigError(*problems)
    records = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in columns)
    fixed = settings.records.fixed_topic
    return [
        what_text(settings),
        f"records: {records}{'' if fixed is None else f'; all to topic {fixed}'}",
        f"trigger: {_trigger_text(settings.trigger)}",
        *(_topic_line(name, properties) for name, properties in settings.topics.items()),
        *_cut_lines(settings),
        "sound: nothing was started or written",
    ]


def _trigger_text(trigger: TriggerSettings) -> str:
    if trigger.available_now:
        return "all rows available now, then it stops"
    is_at_once = trigger == TriggerSettings()
    return "as fast as possible" if is_at_once else f"every {trigger.processing_time}"


def _noting(problems: list[str], look: Callable[[], _Found]) -> _Found | None:
    """Return the result of a check, or None after adding its problems."""
    try:
        return look()
    except InvalidConfigError as error:
        problems += error.problems
        return None


def _columns(settings: Settings) -> StructType:
    with spark_session(settings) as spark:
        frame = select_records(open_source(spark, settings.source), settings.records)
        _check_streams(spark, frame)
        return frame.schema


def _check_streams(spark: SparkSession, frame: DataFrame) -> None:
    """Refuse expressions that Spark can't stream, such as `row_number()`: Spark checks only at a query's start."""
    sql = spark.sparkContext._jvm.org.apache.spark.sql
    mode = sql.streaming.OutputMode.Append()
    plan = frame._jdf.queryExecution().analyzed()
    try:
        sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
    except PySparkException as error:
        raise InvalidConfigError(f"records: {explain(error)}") from error


def check_store(settings: Settings) -> None:
    """Refuse a store, log directories or a checkpoint that the opening would refuse, as far as reading shows."""
    if settings.objects is not None:
        check_objects(settings, settings.objects)
        return
    config = SinkConfig.from_options(settings.store, settings.topics, log_dirs=settings.log_dirs)
    root = config.store
    above = next(each for each in (root, *root.parents) if os.path.lexists(each))
    if not above.is_dir():
        raise InvalidConfigError(f"store: {above} is not a folder")
    Store.check_folder(root, config.log_dirs)
    if not (root / "store.properties").exists():
        Store(root, "").refuse_foreign(config.log_dirs)
        check_checkpoint(settings.checkpoint, settings.store, lambda _query_id: None)
        return
    store = Store.find(root)
    ledger = Ledger.open(store.ledger_path)
    states = ledger.states().values()
    store.refuse_claimed({state.log_dir for state in states} - set(find_unreadable(store, states)))
    store.refuse_foreign(config.log_dirs)
    if problems := topic_problems(config, ledger.rows):
        raise InvalidConfigError(*problems)
    check_checkpoint(settings.checkpoint, settings.store, ledger.transaction_version)


def _cut_lines(settings: Settings) -> Iterator[str]:
    """Yield when cuts are written, and the topics of which the older ones can't be read."""
    if settings.objects is not None:
        return
    config = SinkConfig.from_options(settings.store, settings.topics, log_dirs=settings.log_dirs, cuts=settings.cuts)
    cuts = config.cuts
    if cuts.every_ms is None:
        yield "cuts: none"
        return
    keep = duration_text(cuts.keep_ms)
    yield f"cuts: one every {duration_text(cuts.every_ms)}, kept {keep}"
    for name, log in ((name, topic.log) for name, topic in config.topics.items()):
        lag_ms, retention_ms = log.min_compaction_lag_ms, log.retention_ms
        if log.is_compacted and lag_ms < cuts.keep_ms:
            setting = f"min.compaction.lag.ms is {duration_text(lag_ms)}"
            yield f"warning: {name}: compaction may overtake a cut before it is {keep} old: {setting}"
        if "delete" in log.cleanup_policies and 0 <= retention_ms < cuts.keep_ms:
            setting = f"retention.ms is {duration_text(retention_ms)}"
            yield f"warning: {name}: retention overtakes a cut before it is {keep} old: {setting}"


def _topic_line(name: str, properties: object) -> str:
    given = dict(properties) if isinstance(properties, dict) else {}
    partitions = given.pop("partitions", 1)
    rest = "".join(f", {key}={value}" for key, value in given.items())
    return f"topic {name}: {partitions} partitions{rest}"
