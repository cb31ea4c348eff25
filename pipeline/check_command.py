"""The verb `check`: what a settings file means, down to the types of its expressions. Starts no query, writes nothing.

Spark analyses the expressions against the source's columns, as it does when a stream starts; an existing store and
checkpoint are read, without a lock.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyspark.sql.types import StructType

from pipeline.checkpoint_check import check_checkpoint
from pipeline.settings import Settings
from pipeline.sources import open_source
from pipeline.stream_start import what_text
from pipeline.streaming_job import spark_session
from pipeline.transforms import select_records
from sink.config import SinkConfig
from sink.ledger import Ledger
from sink.store import Store
from sink.topics import topic_problems
from storage_core.errors import InvalidConfigError

__all__ = ["check_stream"]

_Found = TypeVar("_Found")


def check_stream(settings: Settings) -> list[str]:
    """Return what a stream with these settings would do, for people.

    Raises:
        InvalidConfigError: every problem that keeps it from starting.
        LogStorageError: the store can't be read, or Spark can't start.
    """
    problems: list[str] = []
    _noting(problems, lambda: _check_store(settings))
    columns = _noting(problems, lambda: _columns(settings))
    if problems or columns is None:
        raise InvalidConfigError(*problems)
    now = settings.trigger.available_now
    records = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in columns)
    fixed = settings.records.fixed_topic
    return [
        what_text(settings),
        f"records: {records}{'' if fixed is None else f'; all to topic {fixed}'}",
        f"trigger: {'what is there now, then it stops' if now else f'every {settings.trigger.processing_time}'}",
        *(_topic_line(name, properties) for name, properties in settings.topics.items()),
        "sound: nothing was started or written",
    ]


def _noting(problems: list[str], look: Callable[[], _Found]) -> _Found | None:
    """Return what a look finds; note its problems where it finds these."""
    try:
        return look()
    except InvalidConfigError as error:
        problems += error.problems
        return None


def _columns(settings: Settings) -> StructType:
    with spark_session(settings) as spark:
        return select_records(open_source(spark, settings.source), settings.records).schema


def _check_store(settings: Settings) -> None:
    """Refuse what opening the store would refuse."""
    root = Path(settings.store).absolute()
    if not (root / "store.properties").exists():
        check_checkpoint(settings.checkpoint, settings.store, lambda _query_id: None)
        return
    ledger = Ledger.open(Store.find(root).ledger_path)
    config = SinkConfig.from_options(settings.store, settings.topics, log_dirs=settings.log_dirs)
    if problems := topic_problems(config, ledger.topics):
        raise InvalidConfigError(*problems)
    check_checkpoint(settings.checkpoint, settings.store, ledger.transaction_version)


def _topic_line(name: str, properties: object) -> str:
    given = dict(properties) if isinstance(properties, dict) else {}
    partitions = given.pop("partitions", 1)
    rest = "".join(f", {key}={value}" for key, value in given.items())
    return f"topic {name}: {partitions} partitions{rest}"
