"""The delta source, whose jars Maven has to bring."""

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from sparklog.storage_core.log.read.log_reader import LogReader
from tests.delta_jars import jars_fixture
from tests.programs.own_process import run_module

pytestmark = pytest.mark.spark

jars = jars_fixture("THE DELTA SOURCE WAS NOT TESTED")


def test_stream_when_source_is_a_delta_table_then_its_rows_are_in_the_log(tmp_path: Path) -> None:
    """Each version of a Delta table is read once, over two runs of the command."""
    first = [{"id": number, "name": f"n{number}"} for number in range(10)]
    second = [{"id": number, "name": f"n{number}"} for number in range(10, 15)]
    for rows in (first, second):
        write_deltalake(tmp_path / "table", pa.Table.from_pylist(rows), mode="append")
        done = _stream(tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
        assert f"done: {len(rows)} records" in done.stderr

    batches = LogReader(tmp_path / "store" / "logs" / "t-0").read(0)
    found = [json.loads(value) for batch in batches for value in batch.column("value").to_pylist()]
    assert sorted(found, key=lambda row: row["id"]) == first + second


def _stream(folder: Path) -> "subprocess.CompletedProcess[str]":
    settings = {
        "store": "store",
        "checkpoint": "checkpoint",
        "source": {"format": "delta", "path": str(folder / "table")},
        "records": {"topic": "'t'", "value": "to_json(struct(*))"},
        "trigger": {"available_now": True},
        "topics": {"t": {"partitions": 1}},
        "spark": {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": 2,
            "spark.databricks.delta.snapshotPartitions": 2,
        },
    }
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    return run_module("sparklog", "stream", "--config", "settings.yaml", folder=folder, timeout_s=300)
