"""`sparklog stream` as a process of its own."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from sparklog.sink.locks.writer_lock import WriterLock
from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.text_stream import write_text_stream

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 240
_JVM = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

_JVM_LINE = "WARNING: Using incubator modules: jdk.incubator.vector"
"""What the JVM says by itself of an option that Spark gives it."""


def _settings(folder: Path, **changes: object) -> Path:
    source = {"format": "text", "path": "data", "options": {"maxFilesPerTrigger": 1}}
    return write_text_stream(folder, _JVM, **{"source": source, **changes})


def _environment() -> Mapping[str, str]:
    scripts = str(Path(sys.executable).parent)
    return {**os.environ, "PYTHONPATH": str(_ROOT), "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )


def _sparklog(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _run(folder, sys.executable, "-m", "sparklog", *arguments)


def _values(folder: Path) -> list[bytes]:
    batches = LogReader(folder / "store" / "logs" / "t-0").read(0)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files of three lines each to stream."""
    (tmp_path / "data").mkdir()
    for number, name in enumerate(("a", "b")):
        (tmp_path / "data" / name).write_text("".join(f"{name}{line}\n" for line in range(3)))
        os.utime(tmp_path / "data" / name, (1_000 + number, 1_000 + number))
    return tmp_path


@pytest.fixture
def running(tmp_path: Path) -> Iterator["_RunningStream"]:
    """A job over an endless source that has committed its first records."""
    config = _settings(
        tmp_path,
        source={"format": "rate", "options": {"rowsPerSecond": 50}},
        records={"topic": "'t'", "value": "cast(value as string)"},
        trigger={"processing_time": "100 milliseconds"},
    )
    job = _RunningStream(tmp_path, config)
    try:
        job.await_line(r"batch \d+: [1-9]")
        yield job
    finally:
        job.kill()


class _RunningStream:
    def __init__(self, folder: Path, config: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sparklog", "stream", "--config", str(config)],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._watchdog = threading.Timer(_TIMEOUT_S, self._process.kill)
        self._watchdog.start()

    def await_line(self, pattern: str) -> str:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip())
            if re.search(pattern, line):
                return line
        raise AssertionError(f"no line {pattern!r} in {self.lines}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        assert self._process.stderr is not None
        self.lines += [line.rstrip() for line in self._process.stderr]
        return self._process.wait()

    def kill(self) -> None:
        self._watchdog.cancel()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


def test_stream_when_it_ends_well_then_stderr_has_its_lines_and_no_others(folder: Path) -> None:
    """The end of a run, where Spark lets its workers go, leaves no trace there."""
    config = _settings(folder)
    done = _sparklog(folder, "stream", "--config", str(config))

    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line for line in done.stderr.splitlines() if line != _JVM_LINE and "compiling kernels" not in line]
    assert [re.sub(r" in .*", "", line) for line in lines] == [
        "starting: text data -> store, new, topics t; checkpoint checkpoint, new",
        "batch 0: 3 records",
        "batch 1: 3 records",
        "done: 6 records",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stream_when_asked_to_stop_then_finishes_its_micro_batch(
    running: _RunningStream, number: signal.Signals
) -> None:
    """A signal ends the job in good order: exit code 0, no trace, the lock free, staging empty, offsets dense."""
    running.send(number)

    assert running.wait() == 0
    output = "\n".join(running.lines)
    assert f"{number.name}: stopping after the running micro-batch" in output
    # Not the last line: PySpark's worker daemon may complain of its closed pipe while it ends.
    assert re.search(r"^stopped: [1-9][\d,]* records in \d+ micro-batches$", output, re.MULTILINE)
    # PySpark's worker daemon may print a trace of its own when its pipe closes; nothing else may.
    assert [line for line in running.lines if 'File "' in line and "daemon.py" not in line] == []
    assert "\tat " not in output
    WriterLock.acquire(running.folder / "store" / "writer.lock").release()
    assert not list((running.folder / "store").glob("staging/**/*"))
    values = [int(value) for value in _values(running.folder)]
    assert sorted(values) == list(range(len(values)))


def test_stream_when_store_is_locked_then_refused_at_once(tmp_path: Path) -> None:
    """A second writer ends with one line behind the first one, before it starts Spark."""
    _settings(tmp_path)
    (tmp_path / "store").mkdir()
    lock = WriterLock.acquire(tmp_path / "store" / "writer.lock")
    try:
        done = _sparklog(tmp_path, "stream", "--config", "settings.yaml")
    finally:
        lock.release()

    assert done.returncode == 3
    assert re.fullmatch(rf"starting: .*\nerror: another writer holds the store: .*{os.getpid()}.*\n", done.stderr)


def test_stream_when_lock_is_taken_by_force_then_the_first_one_stops(running: _RunningStream) -> None:
    """A store may be taken from a writer that can't be stopped; it notices and fails."""
    settings = yaml.safe_load((running.folder / "settings.yaml").read_text())
    (running.folder / "settings.yaml").write_text(yaml.safe_dump(settings | {"checkpoint": "other"}))
    done = _sparklog(running.folder, "stream", "--config", "settings.yaml", "--available-now", "--take-lock-by-force")

    assert done.returncode == 0, done.stderr
    assert running.wait() == 3
    assert any("error: another writer took the store by force" in line for line in running.lines)


def test_stream_when_run_under_spark_submit_then_same_result(folder: Path) -> None:
    """The same file runs under plain spark-submit, from any folder, with the master given there."""
    _settings(folder)
    submit = ("spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false")

    done = _run(folder, *submit, str(_ROOT / "sparklog" / "__main__.py"), "stream", "--config", "settings.yaml")

    assert done.returncode == 0, done.stderr
    assert "done: 6 records in 2 micro-batches" in done.stdout  # where spark-submit puts a program's stderr
    assert _values(folder) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]


def test_stream_when_file_has_problems_then_exit_code_2_and_a_line_each(tmp_path: Path) -> None:
    """Wrong settings are told, a line each, without waiting for Spark."""
    _settings(tmp_path, sorce=1, trigger=5)

    done = _sparklog(tmp_path, "stream", "--config", "settings.yaml", "--set", "topics.t.segment.bytes=1")

    assert done.returncode == 2
    assert re.fullmatch(r"(error: (settings\.yaml:\d+|--set [^ ]+): .*\n)+", done.stderr)
    for part in ("sorce: unknown key", "trigger: is not a mapping", "topics.t.segment.bytes: 1 is outside"):
        assert part in done.stderr


def test_stream_when_a_row_is_invalid_then_exit_code_1_and_one_line(folder: Path) -> None:
    """A failed micro-batch is told in one line, with neither Java's nor Python's trace."""
    _settings(folder)

    done = _sparklog(folder, "stream", "--config", "settings.yaml", "--set", "records.partition=7")

    assert done.returncode == 1
    # a Python worker that Spark ends may still print the start of a trace of its own
    assert [line[:44] for line in done.stderr.splitlines() if "invalid" in line] == [
        "error: invalid row: column 'partition' is ou"
    ]
    assert "\tat " not in done.stderr
    assert "InvalidRecordError" not in done.stderr
    assert not _values(folder)


def test_stream_when_used_wrongly_then_exit_code_2(tmp_path: Path) -> None:
    """An unknown option, or none where one is required, is wrong use."""
    assert _sparklog(tmp_path, "stream").returncode == 2
    assert _sparklog(tmp_path, "stream", "--config", "x", "--what").returncode == 2
    assert _sparklog(tmp_path, "strem").returncode == 2
