"""What a stream says of itself: its first line, Spark's names of it, its figures for Prometheus."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.build.text_stream import write_text_stream

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).resolve().parents[2]


def test_stream_when_it_runs_then_first_line_names_in_spark_and_figures(tmp_path: Path) -> None:
    """The first line is what is started; Spark's pages have the names of application, query and jobs."""
    (tmp_path / "data").mkdir()
    (tmp_path / "events").mkdir()
    (tmp_path / "data" / "a").write_text("1\n2\n3\n")
    spark = {
        "spark.master": "local[1]",
        "spark.driver.memory": "1g",
        "spark.eventLog.enabled": True,
        "spark.eventLog.dir": str(tmp_path / "events"),
        "spark.eventLog.compress": False,
        "spark.eventLog.rolling.enabled": False,
    }
    write_text_stream(tmp_path, spark, store="orders")

    done = subprocess.run(
        [sys.executable, "-m", "sparklog", "stream", "--config", "settings.yaml", "--metrics-file", "m/stream.prom"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "starting: text data -> orders, new, topics t; checkpoint checkpoint, new"
    (log,) = (tmp_path / "events").iterdir()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    (application,) = (each for each in events if each["Event"] == "SparkListenerApplicationStart")
    assert application["App Name"] == "sparklog stream orders"
    queries = [each for each in events if each["Event"].endswith("QueryStartedEvent")]
    assert [each["name"] for each in queries] == ["sparklog stream orders"]
    jobs = [each["Properties"] for each in events if each["Event"] == "SparkListenerJobStart"]
    assert {each.get("spark.job.description") for each in jobs} == {"sparklog: micro-batch 0"}
    assert {each.get("spark.jobGroup.id") for each in jobs} == {queries[0]["runId"]}
    figures = (tmp_path / "m" / "stream.prom").read_text()
    assert "sparklog_stream_running 0\n" in figures
    assert "sparklog_stream_records_total 3\n" in figures
    assert "sparklog_stream_last_commit_timestamp_seconds " in figures
