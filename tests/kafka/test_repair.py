"""What a repair leaves, judged by Kafka: its dump tool finds nothing wrong, a broker takes it on trust."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.storage_core.clock import SystemClock
from tests.build.damaged_store import DAMAGES, LOG, change, write_store
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


_GOLDEN = Path(__file__).resolve().parent.parent / "data" / "golden"

_BROKERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "broker: no indexes": ("v2-segments", lambda log: _unlink(log.glob("*index"))),
    "broker: offset index emptied": ("v2-segments", lambda log: _longest(log, ".index").write_bytes(b"")),
    "broker: time index changed": (
        "v2-segments",
        lambda log: change(_longest(log, ".timeindex"), lambda data: data.__setitem__(5, data[5] ^ 8)),
    ),
    "broker: torn tail": ("v2-segments", lambda log: change(_last(log), lambda data: data.extend(data[:70]))),
    "broker: zeros at the end": ("v2-segments", lambda log: change(_last(log), lambda data: data.extend(bytes(50)))),
    "broker: no transaction index": (
        "v2-transactional",
        lambda log: _unlink(log.glob("*.txnindex")),
    ),
    "broker: snapshot changed": (
        "v2-idempotent",
        lambda log: change(next(log.glob("*.snapshot")), lambda data: data.__setitem__(4, data[4] ^ 1)),
    ),
    "broker: torn tail of v1": ("v1-segments", lambda log: change(_last(log), lambda data: data.extend(data[:30]))),
}
"""Damage to logs that brokers wrote; nothing is lost by it."""


def _unlink(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink()


def _longest(log: Path, suffix: str) -> Path:
    return max(log.glob(f"*{suffix}"), key=lambda path: path.stat().st_size)


def _last(log: Path) -> Path:
    return max(log.glob("*.log"))


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directory of a broker's own log for each damage, repaired."""
    folder = tmp_path_factory.mktemp("mended")
    directories = {}
    for number, (name, (case, damage)) in enumerate(_BROKERS.items()):
        source = next(path for path in (_GOLDEN / case).iterdir() if path.is_dir())
        log = Path(shutil.copytree(source, folder / case[:2] / str(number) / source.name))
        damage(log)
        assert execute_repair(log, RepairOptions(), SystemClock(), lambda _step: None).is_sound, name
        directories[name] = log
    return directories


@pytest.fixture(scope="module")
def served(broker: KafkaBroker, repaired: dict[str, Path], mended: dict[str, Path]) -> KafkaBroker:
    """The broker with every repaired log, started with its marker of a clean shutdown: it recovers nothing."""
    logs = {**repaired, **mended}
    mount(broker, [ForeignTopic(name=_topic(name), directories=[each]) for name, each in logs.items()])
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


def test_judge_when_a_brokers_log_was_repaired_then_its_indexes_agree(
    broker: KafkaBroker, mended: dict[str, Path]
) -> None:
    """Kafka's index checks find nothing wrong with what was rebuilt, nor the dump tool with what was cut."""
    of_v2 = next(log for log in mended.values() if log.name.startswith("v2")).parent.parent

    assert judge_directory(of_v2, broker.toolbox).findings == []


def test_clients_when_a_brokers_log_was_repaired_then_read_all_of_it(
    served: KafkaBroker, mended: dict[str, Path]
) -> None:
    """Nothing is lost where only indexes and tails were damaged: a client reads what the broker wrote."""
    topics = {_topic(name): 1 for name in mended}
    original = {}
    for name, (case, _) in _BROKERS.items():
        source = next(path for path in (_GOLDEN / case).iterdir() if path.is_dir())
        original[_topic(name), 0] = read_log(source)

    assert read_with_confluent(served.bootstrap, topics) == original
