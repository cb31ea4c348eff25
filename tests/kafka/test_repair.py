"""What a repair leaves, judged by Kafka: its dump tool finds nothing wrong, a broker takes it on trust."""

import shutil
from pathlib import Path

import pytest

from pipeline.repair_command import RepairOptions, execute_repair
from storage_core.clock import SystemClock
from tests.damaged_store import DAMAGES, LOG, write_store
from tests.kafka.broker import KafkaBroker
from tests.kafka.consumed import read_with_confluent, read_with_kafka_python
from tests.kafka.foreign import ForeignTopic, mount
from tests.kafka.judge import judge_directory
from tests.kafka.ours import read_log

pytestmark = pytest.mark.kafka

_SHOWN = [
    name
    for name in DAMAGES
    if name not in ("checkpoint", "meta.properties", "topic id removed", "topic id changed", "directory removed")
]


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directory of a log for each damage, repaired."""
    folder, shown = tmp_path_factory.mktemp("stores"), tmp_path_factory.mktemp("repaired")
    sound = write_store(folder / "sound")
    directories = {}
    for number, name in enumerate(_SHOWN):
        store = Path(shutil.copytree(sound, folder / str(number)))
        DAMAGES[name](store)
        assert execute_repair(store, RepairOptions(), SystemClock(), lambda _step: None).is_sound, name
        directories[name] = Path(shutil.copytree(store / "logs" / LOG, shown / str(number) / LOG))
    return directories


@pytest.fixture(scope="module")
def served(broker: KafkaBroker, repaired: dict[str, Path]) -> KafkaBroker:
    """The broker with every repaired log, started with its marker of a clean shutdown: it recovers nothing."""
    mount(broker, [ForeignTopic(name=_topic(name), directories=[each]) for name, each in repaired.items()])
    return broker


def _topic(name: str) -> str:
    return "repaired." + "".join(letter if letter.isalnum() else "." for letter in name)


def test_judge_when_logs_were_repaired_then_finds_nothing(broker: KafkaBroker, repaired: dict[str, Path]) -> None:
    """Kafka's dump tool and its index checks find nothing wrong but the offsets that are missing."""
    verdict = judge_directory(next(iter(repaired.values())).parent.parent, broker.toolbox, gaps_allowed=True)

    assert verdict.findings == []
    assert verdict.logs > len(repaired)


def test_broker_when_logs_were_repaired_then_takes_them_on_trust(served: KafkaBroker) -> None:
    """A broker starts on repaired logs without recovering one, and without a word about them."""
    assert [line for line in served.complaints() if "repaired." in line] == []


def test_clients_when_logs_were_repaired_then_read_what_is_left(served: KafkaBroker, repaired: dict[str, Path]) -> None:
    """Two clients read the records that we read, over the offsets that are missing."""
    topics = {_topic(name): 1 for name in repaired}
    ours = {(_topic(name), 0): read_log(directory) for name, directory in repaired.items()}

    assert read_with_confluent(served.bootstrap, topics) == ours
    assert read_with_kafka_python(served.bootstrap, topics) == ours
