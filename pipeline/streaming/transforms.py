"""Turns rows of a source into rows of the sink: Spark SQL expressions with the sink's column names and types.

Selects before `writeStream`, because Spark prunes no columns through `foreachBatch`.
"""

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparklog.pipeline.settings.stream_settings import RecordSettings
from sparklog.sink.spark.errors import explain
from sparklog.sink.stage.frame_schema import FRAME_COLUMNS
from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["select_records"]

_HEADERS = "array<struct<key:string,value:binary>>"
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType)


def select_records(frame: DataFrame, records: RecordSettings) -> DataFrame:
    """Return the frame with the sink's columns, by the record expressions.

    A topic that is a plain text gets no column: the sink has it as its fixed topic. A timestamp may also be a date, a
    timestamp without zone (UTC), or a text in Spark's timestamp format; a text that does not parse becomes null, which
    the sink refuses as an invalid row. Headers may also be a map.

    Raises:
        InvalidConfigError: an expression does not parse, names no column, or has a type that does not convert to its
            column; names every problem with its key.
    """
    problems: list[str] = []
    columns: list[Column] = []
    for name in FRAME_COLUMNS:
        expression = getattr(records, name)
        if expression is None or (name == "topic" and records.fixed_topic is not None):
            continue
        try:
            kind = _type_of(frame, expression)
            columns.append(_convert(name, F.expr(expression), kind).alias(name))
        except InvalidConfigError as error:
            problems.append(f"records.{name}: {error}")
        except PySparkException as error:
            problems.append(f"records.{name}: {explain(error)}")
    if problems:
        raise InvalidConfigError(*problems)
    return frame.select(*columns)


def _type_of(frame: DataFrame, expression: str) -> T.DataType:
    fields = frame.select(F.expr(expression)).schema.fields
    if len(fields) != 1:
        raise InvalidConfigError(f"is {len(fields)} columns, wanted one")
    return fields[0].dataType


def _convert(name: str, column: Column, kind: T.DataType) -> Column:
    """Return the expression in a type that the sink takes.

    Raises:
        InvalidConfigError: the type does not convert.
    """
    wanted, fits = FRAME_COLUMNS[name]
    if fits(kind) and name != "headers":
        return column
    if isinstance(kind, T.NullType):
        return column.cast(_null_type(name))
    if name == "timestamp":
        if isinstance(kind, _INTEGERS):
            return column.cast("bigint")
        if isinstance(kind, (T.StringType, T.DateType, T.TimestampNTZType)):
            return column.try_cast("timestamp")
    if name == "headers":
        return _convert_headers(column, kind, wanted)
    raise InvalidConfigError(f"is {kind.simpleString()}, wanted {wanted}")


def _null_type(name: str) -> str:
    types = {"topic": "string", "partition": "int", "offset": "bigint", "timestamp": "timestamp", "headers": _HEADERS}
    return types.get(name, "binary")


def _convert_headers(column: Column, kind: T.DataType, wanted: str) -> Column:
    is_map = isinstance(kind, T.MapType)
    entry = kind.elementType if isinstance(kind, T.ArrayType) else None
    if is_map:
        parts = [kind.keyType, kind.valueType]
    else:
        parts = [field.dataType for field in entry.fields] if isinstance(entry, T.StructType) else []
    fits = len(parts) == 2 and isinstance(parts[0], T.StringType) and isinstance(parts[1], (T.StringType, T.BinaryType))
    if not fits:
        raise InvalidConfigError(f"is {kind.simpleString()}, wanted {wanted} or map<string,binary>")
    return (F.map_entries(column) if is_map else column).cast(_HEADERS)
