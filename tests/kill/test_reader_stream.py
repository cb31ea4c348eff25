"""A streaming read of a store that is being written, killed at random moments, loses nothing and repeats nothing.

`SPARKLOG_KILL_ROUNDS=<n>` asks for n kills.
"""

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.build.sink_store import in_process, open_store, read_store, rows
from tests.delta_jars import jars_fixture
from tests.kill.harness import SparkJob
from tests.seeds import take_seed

pytestmark = [pytest.mark.kill, pytest.mark.spark]

_ROUNDS = int(os.environ.get("SPARKLOG_KILL_ROUNDS") or 3)
_STREAM_S = 8.0
_PAUSE_S = 0.2
_TOPICS: dict[str, dict[str, object]] = {"t": {"partitions": 3, "segment.bytes": 20_000, "batch.size": 1000}}


jars = jars_fixture("KILLED READS INTO A DELTA TABLE WERE NOT TESTED")


@contextmanager
def _writing(store: Path, seed: int) -> Iterator[None]:
    """Write a few records again and again, until the block is left."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        sizes = random.Random(seed)
        writer = open_store(store, _TOPICS)
        number = 0
        try:
            for batch in range(10**6):
                count = sizes.randrange(1, 60)
                values = [str(each) for each in range(number, number + count)]
                topics, partitions = ["t"] * count, [sizes.randrange(3) for _ in range(count)]
                writer.append("feed", batch, in_process(rows(topic=topics, partition=partitions, value=values)))
                number += count
                if stop.wait(_PAUSE_S):
                    return
        except BaseException as error:
            failures.append(error)
        finally:
            writer.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert failures == []


def test_stream_when_its_reader_is_killed_at_random_moments_then_each_record_arrives_once(tmp_path: Path) -> None:
    """Driver, JVM and workers die at once; after the last restart the table holds exactly the store's records."""
    seed = take_seed()
    moments = random.Random(seed)
    open_store(tmp_path / "store", _TOPICS).close()
    module = "tests.kill.reader_job"
    with _writing(tmp_path / "store", seed):
        for _ in range(_ROUNDS):
            code = SparkJob(tmp_path, module=module).kill_after(moments.uniform(0, _STREAM_S))
            assert code == -9, f"seed={seed} {(tmp_path / 'error.txt').read_text()}"

    code = SparkJob(tmp_path, "--available-now", module=module).finish()

    assert code == 0, f"seed={seed} {(tmp_path / 'error.txt').read_text()}"
    found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table(columns=["partition", "offset", "value"]).to_pylist()
    arrived = Counter((f"t-{row['partition']}", row["offset"], row["value"]) for row in found)
    written = Counter(
        (log, record.offset, record.value)
        for log, records in read_store(tmp_path / "store").items()
        for record in records
    )
    assert len(written) > 100
    assert list((written - arrived).items())[:5] == [], f"missing, seed={seed}"
    assert list((arrived - written).items())[:5] == [], f"too many, seed={seed}"
