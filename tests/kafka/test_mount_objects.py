"""A store on S3 in a new cluster: a broker serves its records with the same offsets."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.config import SinkConfig
from sparklog.sink.objects.maintaining.maintain_objects import MaintainedObjects, maintain_objects
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.storage_core.clock import SystemClock
from tests.build.sink_store import open_store
from tests.kafka.broker import KafkaBroker, free_ports
from tests.kafka.consumed import read_with_confluent
from tests.kafka.mounted_turns import append_turn, stored
from tests.kafka.toolbox import KafkaToolbox
from tests.objects.gateway import Gateway, GatewayUnavailableError, running_gateway
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.kafka

_EVENTS, _TABLE = "objects.events", "objects.table"
_TOPICS: dict[str, dict[str, object]] = {
    _EVENTS: {"partitions": 3, "segment.bytes": 2000, "batch.size": 500, "compression.type": "lz4", "retention.ms": -1},
    _TABLE: {"partitions": 1, "segment.bytes": 2000, "retention.ms": -1, "compression.type": "zstd"},
}
_COUNTS = {_EVENTS: 3, _TABLE: 1}
_START_MS = 1_700_000_000_000
_TURNS = 30
"""So many that maintenance merges their extents."""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """An S3 server."""
    try:
        with running_gateway(tmp_path / "s3") as started:
            yield started
    except GatewayUnavailableError as error:
        pytest.skip(f"KAFKA DID NOT JUDGE: a store on S3: {error}")


def test_broker_when_it_serves_a_store_on_s3_then_every_record_as_in_a_store_of_this_machine(
    gateway: Gateway, toolbox: KafkaToolbox, tmp_path: Path, sparklog: Sparklog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same rows, half of them merged by maintenance; one command makes the broker's directory."""
    address, out = f"{gateway.address}/{tmp_path.name}", tmp_path / "cluster"
    config = SinkConfig.from_options(address, _TOPICS, storage=gateway.options)
    assert config.objects is not None
    with (
        closing(ObjectWriter(config, config.objects, SystemClock())) as writer,
        closing(open_store(tmp_path / "store", _TOPICS)) as local,
    ):
        for turn in range(_TURNS):
            append_turn(writer, _EVENTS, _TABLE, turn, _START_MS)
            append_turn(local, _EVENTS, _TABLE, turn, _START_MS)
            if turn == _TURNS // 2:
                assert [*maintain_objects(MaintainedObjects(config.objects, SystemClock(), 1 << 20))]
    for name, value in gateway.options.items():
        monkeypatch.setenv(name.upper(), value)
    (port,) = free_ports(1)

    ran = sparklog("mount", address, "--new-cluster", "--out", out, "--broker", f"1@127.0.0.1:{port}", "--execute")

    assert ran.code == 0, ran.err
    with KafkaBroker(toolbox, tmp_path / "broker") as broker:
        broker.serve(out / "server.properties", f"127.0.0.1:{port}")
        assert read_with_confluent(broker.bootstrap, _COUNTS) == stored(tmp_path / "store")
        broker.stop()
        assert [line for line in broker.complaints() if "objects." in line] == []
