"""Workers that run another Python, that have no room for a socket's path, or that can't start; and no Java at all."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.text_stream import write_text_stream

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 240
_CLUSTER = "local-cluster[2,1,1024]"
_MEMORY = {"spark.driver.memory": "1g", "spark.executor.memory": "600m", "spark.ui.enabled": "false"}

_Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> _Run:
    """Run a module of this project in a folder of its own, with some variables changed."""
    scripts = str(Path(sys.executable).parent)

    def run(module: str, *arguments: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
        environment |= {"PYTHONPATH": str(_ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment["PATH"] = f"{scripts}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=tmp_path,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )

    return run


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python of this version without any package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=_TIMEOUT_S)
    return tmp_path / "bare" / "bin" / "python3"


def _settings(folder: Path, spark: dict[str, str]) -> Path:
    (folder / "data").mkdir()
    (folder / "data" / "a").write_text("one\ntwo\n")
    return write_text_stream(folder, _MEMORY | spark)


@pytest.mark.parametrize("master", [_CLUSTER, "local[2]"])
def test_stream_when_the_temporary_folder_has_a_long_path_then_runs(tmp_path: Path, run: _Run, master: str) -> None:
    """A container's folder on YARN has a path that no Unix socket may have."""
    deep = tmp_path / ("d" * (199 - len(str(tmp_path))))
    deep.mkdir()
    assert len(os.fsencode(deep)) == 200
    options = f"-Djava.io.tmpdir={deep}"
    spark = {
        "spark.master": master,
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": options,
        "spark.executorEnv.PYTHONPATH": str(_ROOT),
    }
    done = run(
        "sparklog",
        *("stream", "--config", _settings(tmp_path, spark)),
        PYSPARK_PYTHON=sys.executable,
        TMPDIR=str(deep),
    )

    assert done.returncode == 0, done.stderr[-4000:]
    batches = LogReader(tmp_path / "store" / "logs" / "t-0").read(0)
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [b"one", b"two"]


def test_sink_when_a_local_program_chose_no_python_then_workers_run_its_own(
    tmp_path: Path, run: _Run, bare_python: Path
) -> None:
    """`python3` is another Python here, without pyarrow: sink and reader do not care."""
    path = f"{bare_python.parent}{os.pathsep}{os.environ['PATH']}"

    done = run("tests.programs.own_session", "local[2]", tmp_path / "store", PATH=path)

    assert (done.returncode, done.stdout) == (0, "10\n"), done.stderr[-4000:]


@pytest.mark.parametrize("master", [_CLUSTER, "local[2]"])
def test_sink_when_the_python_that_was_chosen_has_no_sparklog_then_said_in_one_line(
    tmp_path: Path, run: _Run, bare_python: Path, master: str
) -> None:
    """Which Python of which version on which host lacks what, before a micro-batch is tried."""
    memory = [f"{name}={value}" for name, value in _MEMORY.items()]
    done = run("tests.programs.own_session", master, tmp_path / "store", *memory, PYSPARK_PYTHON=str(bare_python))

    assert done.returncode == 1
    expected = (
        "sparklog.storage_core.errors.InvalidConfigError: Spark's workers can't run Sparklog: ModuleNotFoundError: "
        f"No module named 'numpy'; python={bare_python} version={platform.python_version()} host={platform.node()}; "
        "set PYSPARK_PYTHON or spark.pyspark.python to one that has it (docs/clusters.md)"
    )
    assert expected in done.stderr.splitlines(), done.stderr[-4000:]


def test_stream_when_there_is_no_such_python_then_said_in_one_line(tmp_path: Path, run: _Run) -> None:
    """What could not be started is in the line, and none of Spark's."""
    config = _settings(tmp_path, {"spark.master": "local[2]"})
    done = run("sparklog", "stream", "--config", config, PYSPARK_PYTHON="/nowhere/python3")

    assert done.returncode == 2
    starting, line = [line for line in done.stderr.splitlines() if "incubator" not in line]
    assert starting.startswith("starting: ")
    assert line.startswith("error: Spark's workers can't run Sparklog: Cannot run program \"/nowhere/python3\"")


def test_stream_when_there_is_no_java_then_says_what_to_install(tmp_path: Path, run: _Run) -> None:
    """The sentence of the Makefile, behind the line of the start."""
    config = _settings(tmp_path, {"spark.master": "local[2]"})
    done = run("sparklog", "stream", "--config", config, PATH=str(tmp_path), JAVA_HOME="")

    assert done.returncode == 2
    sentence = "Java 17 is needed for Spark: install a JRE, or set JAVA_HOME and PATH"
    starting, error = done.stderr.splitlines()
    assert starting.startswith("starting: ")
    assert error == f"error: {sentence}"
    assert sentence in (_ROOT / "Makefile").read_text()
