"""`verify --spark` says what the threads of one machine say."""

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.pipeline.checks import on_spark
from sparklog.pipeline.verbs import verify as verify_verb
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from tests.build.damaged_store import change, segments, write_store
from tests.build.keyed_objects import append_keyed, forget
from tests.build.written_log import Batch, write_log
from tests.sparklog_command import Ran, Sparklog

pytestmark = pytest.mark.spark


def _flip(position: int, data: bytearray) -> None:
    data[position] ^= 1


def _both(sparklog: Sparklog, *arguments: object) -> tuple[Ran, Ran]:
    return sparklog("verify", *arguments, "--json"), sparklog("verify", *arguments, "--json", "--spark")


def test_verify_when_tasks_check_a_damaged_store_then_as_threads_do(
    sparklog: Sparklog, spark: SparkSession, tmp_path: Path
) -> None:
    """Damage in a log, in a root, and a directory that no row names."""
    store = write_store(tmp_path / "store")
    change(segments(store)[1], partial(_flip, 70))
    (store / "logs" / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nt 0 91\n")
    (store / "logs" / "u-0").mkdir()

    here, there = _both(sparklog, store, "--deep")

    assert (there.code, there.out) == (here.code, here.out)
    assert [json.loads(line)["rule"] for line in here.out.splitlines()[:-1]] == [
        "crc",
        "offset-checkpoint",
        "directory",
    ]


@pytest.mark.parametrize("count", [40, 1])
def test_verify_when_logs_are_more_than_tasks_then_each_is_checked_once_and_reported_in_order(
    sparklog: Sparklog, spark: SparkSession, tmp_path: Path, count: int
) -> None:
    for number in range(count):
        log = write_log(tmp_path / f"t-{number}", [[Batch([s, b]) for b in range(2)] for s in range(2)])
        path, start, *_ = log.batches[1]
        change(path, partial(_flip, start + 70))

    here, there = _both(sparklog, tmp_path)

    assert (there.code, there.out) == (here.code, here.out)
    assert len(here.out.splitlines()) == count + 1


def test_verify_when_tasks_check_a_store_of_objects_then_as_threads_do(
    sparklog: Sparklog, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two logs in tasks of their own, one of them without its objects, and keys to forget."""
    monkeypatch.setattr(verify_verb, "_TASK_BYTES", 1)
    place = StoragePlace(parse_address(f"file://{tmp_path}/store"))
    append_keyed(place, 0, 3)
    forget(place, "k2")
    extents = ObjectLedger.open(place).extents()
    place.open().remove([extents[max(extents)][1].object])

    here, there = _both(sparklog, place.address)

    assert (there.code, there.out) == (here.code, here.out)
    assert {json.loads(line)["rule"] for line in here.out.splitlines()[:-1]} >= {"object", "forgotten-keys"}


def test_verify_when_a_task_fails_then_its_error_is_said(
    sparklog: Sparklog, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that the executors do not see, as on a cluster without a shared filesystem."""
    store = write_store(tmp_path / "store")

    def moved(*arguments: object, **options: object) -> object:
        store.rename(tmp_path / "elsewhere")
        return run(*arguments, **options)  # type: ignore[arg-type]

    run = on_spark._run
    monkeypatch.setattr(on_spark, "_run", moved)

    ran = sparklog("verify", store, "--spark")

    assert ran.code != 0
    assert "the check failed" in ran.err
    assert str(store) in ran.err
    assert "Traceback" not in ran.err


def test_verify_when_threads_are_counted_for_spark_then_refused(sparklog: Sparklog, tmp_path: Path) -> None:
    ran = sparklog("verify", write_store(tmp_path / "store"), "--spark", "--jobs", "2")

    assert (ran.code, "--jobs counts threads of this machine" in ran.err) == (2, True)
