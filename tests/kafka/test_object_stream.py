"""A stream into S3 with maintenance and a reader beside it for long, then a broker on its records, one by one.

`SPARKLOG_SOAK=1` asks for half an hour.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest

from tests.kafka.broker import KafkaBroker, free_ports
from tests.kafka.consumed import Consumed, Log, read_with_confluent
from tests.kafka.mounted_turns import stored
from tests.kafka.toolbox import KafkaToolbox
from tests.kill.directory_job import start
from tests.kill.harness import SparkJob, exit_code, fork_server
from tests.kill.object_job import maintain_again, object_place, put_place
from tests.kill.session_processes import processes_of
from tests.objects.faulty_proxy import faulty_proxy
from tests.objects.gateway import Gateway, GatewayUnavailableError, running_gateway
from tests.objects.long_stream_job import TOPIC
from tests.sparklog_command import Sparklog

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_IS_LONG = bool(os.environ.get("SPARKLOG_SOAK"))
_SECONDS = 1800 if _IS_LONG else 40
_RATE = 300
_SAMPLE_S = 5.0
_GROWTH = 1.25
"""What the last third of a long run may have above the second one."""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """An S3 server."""
    try:
        with running_gateway(tmp_path / "s3") as started:
            yield started
    except GatewayUnavailableError as error:
        pytest.skip(f"KAFKA DID NOT JUDGE: a stream into S3: {error}")


@dataclass
class _Samples:
    """Of every few seconds: requests of the writer so far, its micro-batches, objects, memory of Python processes."""

    requests: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    objects: list[int] = field(default_factory=list)
    driver_kib: list[int] = field(default_factory=list)
    workers_kib: list[int] = field(default_factory=list)

    def third(self, number: int, values: list[int]) -> list[int]:
        """Return a third of the samples."""
        size = len(values) // 3
        return values[number * size : (number + 1) * size + 1]

    def requests_per_batch(self, number: int) -> float:
        """Return the mean of a third."""
        asked, done = (self.third(number, values) for values in (self.requests, self.batches))
        return (asked[-1] - asked[0]) / max(done[-1] - done[0], 1)


def test_stream_into_s3_when_it_runs_for_long_beside_maintenance_and_a_reader_then_a_broker_has_each_record(
    gateway: Gateway, toolbox: KafkaToolbox, tmp_path: Path, sparklog: Sparklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory, objects and requests of a micro-batch do not grow; the reader has each record once, in order."""
    address, store = f"{gateway.address}/{tmp_path.name}", tmp_path / "store"
    put_place(store, address, gateway.options, 0)
    found, asked = _Samples(), [0]

    def count() -> None:
        asked[0] += 1

    with ExitStack() as running:
        server = int(gateway.options["aws_endpoint_url"].rpartition(":")[2])
        port = running.enter_context(faulty_proxy(server, on_request=count))
        storage = {**gateway.options, "aws_endpoint_url": f"http://127.0.0.1:{port}"}
        given = {"address": address, "storage": storage, "reader_storage": gateway.options, "rate": _RATE}
        (tmp_path / "long.json").write_text(json.dumps(given))
        job = SparkJob(tmp_path, module="tests.objects.long_stream_job")
        running.callback(job.kill)
        maintenance = start(fork_server(), maintain_again, store)
        running.callback((tmp_path / "stop-maintenance").touch)
        _sample(job, tmp_path, store, asked, found)
        (tmp_path / "stop").touch()
        code, told = job.finish(), job.told
        (tmp_path / "stop-maintenance").touch()
        assert exit_code(maintenance) == 0, (tmp_path / "error.txt").read_text()
    assert code == 0, told

    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["problems"] == []
    _check_growth(found)
    for name, value in gateway.options.items():
        monkeypatch.setenv(name.upper(), value)
    records = _serve(toolbox, tmp_path, sparklog, address)
    counts = {str(partition): len(log) for (_, partition), log in records.items()}
    assert counts == {partition: log["end"] for partition, log in seen["logs"].items()}
    values = sorted(int(each.value or b"") for log in records.values() for each in log)
    assert values == list(range(len(values)))
    assert sum(values) == sum(log["sum"] for log in seen["logs"].values())


def _sample(job: SparkJob, folder: Path, store: Path, asked: list[int], found: _Samples) -> None:
    """Look every few seconds, from the first micro-batch on."""
    lines = folder / "batches.jsonl"
    while not job.has_ended and not (lines.exists() and lines.stat().st_size):
        time.sleep(0.5)
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until and not job.has_ended:
        time.sleep(_SAMPLE_S)
        processes = processes_of(job.pid)
        python = {pid: _resident_kib(pid) for pid, each in processes.items() if not each.is_jvm}
        found.driver_kib.append(python.pop(job.pid, 0))
        found.workers_kib.append(max(python.values(), default=0))
        found.requests.append(asked[0])
        found.batches.append(len(lines.read_text().splitlines()))
        found.objects.append(sum(1 for _ in object_place(store).open().list("data")))


def _resident_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)


def _check_growth(found: _Samples) -> None:
    """Compare the last third of the samples with the second one."""
    figures = {
        "driver KiB": [median(found.third(number, found.driver_kib)) for number in range(3)],
        "largest worker KiB": [median(found.third(number, found.workers_kib)) for number in range(3)],
        "objects": [median(found.third(number, found.objects)) for number in range(3)],
        "requests a micro-batch": [round(found.requests_per_batch(number), 1) for number in range(3)],
    }
    print(f"{found.batches[-1]} micro-batches; by thirds: {figures}")
    if _IS_LONG:
        assert {name: each for name, each in figures.items() if each[2] > _GROWTH * each[1]} == {}


def _serve(toolbox: KafkaToolbox, folder: Path, sparklog: Sparklog, address: str) -> dict[Log, list[Consumed]]:
    """Mount the store into a new cluster, and return what its broker has; it is what an import has."""
    (port,) = free_ports(1)
    out, copy = folder / "cluster", folder / "imported"
    mounted = sparklog("mount", address, "--new-cluster", "--out", out, "--broker", f"1@127.0.0.1:{port}", "--execute")
    assert mounted.code == 0, mounted.err
    assert sparklog("import", address, copy, "--execute").code == 0
    with KafkaBroker(toolbox, folder / "broker") as broker:
        broker.serve(out / "server.properties", f"127.0.0.1:{port}")
        records = read_with_confluent(broker.bootstrap, {TOPIC: 4})
        broker.stop()
        assert [line for line in broker.complaints() if TOPIC in line] == []
    assert records == stored(copy)
    return records
