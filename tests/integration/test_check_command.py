"""`sparklog check`: everything that a stream would resolve, and nothing that it would write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.build.sink_store import contents, in_process, open_store, rows

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).resolve().parents[2]
_FILE = """store: store
checkpoint: checkpoint
source: {format: csv, path: data, schema: "id int, name string"}
records:
  topic: "'orders'"
  key: name
  value: to_json(struct(*))
topics:
  orders: {partitions: 2, retention.ms: 86400000}
spark: {spark.master: "local[1]", spark.driver.memory: 1g}
"""


def _check(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "file.yaml").write_text(text)
    command = [sys.executable, "-m", "sparklog", "check", "--config", "file.yaml", *options]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def _errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("error: ")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a source."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("1,x\n")
    return tmp_path


def test_check_when_settings_are_sound_then_what_would_run_and_nothing_is_written(folder: Path) -> None:
    """The types of the expressions are Spark's; no store, checkpoint, lock or warehouse comes to be."""
    done = _check(folder, _FILE)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "csv data -> store, new, topics orders; checkpoint checkpoint, new",
        "records: key string, value string; all to topic orders",
        "trigger: as fast as possible",
        "topic orders: 2 partitions, retention.ms=86400000",
        "cuts: one every 1 hour, kept 7 days",
        "warning: orders: retention overtakes a cut before it is 7 days old: retention.ms is 1 day",
        "sound: nothing was started or written",
    ]
    assert sorted(contents(folder)) == ["data/a.csv", "file.yaml"]
    assert sorted(path.name for path in folder.iterdir()) == ["data", "file.yaml"]


def test_check_when_expressions_and_store_do_not_fit_then_a_line_each_with_its_place(folder: Path) -> None:
    """Expressions are resolved against the source, topics against the store; a sound store is not changed."""
    writer = open_store(folder / "store", {"orders": {"partitions": 3}}, topic="orders")
    writer.append("q", 0, in_process(rows(value=["x"])))
    writer.close()
    before = contents(folder / "store")
    text = _FILE.replace("key: name", "key: nmae").replace("to_json(struct(*))", "id")

    done = _check(folder, text)
    lines = _errors(done)

    assert done.returncode == 2, done
    assert len(lines) == 3
    assert lines[0].startswith("error: file.yaml:9: topics.orders: partitions=2, but the store has 3")
    assert lines[1].startswith("error: file.yaml:6: records.key: ")
    assert "nmae" in lines[1]
    assert lines[2].startswith("error: file.yaml:7: records.value: is int, wanted ")
    assert contents(folder / "store") == before
    assert not (folder / "checkpoint").exists()


def test_check_when_source_is_not_there_then_its_line(folder: Path) -> None:
    """A path without files is the source's problem."""
    done = _check(folder, _FILE, "--set", "source.path=nowhere")

    assert done.returncode == 2
    (line,) = _errors(done)
    assert line.startswith("error: file.yaml:3: source: ")


def test_check_when_an_expression_does_not_stream_then_refused(folder: Path) -> None:
    """Spark analyses a window over a stream, and refuses it as the query starts."""
    done = _check(folder, _FILE.replace("key: name", "key: string(row_number() over (order by id))"))

    assert done.returncode == 2
    (line,) = _errors(done)
    assert line.startswith("error: file.yaml:4: records: ")
    assert "row_number" in line.lower()
