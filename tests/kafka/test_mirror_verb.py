"""`sparklog mirror`: a broker's topics in a store, with offsets, ids and settings, also after a kill."""

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_other_properties, read_topic_configs
from sparklog.storage_core.checkpoint.partition_metadata import parse_partition_metadata
from sparklog.storage_core.clock import wait_until
from tests.kafka.broker import KafkaBroker, TopicSpec
from tests.kafka.consumed import CREATE_TIME, Consumed, Log, read_with_confluent
from tests.kafka.mirrors import MirrorRun, mirror_until_now
from tests.kafka.ours import read_log
from tests.kafka.produced import ProducedRecord, produce_in_transactions, produce_with_confluent
from tests.kafka.toolbox import KafkaToolbox

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_START_MS = 1_700_000_000_000
_KEPT = {"retention.ms": -1}
"""The records are old."""


def _records(topic: str, turn: int, count: int, partitions: int = 2) -> list[ProducedRecord]:
    return [
        ProducedRecord(
            topic,
            number % partitions,
            _START_MS + turn * 100_000 + number,
            f"key {number % 7}".encode(),
            f"turn {turn} number {number}".encode(),
            (("trace", f"{number}".encode()),) if number % 3 else (),
        )
        for number in range(count)
    ]


def _states(store: Path) -> dict[Log, LogState]:
    states = Ledger.open(Store.find(store).ledger_path).states()
    return {(log.topic, log.partition): state for log, state in states.items()}


def _held(store: Path) -> dict[Log, list[Consumed]]:
    found = Store.find(store)
    return {log: read_log(found.log_path(state)) for log, state in _states(store).items()}


def _as_mirrored(logs: dict[Log, list[Consumed]]) -> dict[Log, list[Consumed]]:
    return {log: [each._replace(timestamp_type=CREATE_TIME) for each in records] for log, records in logs.items()}


