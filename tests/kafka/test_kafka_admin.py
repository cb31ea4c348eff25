"""Kafka's admin client, as verbs use it, in a JVM of its own."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import MEMORY_COMMAND_NAME  # type: ignore[import-untyped]

from sparklog.pipeline.brokers.admin_jvm import admin_jvm
from sparklog.pipeline.brokers.client_properties import ClientProperties
from sparklog.pipeline.brokers.kafka_admin import KafkaAdmin
from sparklog.storage_core.errors import InvalidConfigError
from tests.kafka.broker import KafkaBroker, TopicSpec

pytestmark = pytest.mark.kafka

_SECRET = "Geh31mn15"
_LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    """A JVM with Kafka's client."""
    with admin_jvm() as found:
        yield found


def test_admin_when_it_asks_for_the_same_logs_again_then_takes_no_call_for_each(
    jvm: Any, broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror asks every few seconds, also where nothing happens; other logs make another question."""
    broker.create_topics(TopicSpec(name="wide", partitions=100))
    client, calls = jvm._gateway_client, list[str]()
    send = client.send_command

    def counted(command: str, *rest: Any, **named: Any) -> Any:
        if not command.startswith(MEMORY_COMMAND_NAME):  # Python's collector returns objects when it likes
            calls.append(command)
        return send(command, *rest, **named)

    monkeypatch.setattr(client, "send_command", counted)
    logs = [("wide", number) for number in range(100)]
    counts = []
    with closing(KafkaAdmin(jvm, ClientProperties(bootstrap_server=broker.bootstrap, values={}, file=None))) as admin:
        for asked in (logs, logs[::-1], logs[:50]):
            calls.clear()
            found = admin.starts(asked), admin.ends(asked)
            counts.append(len(calls))
            assert found == (dict.fromkeys(asked, 0), dict.fromkeys(asked, 0))

    assert counts[1] < 60
    assert min(counts[0], counts[2]) > 200


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/no", "ssl.truststore.password": _SECRET},
            "the file that it names",
        ),
        ({**_LOGIN, "sasl.jaas.config": _SECRET}, "the file that it names"),
        ({"request.timeout.ms": _SECRET}, "property=request.timeout.ms"),
    ],
)
def test_admin_when_kafkas_client_can_not_use_its_properties_then_says_so_names_the_file_and_no_value(
    jvm: Any, values: dict[str, str], told: str
) -> None:
    """Such an error is not the cluster's: no broker was asked yet."""
    properties = ClientProperties(bootstrap_server="127.0.0.1:1", values=values, file=Path("client.properties"))

    with pytest.raises(InvalidConfigError, match=r"^Kafka's client can't use its properties: ") as raised:
        KafkaAdmin(jvm, properties)

    assert told in str(raised.value)
    assert "file=client.properties" in str(raised.value)
    assert _SECRET not in str(raised.value)
