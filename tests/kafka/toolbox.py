"""Kafka's jars in a cache folder, and the command line classes inside them."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.class_archives import KAFKA_OPTIONS
from tests.maven_jars import JarsUnavailableError, find_java, obtain_jars

__all__ = ["KafkaToolError", "KafkaToolbox", "KafkaUnavailableError", "StreamedRun"]

_HERE = Path(__file__).resolve().parent
_POM = _HERE / "pom.xml"
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
        self._java = find_java()

    @classmethod
    def obtain(cls) -> "KafkaToolbox":
        """Return the toolbox, with the help of Maven on the first call ever.

        Raises:
            KafkaUnavailableError: there is no Java, or no Maven, or no registry answers.
        """
        try:
            return cls(obtain_jars(_POM, "kafka"))
        except JarsUnavailableError as error:
            raise KafkaUnavailableError(str(error)) from None

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
