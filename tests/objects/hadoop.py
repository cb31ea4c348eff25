"""A small HDFS of Hadoop's own classes, in a process that ends with its parent."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.maven_jars import find_java, obtain_jars

__all__ = ["running_hdfs"]

_HERE = Path(__file__).resolve().parent
_STOP_TIMEOUT_S = 60


@contextmanager
def running_hdfs(folder: Path) -> Iterator[str]:
    """Start a name node and a data node; yield their address.

    Raises:
        JarsUnavailableError: there is no Java, or Maven brings no jars.
    """
    jars = obtain_jars(_HERE / "pom.xml", "hadoop")
    command = [find_java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    with (folder / "hdfs.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(_HERE / "MiniDfs.java"), str(folder / "data")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            try:
                ready = next((line for line in process.stdout if line.startswith("READY ")), None)
                if ready is None:
                    raise RuntimeError(f"HDFS did not start:\n{(folder / 'hdfs.log').read_text()[-4000:]}")
                yield ready.split()[1].rstrip("/")
            finally:
                process.stdin.close()
                try:
                    process.wait(_STOP_TIMEOUT_S)
                finally:
                    process.kill()
