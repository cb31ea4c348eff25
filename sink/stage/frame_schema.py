"""Columns of a sink's frame: names and types of Spark's Kafka sink, and `offset`."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparklog.sink.config import SinkConfig
from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["FRAME_COLUMNS", "select_columns"]

_BYTES = (T.BinaryType, T.StringType)
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def _is_headers(kind: T.DataType) -> bool:
    if not isinstance(kind, T.ArrayType) or not isinstance(kind.elementType, T.StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, T.StringType)
        and isinstance(fields[1].dataType, _BYTES)
    )


FRAME_COLUMNS: dict[str, tuple[str, Callable[[T.DataType], bool]]] = {
    "topic": ("string", lambda kind: isinstance(kind, T.StringType)),
    "partition": ("int", lambda kind: isinstance(kind, _INTEGERS)),
    "offset": ("bigint", lambda kind: isinstance(kind, _INTEGERS)),
    "timestamp": ("timestamp, or bigint ms", lambda kind: isinstance(kind, (T.TimestampType, T.LongType))),
    "key": ("binary or string", lambda kind: isinstance(kind, _BYTES)),
    "value": ("binary or string", lambda kind: isinstance(kind, _BYTES)),
    "headers": ("array<struct<key:string,value:binary>>", _is_headers),
}


def select_columns(frame: DataFrame, config: SinkConfig) -> DataFrame:
    """Return the frame with only the columns that the sink reads, in the order of `FRAME_COLUMNS`.

    `topic` is dropped if the sink has a fixed topic, `offset` if offsets are assigned.

    Raises:
        InvalidConfigError: a required column is missing or has another type; it lists every problem.
    """
    problems = []
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    for name, (wanted, fits) in FRAME_COLUMNS.items():
        if name in kinds and not fits(kinds[name]):
            problems.append(f"column {name!r} is {kinds[name].simpleString()}, wanted {wanted}")
    if "value" not in kinds:
        problems.append("column 'value' is missing")
    if config.topic is None and "topic" not in kinds:
        problems.append("column 'topic' is missing, and the sink has no fixed topic")
    if config.offsets == "preserved" and "offset" not in kinds:
        problems.append("column 'offset' is missing, and the sink preserves offsets")
    if problems:
        raise InvalidConfigError(f"frame does not fit the sink: {'; '.join(problems)}")
    unwanted = {"topic"} if config.topic is not None else set()
    if config.offsets == "assigned":
        unwanted.add("offset")
    names = [name for name in FRAME_COLUMNS if name in kinds and name not in unwanted]
    return frame.select(*(_selected(name, kinds[name]) for name in names))


def _selected(name: str, kind: T.DataType) -> Column:
    """Return a column as workers get it.

    No headers are an empty list, which is the same to Kafka: Spark asks its Arrow writer for the size of a batch at
    each row, and that walks over all null lists since the last one that is not null, so a batch of n would cost n * n.
    """
    if name in ("partition", "offset"):
        return F.col(name).cast("bigint").alias(name)
    if name == "headers":
        return F.coalesce(F.col(name), F.array().cast(kind)).alias(name)
    return F.col(name)
