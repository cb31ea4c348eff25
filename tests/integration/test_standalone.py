"""A stream on a master and two workers, as `docs/clusters.md` starts them."""

import contextlib
import functools
import http.client
import os
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.text_stream import write_text_stream
from tests.documented_samples import code_blocks
from tests.kafka.broker import free_ports

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).resolve().parents[2]
_SPARK = Path(pyspark.__file__).parent
_PROGRAM = "sparklog/__main__.py"
_TIMEOUT_S = 240
_NO_OTHER_PORT = "-Dspark.port.maxRetries=0"
_SETTINGS = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_MASTER_OPTS": _NO_OTHER_PORT,
    "SPARK_WORKER_OPTS": _NO_OTHER_PORT,
}


class _Server(NamedTuple):
    """A process of Spark, and the file with its output."""

    process: subprocess.Popen[bytes]
    output: Path


def _shown(start: str) -> list[str]:
    """Return the words of the page's one command that starts like this."""
    (words,) = [
        shlex.split(line)
        for block in code_blocks(_ROOT / "docs" / "clusters.md")
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith(start)
    ]
    return words


@contextlib.contextmanager
def _running(command: list[str], folder: Path) -> Iterator[_Server]:
    """Run a server of Spark for as long as the block does."""
    path = f"{_SPARK / 'bin'}:{os.environ['PATH']}"
    output = folder / f"{len(list(folder.iterdir()))}.log"
    with output.open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **_SETTINGS, "PATH": path, "SPARK_WORKER_DIR": str(folder / "work")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield _Server(server, output)
    finally:
        server.terminate()
        try:
            server.wait(60)
        finally:
            server.kill()
            server.wait()


def _await_workers(port: int, count: int, servers: list[_Server]) -> None:
    """Wait until the master knows its workers; fail at once if a server has ended."""
    deadline = time.monotonic() + _TIMEOUT_S
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            direct.open(f"http://127.0.0.1:{port}/json/", timeout=5) as page,
        ):
            if page.read().count(b'"ALIVE"') >= count + 1:  # and the master itself
                return
        for each in servers:
            assert each.process.poll() is None, each.output.read_text()[-2000:]
        assert time.monotonic() < deadline, servers[0].output.read_text()[-2000:]
        time.sleep(0.3)


def test_stream_when_a_standalone_cluster_runs_it_then_each_row_is_there_once(tmp_path: Path) -> None:
    """The commands are the page's; ports, sizes and paths are this machine's."""
    own, web, *workers = free_ports(4)
    (tmp_path / "data").mkdir()
    for number in range(4):
        (tmp_path / "data" / str(number)).write_text("".join(f"{number}-{line}\n" for line in range(50)))
    config = write_text_stream(
        tmp_path, {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.executor.memory": "600m"}
    )
    (tmp_path / "logs").mkdir()

    def local(start: str) -> list[str]:
        here = {"$MASTER": "127.0.0.1", "7077": str(own), "settings.yaml": str(config), _PROGRAM: str(_ROOT / _PROGRAM)}
        return [
            functools.reduce(lambda word, name: word.replace(name, here[name]), here, each) for each in _shown(start)
        ]

    master = [*local("spark-class org.apache.spark.deploy.master.Master"), "--webui-port", str(web)]
    *worker, address = local("spark-class org.apache.spark.deploy.worker.Worker")
    worker += ["--cores", "1", "--memory", "1g", "--host", "127.0.0.1"]
    submit = local("spark-submit --master spark://")
    with contextlib.ExitStack() as cluster:
        commands = [master, *([*worker, "--webui-port", str(port), address] for port in workers)]
        servers = [cluster.enter_context(_running(each, tmp_path / "logs")) for each in commands]
        _await_workers(web, 2, servers)
        done = subprocess.run(
            [str(_SPARK / "bin" / "spark-submit"), *submit[1:], "--available-now"],
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found = [
        value.decode()
        for batch in LogReader(tmp_path / "store" / "logs" / "t-0").read(0)
        for value in batch.column("value").to_pylist()
    ]
    assert sorted(found) == sorted(f"{number}-{line}" for number in range(4) for line in range(50))
