"""The parent of Python workers, spoken to as Spark speaks to it."""

import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[4]
_TIMEOUT_S = 120


def test_worker_daemon_when_spark_lets_an_idle_worker_go_then_it_ends_without_a_word(memory_path: Path) -> None:
    """Spark closes sockets of workers that it needs no more: at the end of a run, or after a minute without a task."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(memory_path),  # short, as the path of a socket has to be
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    daemon = subprocess.Popen(
        [sys.executable, "-m", "sparklog.pipeline.spark.worker_daemon"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with daemon:
        assert daemon.stdout is not None
        (length,) = struct.unpack(">i", daemon.stdout.read(4))
        path = daemon.stdout.read(length).decode()
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_TIMEOUT_S)
                connection.connect(path)
                (worker,) = struct.unpack(">i", connection.recv(4))
            _await_end(worker)
        said = daemon.communicate(timeout=_TIMEOUT_S)[1]

    assert said == b""


def _await_end(worker: int) -> None:
    """Wait for a process that is not ours."""
    try:
        descriptor = os.pidfd_open(worker)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], _TIMEOUT_S)[0]
    finally:
        os.close(descriptor)
