"""Writers and maintenance of a store of objects, killed at random moments while requests and answers get lost."""

import os
import random
import uuid
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.kill.directory_job import start
from tests.kill.harness import exit_code, fork_server
from tests.kill.object_job import maintain_place, put_place, write_objects
from tests.objects.checked_objects import check_objects, complete_objects
from tests.objects.faulty_proxy import faulty_proxy
from tests.objects.gateway import Gateway
from tests.seeds import take_seed

_REASON = "FAULTS OF REQUESTS WERE NOT TESTED: half a minute for each of 150 rounds; SPARKLOG_SOAK=1 does it"
pytestmark = [pytest.mark.kill, pytest.mark.skipif(not os.environ.get("SPARKLOG_SOAK"), reason=_REASON)]

_ROUNDS = 100
_BATCHES, _FEW_BATCHES = 60, 8
"""A commit on HDFS takes a second."""
_KILLS = 4
_LONGEST_S = 3.0
_FAULTS = 0.02


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """Processes that start with everything imported."""
    return fork_server()


def _complete(context: ForkServerContext, store: Path, chance: random.Random) -> None:
    """Kill writers and maintenance runs at random moments, then let a writer come to its end."""
    for _ in range(_KILLS):
        running = [start(context, write_objects, store)]
        if chance.random() < 0.5:
            running.append(start(context, maintain_place, store))
        for each in running:
            each.join(chance.uniform(0, _LONGEST_S))
            each.kill()
            exit_code(each)
    complete_objects(context, store)


@pytest.mark.parametrize("number", range(_ROUNDS))
def test_objects_on_s3_when_kills_and_lost_answers_come_together_then_each_number_is_there_once(
    context: ForkServerContext, tmp_path: Path, gateway: Gateway, number: int
) -> None:
    """A lost answer to a commit is looked up: it counts once or not at all."""
    chance, store = random.Random(take_seed(number)), tmp_path / "store"
    address, port = f"{gateway.address}/{uuid.uuid4().hex}", int(gateway.options["aws_endpoint_url"].rpartition(":")[2])
    with faulty_proxy(port, chance.getrandbits(32), _FAULTS) as before:
        options = {**gateway.options, "aws_endpoint_url": f"http://127.0.0.1:{before}"}
        put_place(store, address, options, _BATCHES)
        _complete(context, store, chance)
    put_place(store, address, gateway.options, _BATCHES)
    check_objects(context, store)


@pytest.mark.parametrize("number", range(_ROUNDS // 2))
def test_objects_on_hdfs_when_killed_at_random_moments_then_each_number_is_there_once(
    context: ForkServerContext, tmp_path: Path, hdfs: str, number: int
) -> None:
    """A file that was being written is never data."""
    chance, store = random.Random(take_seed(number)), tmp_path / "store"
    put_place(store, f"{hdfs}/{uuid.uuid4().hex}", {}, _FEW_BATCHES)
    _complete(context, store, chance)
    check_objects(context, store)
