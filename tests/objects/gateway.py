"""An S3 server on a folder: VersityGW, whose conditional put lets exactly one of several writers win."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparklog.pipeline.spark.jars import cache_folder

__all__ = ["Gateway", "GatewayUnavailableError", "running_gateway"]

_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_BUILD_TIMEOUT_S = 1800
_START_TIMEOUT_S = 60
BUCKET = "bucket"
_KEY, _SECRET = "tester", "Kz4pw8vQx2"


class GatewayUnavailableError(RuntimeError):
    """There is no VersityGW, and it can't be built: no verdict on S3."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running server.

    Attributes:
        options: what `deltalake` needs to reach it.
    """

    address: str
    options: dict[str, str]


@contextmanager
def running_gateway(folder: Path) -> Iterator[Gateway]:
    """Start a server with one bucket, and stop it at the end.

    Raises:
        GatewayUnavailableError: there is no server program.
    """
    program = _obtain()
    (folder / "objects" / BUCKET).mkdir(parents=True)
    port = _free_port()
    command = [program, "-q", "--port", f"127.0.0.1:{port}", "-a", _KEY, "-s", _SECRET, "posix", folder / "objects"]
    with (folder / "gateway.log").open("wb") as log:
        process = subprocess.Popen([str(each) for each in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait(port, process, folder / "gateway.log")
        options = {
            "aws_endpoint_url": f"http://127.0.0.1:{port}",
            "aws_allow_http": "true",
            "aws_access_key_id": _KEY,
            "aws_secret_access_key": _SECRET,
            "aws_region": "us-east-1",
        }
        yield Gateway(f"s3://{BUCKET}", options)
    finally:
        process.terminate()
        process.wait(_START_TIMEOUT_S)


def _obtain() -> Path:
    """Return the server program; Go builds it once."""
    target = cache_folder() / "versitygw-1.8.0"
    if target.exists():
        return target
    go = shutil.which("go")
    if go is None:
        raise GatewayUnavailableError("VersityGW is not in the cache, and there is no go on $PATH to build it")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="versitygw.partial-") as staging:
        done = subprocess.run(
            [go, "install", _MODULE],
            env={**os.environ, "GOBIN": staging},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:] or ["it gave no reason"]
            raise GatewayUnavailableError(f"go could not build VersityGW: {last[0]}")
        (Path(staging) / "versitygw").rename(target)
    return target


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server takes connections."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"VersityGW did not start:\n{log.read_text()[-2000:]}")
