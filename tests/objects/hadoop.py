"""Hadoop's own servers in a process that ends with its parent."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.maven_jars import find_java, obtain_jars

__all__ = ["running_hdfs", "running_servers"]

_HERE = Path(__file__).resolve().parent
_STOP_TIMEOUT_S = 60


@contextmanager
def running_hdfs(folder: Path) -> Iterator[str]:
    """Start a name node and a data node; yield their address.

    Raises:
        JarsUnavailableError: there is no Java, or Maven brings no jars.
    """
    jars = obtain_jars(_HERE / "pom.xml", "hadoop")
    with running_servers(_HERE / "MiniDfs.java", [folder / "data"], folder, [f"{jars}/*"], "512m") as address:
        yield address


@contextmanager
def running_servers(
    program: Path, arguments: Sequence[Path], folder: Path, class_path: Sequence[str], heap: str
) -> Iterator[str]:
    """Run a Java source file; yield the address that it prints as it is ready. It ends as its input does.

    Args:
        folder: where it runs and puts its output, `servers.log`.
    """
    command = [find_java(), f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(class_path)]
    with (folder / "servers.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, str(program), *map(str, arguments)],
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
                    raise RuntimeError(f"{program.stem} did not start:\n{(folder / 'servers.log').read_text()[-4000:]}")
                yield ready.split()[1].rstrip("/")
            finally:
                process.stdin.close()
                try:
                    process.wait(_STOP_TIMEOUT_S)
                finally:
                    process.kill()
