"""Kafka's jars in a cache folder, and the command line classes inside them.

Maven is asked once: the folder is named after the hash of `pom.xml`, so another version of Kafka is another folder.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sparklog.pipeline.spark.jars import cache_folder
from tests.class_archives import KAFKA_OPTIONS

__all__ = ["KafkaToolError", "KafkaToolbox", "KafkaUnavailableError", "StreamedRun"]

_HERE = Path(__file__).resolve().parent
_POM = _HERE / "pom.xml"
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_MAVEN_TIMEOUT_S = 600
_TOOL_TIMEOUT_S = 300

# Short-lived processes on few cores: compile once and cheaply, collect with one thread.
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaUnavailableError(RuntimeError):
    """Kafka cannot be had on this machine: no verdict on Sparklog, neither good nor bad."""


class KafkaToolError(RuntimeError):
    """A class of Kafka's failed; the message holds its output."""


class KafkaToolbox:
    """The jars of a stock Kafka, ready to run.

    Attributes:
        jars: folder of the jars.
        class_options: for the JVM: where it finds classes that are parsed, or puts them.
    """

    def __init__(self, jars: Path) -> None:
        self.jars = jars
        self.class_options = KAFKA_OPTIONS
        self._java = _find_java()

    @classmethod
    def obtain(cls) -> "KafkaToolbox":
        """Return the toolbox, with the help of Maven on the first call ever.

        Raises:
            KafkaUnavailableError: there is no Java, or no Maven, or no registry answers.
        """
        _find_java()
        jars = cache_folder() / f"kafka-{hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]}"
        if not jars.is_dir():
            _copy_jars(jars)
        return cls(jars)

    def command(self, main_class: str, *arguments: str, heap: str = "512m", log_level: str = "error") -> list[str]:
        """Return the command line that runs a class of Kafka's."""
        return [
            self._java,
            *_JVM_OPTIONS,
            *self.class_options,
            f"-Xmx{heap}",
            f"-Djudge.log.level={log_level}",
            f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
            "-cp",
            f"{self.jars}/*",
            main_class,
            *arguments,
        ]

    def run(self, main_class: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run a class of Kafka's to its end and return its output.

        Raises:
            KafkaToolError: its exit status is not 0.
        """
        command = self.command(main_class, *arguments)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TOOL_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            output = (done.stdout[-4000:] + done.stderr[-4000:]).decode(errors="replace")
            raise KafkaToolError(f"{main_class} ended with exit status {done.returncode}:\n{output}")
        return done

    @contextmanager
    def streamed(self, main_class: str, *arguments: str) -> Iterator["StreamedRun"]:
        """Run a class of Kafka's whose output may be long: it is read line by line, never held."""
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                self.command(main_class, *arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
            assert process.stdout is not None
            with process.stdout:
                run = StreamedRun(stdout=process.stdout)
                try:
                    yield run
                except BaseException:
                    process.kill()
                    raise
                finally:
                    run.exit_status = process.wait(_TOOL_TIMEOUT_S)
                    errors.seek(0)
                    run.stderr = errors.read().decode(errors="replace").splitlines()


@dataclass(slots=True)
class StreamedRun:
    """A run of one of Kafka's classes.

    Attributes:
        stdout: its output; read it to the end inside the block.
        stderr: lines of standard error, once the block is left.
        exit_status: known once the block is left.
    """

    stdout: IO[bytes]
    stderr: list[str] = field(default_factory=list)
    exit_status: int = -1


def _find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None) or shutil.which("java")
    if java is None:
        raise KafkaUnavailableError("there is no java on this machine (neither $JAVA_HOME nor $PATH has one)")
    return java


def _copy_jars(target: Path) -> None:
    """Let Maven copy the jars beside `target`, then name the folder: half a copy never passes for a whole."""
    if shutil.which("mvn") is None:
        raise KafkaUnavailableError("Kafka's jars are not in the cache, and there is no mvn on $PATH to fetch them")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{target.name}.partial-") as staging:
        options = ("--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(_POM))
        _run_maven(["mvn", *options, _GOAL, "-DincludeScope=runtime", f"-DoutputDirectory={staging}/jars"])
        try:
            (Path(staging) / "jars").rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another run of the suite was faster, with the same jars
                raise


def _run_maven(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise KafkaUnavailableError(f"mvn brought no jars within {_MAVEN_TIMEOUT_S} s") from None
    if done.returncode != 0:
        error = re.search(r"\[ERROR\] (\S.{0,400})", done.stdout)
        raise KafkaUnavailableError(f"mvn could not fetch Kafka's jars: {error[1] if error else 'it gave no reason'}")
