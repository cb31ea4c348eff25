"""A stream writes, the maintenance job runs in a loop with everything due, a reader reads; any of them is killed.

Ten seeds make a batch, whose stores Kafka judges at its end. `SPARKLOG_SEED=<n>` repeats one seed: the same ones are
killed, about when they were.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.build.sink_store import log_directories
from tests.delta_jars import jars_fixture
from tests.kafka.broker import KafkaBroker
from tests.kafka.consumed import read_with_confluent
from tests.kafka.foreign import ForeignTopic, mount
from tests.kafka.judge import judge_directory
from tests.kafka.ours import read_log
from tests.kafka.toolbox import KafkaToolbox, KafkaUnavailableError
from tests.kill.killed_maintenance import KilledMaintenance
from tests.kill.lively_episode import Episode
from tests.seeds import GIVEN, take_seed

pytestmark = [pytest.mark.kill, pytest.mark.spark]

_IS_LONG = bool(os.environ.get("SPARKLOG_SOAK"))
_BATCHES, _SEEDS = (1, 1) if GIVEN is not None else (10, 10) if _IS_LONG else (1, 2)
_STREAMS_EVERY = 3 if _IS_LONG else 10
"""Of so many seeds one writes by a stream."""

jars = jars_fixture("A KILLED MAINTENANCE JOB WAS NOT TESTED")


@pytest.fixture(scope="module")
def maintenance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KilledMaintenance]:
    """The job, for all seeds: its Spark is started again only where it was killed."""
    job = KilledMaintenance(tmp_path_factory.mktemp("maintenance"))
    yield job
    job.close()


@pytest.fixture(scope="module", params=range(_BATCHES))
def survivors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the stores of a batch."""
    memory = Path("/dev/shm")
    root = memory if os.access(memory, os.W_OK) else tmp_path_factory.mktemp("survivors")
    with tempfile.TemporaryDirectory(prefix="sparklog-test-", dir=root) as folder:
        yield Path(folder)


def _seed(number: int) -> int:
    """Return a multiple of 3 where a stream is to write."""
    return take_seed(number, lambda drawn: drawn * 3 + (number % _STREAMS_EVERY > 0))


@pytest.mark.parametrize("number", range(_SEEDS))
def test_store_when_writer_maintenance_and_reader_are_killed_then_no_key_is_lost_nor_resurrected(
    context: ForkServerContext, memory_path: Path, maintenance: KilledMaintenance, survivors: Path, number: int
) -> None:
    """Every read sees the last value of every key; in the end logs, tables and requests to forget are in order."""
    seed = _seed(number)
    episode = Episode(memory_path / "episode", seed, context, maintenance)

    episode.run()

    print("; ".join(episode.killed))
    shutil.move(episode.store, survivors / f"s{number}")


@pytest.mark.kafka
def test_kafka_when_it_looks_at_what_the_kills_left_then_sound_and_a_consumer_reads_the_same(
    survivors: Path, tmp_path: Path
) -> None:
    """The dump tool finds nothing, a broker loads every log as it is, and its clients read what our reader does."""
    try:
        toolbox = KafkaToolbox.obtain()
    except KafkaUnavailableError as error:
        pytest.skip(f"KAFKA DID NOT JUDGE: {error}")
    found = {
        f"{store.name}.{name}": directory
        for store in sorted(survivors.iterdir())
        for name, directory in log_directories(store).items()
    }
    assert found, "no store is left: the seeds have to be run, too"
    assert judge_directory(survivors, toolbox, gaps_allowed=True).findings == []

    with KafkaBroker(toolbox, tmp_path / "broker") as broker:
        broker.format()
        broker.start()
        mount(broker, [ForeignTopic(name=name, directories=[directory]) for name, directory in found.items()])
        read = read_with_confluent(broker.bootstrap, dict.fromkeys(found, 1))
        complaints = broker.complaints()

    for name, directory in found.items():
        assert read[name, 0] == read_log(directory), name
    assert [line for line in complaints if any(name in line for name in found)] == []
