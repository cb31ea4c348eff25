"""What Spark asks the data source for."""

import sys

import pytest
from pyspark.sql.types import StructType

from sparklog.pipeline.reader.data_source import KafkaLogSource
from sparklog.storage_core.errors import InvalidConfigError


def test_stream_reader_when_spark_is_4_1_then_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.1 has no `pyspark.sql.streaming.datasource`: the error names the version, not the module."""
    monkeypatch.delitem(sys.modules, "sparklog.pipeline.reader.stream_reader", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)

    with pytest.raises(InvalidConfigError, match=r"need Spark 4\.2"):
        KafkaLogSource({"path": "/nowhere"}).streamReader(StructType())
