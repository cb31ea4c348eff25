"""A stock Kafka broker on a folder of its own: one node, loopback, free ports, stopped when the tests are.

The node is broker and controller in one. Its quorum is fixed in the properties and not in the metadata log, so every
start may take other ports. Source: Kafka 4.3 documentation, "KRaft", static quorums.
"""

import base64
import contextlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from tests.kafka.toolbox import KafkaToolbox, KafkaToolError

__all__ = ["KafkaBroker", "TopicSpec", "free_ports"]

_STARTED = "Kafka Server started"
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0
_COMPLAINT = re.compile(r"^(WARN|ERROR|FATAL) ")

_PROPERTIES = {
    "node.id": 1,
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,QUORUM:PLAINTEXT",
    "controller.listener.names": "QUORUM",
    "inter.broker.listener.name": "CLIENTS",
    "auto.create.topics.enable": "false",
    # One node: internal topics get one partition and one replica, and groups need not wait for members.
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    # After a kill the node waits until the controller, which is itself, holds its former life for dead.
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 3000,
    # Tests wait for the cleaner; nobody else does.
    "log.cleaner.threads": 1,
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    "num.network.threads": 2,
    "num.io.threads": 2,
    "num.recovery.threads.per.data.dir": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic to create.

    Attributes:
        config: Kafka's topic settings; the hidden `internal.segment.bytes` allows segments below 1 MiB.
    """

    name: str
    partitions: int = 1
    config: Mapping[str, object] = field(default_factory=dict)


class KafkaBroker:
    """A broker over one folder, which must be empty before `format`.

    Attributes:
        toolbox: Kafka's jars.
        log_dir: the broker's only log directory.
        bootstrap: address of the running broker; empty while it is down.
    """

    def __init__(self, toolbox: KafkaToolbox, folder: Path) -> None:
        self.toolbox = toolbox
        self.log_dir = folder.resolve() / "logs"
        self.bootstrap = ""
        self._folder = folder.resolve()
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def __enter__(self) -> "KafkaBroker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()

    def format(self, cluster_id: str | None = None) -> None:
        """Make the folder a cluster of its own.

        Args:
            cluster_id: its id; a new one if None.
        """
        self.log_dir.mkdir(parents=True)
        cluster_id = cluster_id or base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace(
            "-", "_"
        )  # no option
        properties = self._write_properties({})
        self.toolbox.run("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", str(properties))

    def start(self, settings: Mapping[str, object] | None = None, login: Mapping[str, str] | None = None) -> None:
        """Start and wait until clients are served.

        Args:
            settings: broker properties of this run, over those of the lab.
            login: client properties that these settings ask for.

        Raises:
            KafkaToolError: it ended instead, or was not ready in time; the message ends with its last lines.
        """
        self._run(self._write_properties(settings or {}))
        self.await_started()
        self._await_leading(login or {})

    def serve(self, properties: Path, bootstrap: str) -> None:
        """Start on another one's `server.properties` as they are, as kafka-server-start does; raises as `start`."""
        self.begin(properties, bootstrap)
        self.await_started()
        self._await_leading({})

    def begin(self, properties: Path, bootstrap: str) -> None:
        """Begin to start likewise; one of several controllers is ready only once others are."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self.bootstrap = bootstrap
        self._run(properties)

    def _run(self, properties: Path) -> None:
        self._starts += 1
        command = self.toolbox.command("kafka.Kafka", str(properties), heap="768m", log_level="info")
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def stop(self) -> None:
        """Stop cleanly: logs flushed, checkpoints and the clean-shutdown marker written."""
        self._running.terminate()
        self._await_end()

    def kill(self) -> None:
        """Stop as a power cut would."""
        self._running.kill()
        self._await_end()

    def create_topics(self, *topics: TopicSpec) -> None:
        """Create topics of one replica and wait until their directories are there."""
        new = [
            NewTopic(each.name, each.partitions, 1, config={key: str(value) for key, value in each.config.items()})
            for each in topics
        ]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # held: its end would cancel the requests
        for result in admin.create_topics(new).values():
            result.result(30)
        directories = [self.log_dir / f"{each.name}-{number}" for each in topics for number in range(each.partitions)]
        deadline = time.monotonic() + _START_TIMEOUT_S
        while missing := [each.name for each in directories if not (each / "partition.metadata").exists()]:
            if time.monotonic() > deadline:
                raise KafkaToolError(f"the broker made no directories for {missing}")
            time.sleep(0.05)

    def forget_clean_shutdown(self) -> None:
        """Take the marker away: the next start recovers every log and rebuilds every index."""
        (self.log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)

    def complaints(self) -> list[str]:
        """Return the lines of level WARN and above since the last start."""
        return [line for line in self._output.read_text(errors="replace").splitlines() if _COMPLAINT.match(line)]

    @property
    def _output(self) -> Path:
        return self._folder / f"broker-{self._starts}.log"

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise KafkaToolError("the broker does not run")
        return self._process

    def await_started(self) -> None:
        """Wait until clients are served; raises as `start`."""
        process = self._running
        deadline = time.monotonic() + _START_TIMEOUT_S
        while _STARTED not in (text := self._output.read_text(errors="replace")):
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                reason = f"ended with exit status {process.returncode}" if ended else "was not ready in time"
                raise KafkaToolError(f"the broker {reason}:\n" + "\n".join(text.splitlines()[-30:]))
            time.sleep(0.1)

    def _await_leading(self, login: Mapping[str, str]) -> None:
        """Wait until it answers for every partition: it is told to lead them only after it says that it has started."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **login})  # held: its end would cancel the requests
        deadline = time.monotonic() + _START_TIMEOUT_S
        topics = admin.list_topics(timeout=_START_TIMEOUT_S).topics
        logs = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
        earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = dict.fromkeys(logs, earliest)
        while asked:
            answers = admin.list_offsets(asked, request_timeout=_START_TIMEOUT_S)
            waiting = [log for log, answer in answers.items() if isinstance(answer.exception(), KafkaException)]
            if not waiting:
                return
            if time.monotonic() > deadline:
                raise KafkaToolError(f"the broker does not lead {waiting}")
            time.sleep(0.05)

    def _await_end(self) -> None:
        try:
            self._running.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
            raise KafkaToolError(f"the broker did not stop within {_STOP_TIMEOUT_S} s") from None
        finally:
            self._process = None
            self.bootstrap = ""

    def _write_properties(self, settings: Mapping[str, object]) -> Path:
        (clients,) = free_ports(1)
        quorum = clients + 1
        self.bootstrap = f"127.0.0.1:{clients}"
        own = {
            "log.dirs": self.log_dir,
            "listeners": f"CLIENTS://127.0.0.1:{clients},QUORUM://127.0.0.1:{quorum}",
            "advertised.listeners": f"CLIENTS://127.0.0.1:{clients}",
            "controller.quorum.voters": f"1@127.0.0.1:{quorum}",
        }
        path = self._folder / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in {**_PROPERTIES, **own, **settings}.items()))
        return path


def free_ports(count: int) -> list[int]:
    """Return ports that are free, each together with the next one."""
    found: list[int] = []
    with contextlib.ExitStack() as held:  # all open at once, so they differ
        while len(found) < count:
            first, second = (held.enter_context(socket.socket()) for _ in range(2))
            first.bind(("127.0.0.1", 0))
            with contextlib.suppress(OSError):
                second.bind(("127.0.0.1", first.getsockname()[1] + 1))
                found.append(first.getsockname()[1])
    return found