def test_mirror_when_killed_and_started_again_then_the_store_has_the_sources_committed_records(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    """Offsets, starts, ends, ids and settings are the source's; what is above a kill comes once."""
    plain, marked = "verb.plain", "verb.marked"
    broker.create_topics(
        TopicSpec(name=plain, partitions=2, config={"retention.ms": -1, "message.timestamp.type": "LogAppendTime"}),
        TopicSpec(name=marked, partitions=2, config={**_KEPT, "cleanup.policy": "compact", "preallocate": "false"}),
    )
    produce_with_confluent(broker.bootstrap, _records(plain, 0, 300))
    produce_in_transactions(broker.bootstrap, [(_records(marked, 0, 40), "commit"), (_records(marked, 1, 20), "abort")])
    store, pattern = tmp_path / "store", r"verb\.(plain|marked)"

    first = MirrorRun(tmp_path, broker.bootstrap, store, pattern, "--max-offsets", "150", "--every", "100ms")
    first.await_text("batch 1:")
    first.kill()
    produce_with_confluent(broker.bootstrap, _records(plain, 1, 100))
    told = mirror_until_now(tmp_path, broker.bootstrap, store, pattern, "--max-offsets", "150")

    source = read_with_confluent(broker.bootstrap, {plain: 2, marked: 2}, isolation="read_committed")
    assert _held(store) == _as_mirrored(source)
    assert "lag " in told
    assert told.rstrip().splitlines()[-1].startswith("done: ")
    states = _states(store)
    assert {log: (each.log_start_offset, each.log_end_offset) for log, each in states.items()} == {
        (plain, 0): (0, 200),
        (plain, 1): (0, 200),
        (marked, 0): (0, 32),
        (marked, 1): (0, 32),
    }
    for (topic, partition), state in states.items():
        file = broker.log_dir / f"{topic}-{partition}" / "partition.metadata"
        assert state.topic_id == parse_partition_metadata(file.read_bytes())
    settings = read_topic_configs(Store.find(store))
    assert settings[plain].retention_ms == -1
    assert settings[plain].message_timestamp_type == "LogAppendTime"
    assert settings[marked].is_compacted
    assert read_other_properties(Store.find(store)) == {marked: {"preallocate": "false"}}
    AdminClient({"bootstrap.servers": broker.bootstrap}).delete_topics([plain, marked])


def test_mirror_when_topics_and_partitions_appear_then_has_them_and_stops_at_one_that_was_made_anew(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    """Without a new start; another topic of the same name never comes into the first one's logs."""
    first, second, store = "grow.first", "grow.second", tmp_path / "store"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    broker.create_topics(TopicSpec(name=first, partitions=1, config=_KEPT))
    produce_with_confluent(broker.bootstrap, _records(first, 0, 10, partitions=1))
    run = MirrorRun(tmp_path, broker.bootstrap, store, r"grow\..*", "--every", "200ms")
    run.await_text("batch 0: 10 records")
    admin.create_partitions([NewPartitions(first, 3)])[first].result(30)
    broker.create_topics(TopicSpec(name=second, partitions=2, config=_KEPT))
    run.await_text("mirroring 2 topics, 5 partitions")
    produce_with_confluent(broker.bootstrap, [*_records(first, 1, 9, partitions=3), *_records(second, 0, 6)])
    while sum(map(len, _held(store).values())) < 25:
        assert "error" not in run.output, run.output
    assert run.stop() == 0, run.output
    assert _held(store) == read_with_confluent(broker.bootstrap, {first: 3, second: 2})

    admin.delete_topics([second])[second].result(30)
    wait_until(lambda: second not in admin.list_topics(timeout=30).topics, 30, 0.1)
    broker.create_topics(TopicSpec(name=second, partitions=2, config=_KEPT))
    before = _states(store)
    again = MirrorRun(tmp_path, broker.bootstrap, store, r"grow\..*", "--until", "now")
    assert again.finish() == 2
    assert f"topic={second}" in again.output
    assert f"sparklog delete-topic STORE {second}" in again.output
    assert _states(store) == before
    admin.delete_topics([first, second])


def test_mirror_when_the_source_deleted_records_before_they_came_then_stops_unless_gaps_are_allowed(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    """It names the offsets that are gone."""
    topic, store = "overtaken", tmp_path / "store"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    broker.create_topics(TopicSpec(name=topic, partitions=1, config=_KEPT))
    produce_with_confluent(broker.bootstrap, _records(topic, 0, 10, partitions=1))
    mirror_until_now(tmp_path, broker.bootstrap, store, topic)
    produce_with_confluent(broker.bootstrap, _records(topic, 1, 10, partitions=1))
    admin.delete_records([TopicPartition(topic, 0, 14)])
    wait_until(lambda: read_with_confluent(broker.bootstrap, {topic: 1})[topic, 0][0].offset == 14, 30, 0.1)

    run = MirrorRun(tmp_path, broker.bootstrap, store, topic, "--until", "now")
    assert run.finish() == 2
    assert "log=overtaken-0 offsets 10..13; --allow-gaps" in run.output
    mirror_until_now(tmp_path, broker.bootstrap, store, topic, "--allow-gaps")

    assert [each.offset for each in _held(store)[topic, 0]] == [*range(10), *range(14, 20)]
    admin.delete_topics([topic])


def test_mirror_when_the_source_has_sasl_then_reads_and_prints_no_secret(toolbox: KafkaToolbox, tmp_path: Path) -> None:
    """Neither to the terminal nor into the store nor into Spark's event log; a wrong password is named as one."""
    topic, secret, store = "secured", "Geh31mn15", tmp_path / "store"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = f'{login} username="node" password="{secret}" user_node="{secret}";'
    secured = {
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,QUORUM:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": users,
    }
    config, events = tmp_path / "client.properties", tmp_path / "events"
    events.mkdir()

    def write_config(password: str) -> None:
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={login} username="node" password="{password}";\n'
        )

    with KafkaBroker(toolbox, tmp_path / "source") as source:
        source.format()
        source.start()
        source.create_topics(TopicSpec(name=topic, partitions=1, config=_KEPT))
        produce_with_confluent(source.bootstrap, _records(topic, 0, 10, partitions=1))
        source.stop()
        source.start(
            secured,
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "node",
                "sasl.password": secret,
            },
        )
        logged = ("--conf=spark.eventLog.enabled=true", f"--conf=spark.eventLog.dir={events.as_uri()}")
        options = ("--command-config", str(config), *logged)

        write_config(secret)
        told = mirror_until_now(
            tmp_path, source.bootstrap, store, topic, *options, "--conf=spark.eventLog.enabled=true"
        )
        assert len(_held(store)[topic, 0]) == 10
        assert list(events.iterdir())
        write_config("wrong" + secret)
        run = MirrorRun(tmp_path, source.bootstrap, store, topic, "--until", "now", *options)
        assert run.finish() == 1
        assert f"the cluster refuses the login: server={source.bootstrap} (SaslAuthenticationException)" in run.output

    files = [path for folder in (store, events) for path in folder.rglob("*") if path.is_file()]
    assert secret not in told + run.output
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_mirror_when_the_source_is_away_or_has_no_such_topic_then_one_line_says_so(
    broker: KafkaBroker, tmp_path: Path
) -> None:
    """And no store is made."""
    store = tmp_path / "store"
    away = MirrorRun(tmp_path, "127.0.0.1:1", store, "t", "--until", "now")
    assert away.finish() == 1
    assert "security protocol must fit: server=127.0.0.1:1 (TimeoutException)" in away.output

    absent = MirrorRun(tmp_path, broker.bootstrap, store, "nothing-here", "--until", "now")
    assert absent.finish() == 1
    assert "error: no topic at the source has such a name: topics=nothing-here" in absent.output
    assert not store.exists()
