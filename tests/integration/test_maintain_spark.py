"""Maintenance on Spark: what its MERGEs do, and a run from plan to control tables; each in a JVM that has Delta."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
import yaml

from sparklog.pipeline.control.read_tables import check_table, read_rows, table_path
from sparklog.pipeline.control.schemas import CLEANER_CHECKPOINTS, LEASES, RUNS
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint
from sparklog.storage_core.errors import CorruptFileError
from tests.build.compacted_store import LOG, SETTINGS, expected_offsets, offsets, write_keyed
from tests.build.control_tables import flip_bit, set_version
from tests.build.ledger_rows import change_row
from tests.build.retained_store import names, state_of, write_aged
from tests.delta_jars import jars_fixture
from tests.programs.maintained_spark import SPARK
from tests.programs.own_process import ROOT, run_module

pytestmark = pytest.mark.spark

jars = jars_fixture("MAINTENANCE ON SPARK WAS NOT TESTED")


def test_control_tables_when_written_by_spark_then_as_the_rules_say(tmp_path: Path) -> None:
    """Leases go by owner, machine and term; rows of a key are replaced, nulls too; tidying takes old runs only."""
    store = tmp_path / "a store"
    store.mkdir()
    done = run_module("tests.programs.maintained_spark", store)
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout)

    assert seen["epochs"] == {
        "first": {"t-0": 1, "t-1": 1},
        "second": {"t-2": 1},
        "again": {"t-0": 2},
        "late": {"t-2": 2},
    }
    assert (seen["refused"], seen["given_back"]) == (["t-1"], 0)
    assert seen["checkpoints"] == [[0, 0], [1, 1], [2, 99]]
    assert seen["runs"] == [[None, "done"]]
    assert (len(read_rows(store, CLEANER_CHECKPOINTS)), len(read_rows(store, LEASES))) == (3, 3)
    assert [row["run_id"] for row in read_rows(store, RUNS)] == ["later"]
    assert seen["owned"] == seen["owned_epochs"] > 0
    assert seen["lost"] > 0, "nobody lost a race: the test shows nothing"


def test_maintain_when_executed_then_cleaned_told_and_not_done_again(tmp_path: Path) -> None:
    """Run and works are rows, the next plan begins behind it, and brokers find where; a rebuild forgets that.

    A clean run has a clean stderr.

    Truncations before it are forgotten with its checkpoints. A bit that flips in what Spark wrote is found without it.
    """
    store = write_keyed(tmp_path / "store")
    end = state_of(store, LOG).active_base_offset
    change_row(store, LOG, cleaner_limit_offset=1)
    done = _maintain(tmp_path, "--execute", "--json")
    assert (done.returncode, _undocumented(done.stderr)) == (0, [])
    (result,) = json.loads(done.stdout.splitlines()[-1])["results"]

    assert (result["outcome"], result["first_dirty_offset"]) == ("done", end)
    assert offsets(store) == expected_offsets(end, state_of(store, LOG).log_end_offset)
    (known,) = read_rows(store, CLEANER_CHECKPOINTS)
    assert (known["first_dirty_offset"], known["failure_count"]) == (end, 0)
    rows = {row["topic"]: row for row in read_rows(store, RUNS)}
    assert rows[None]["outcome"] == rows["keyed"]["outcome"] == "done"
    assert (rows["keyed"]["lease_epoch"], rows["keyed"]["bytes_after"]) == (1, result["bytes_after"])
    assert [row["expires_ms"] for row in read_rows(store, LEASES)] == [0]
    cleaned = parse_offset_checkpoint((store / "logs" / "cleaner-offset-checkpoint").read_bytes())
    assert cleaned == {LOG: end}
    assert state_of(store, LOG).cleaner_limit_offset == -1

    _refuses_flipped_bits(store)
    set_version(store, CLEANER_CHECKPOINTS, 9)
    for file in table_path(store, RUNS).rglob("*0000-*.parquet"):
        flip_bit(file, 1000)
    (table_path(store, LEASES) / "_delta_log" / f"{0:020}.json").write_text("{")
    assert _maintain(tmp_path, "--execute").returncode == 1
    rebuilt = _maintain(tmp_path, "--rebuild-control", "--execute")
    assert rebuilt.returncode == 0, rebuilt.stderr[-4000:]
    assert {row["first_dirty_offset"] for row in read_rows(store, CLEANER_CHECKPOINTS)} == {0}
    assert read_rows(store, RUNS) == []
    assert {row["epoch"] > known["updated_ms"] for row in read_rows(store, LEASES)} == {True}
    assert len([*table_path(store, RUNS).parent.glob("*.replaced-*")]) == 3


def test_maintain_when_a_run_ends_by_an_exception_then_its_row_and_its_figures_say_so(tmp_path: Path) -> None:
    """Whoever looks at the table or at the alerts sees it; nobody was told that anything is clean."""
    store, metrics = write_keyed(tmp_path / "store"), tmp_path / "sparklog.prom"
    (store / "control" / "maintenance.stop").mkdir()
    failed = _maintain(tmp_path, "--execute", "--metrics-file", str(metrics))

    assert failed.returncode == 1
    assert "maintenance.stop" in failed.stderr
    rows = {row["topic"]: row for row in read_rows(store, RUNS)}
    assert rows[None]["outcome"] == rows["keyed"]["outcome"] == "failed"
    assert rows[None]["error"].startswith("StorageError: ")
    assert read_rows(store, CLEANER_CHECKPOINTS) == []
    assert "\nsparklog_maintenance_success 0\n" in metrics.read_text()


def test_maintain_when_asked_to_end_while_files_wait_then_it_has_done_its_run(tmp_path: Path) -> None:
    """Its tasks are done and recorded: exit code 0, and no alert. The next run removes the files."""
    store, metrics = tmp_path / "store", tmp_path / "sparklog.prom"
    write_aged(store, {"retention.bytes": 1200, "file.delete.delay.ms": 600_000})
    command = [sys.executable, "-m", "sparklog", *_arguments(tmp_path, "--execute", "--metrics-file", str(metrics))]
    with subprocess.Popen(command, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("waiting until "))
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)

    assert process.returncode == 0
    assert re.search(r"^done: 1 tasks, ", out, re.MULTILINE)
    assert "\nsparklog_maintenance_success 1\n" in metrics.read_text()
    assert names(store, ".deleted") != []


def _refuses_flipped_bits(store: Path) -> None:
    """Wherever it is, in data or log: the sums that Spark leaves are those that are looked for."""
    path = table_path(store, RUNS)
    files = [*path.glob("*.parquet"), *(path / "_delta_log").glob("*.json")]
    assert len(files) >= 3
    for file in files:
        for position in range(0, file.stat().st_size, 101):
            flip_bit(file, position)
            with pytest.raises(CorruptFileError, match=file.name):
                check_table(store, RUNS)
            flip_bit(file, position)
    check_table(store, RUNS)


def _undocumented(stderr: str) -> list[str]:
    """Return what a clean run has no reason to print: but for what is compiled or waited for, and Java's own line."""
    documented = re.compile(
        r"INFO compiling kernels of this command, once after"
        r"|waiting until \S+ to remove "
        r"|WARNING: Using incubator modules: jdk\.incubator\.vector$"
    )
    return [line for line in stderr.splitlines() if not documented.match(line)]


def _maintain(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_module("sparklog", *_arguments(folder, *arguments))


def _arguments(folder: Path, *arguments: str) -> list[str]:
    """Return the command's arguments for the store `store` of a folder; writes the settings file there."""
    settings = {
        "store": str(folder / "store"),
        "checkpoint": str(folder / "checkpoint"),
        "source": {"format": "rate"},
        "records": {"topic": "'keyed'", "key": "value", "value": "value"},
        "topics": {"keyed": dict(SETTINGS)},
        "spark": SPARK,
    }
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    return ["maintain", "--config", str(folder / "settings.yaml"), *arguments]
