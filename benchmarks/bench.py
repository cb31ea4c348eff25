"""What every group of benchmarks shares: the length of the run, a scratch folder, a Spark session, the results."""

import shutil
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.rounds import Result
from benchmarks.rows import write_rows
from benchmarks.session import start_session
from benchmarks.table import Table, Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FILES", "Bench", "noise_note"]

FILES = 8
"""Input files, and so splits: a multiple of the slots, none of which then waits for the others' last split."""


class Bench:
    """One run.

    Attributes:
        quick: whether this is only to see that everything works: few rounds over little data.
        folder: everything is written below it.
        tables, verdicts: results so far.
    """

    def __init__(self, folder: Path, quick: bool) -> None:
        self.folder = folder
        self.quick = quick
        self.tables: list[Table] = []
        self.verdicts: list[Verdict] = []
        self._spark: SparkSession | None = None

    @property
    def spark(self) -> "SparkSession":
        """The session of the run; started when first asked for."""
        if self._spark is None:
            self._spark = start_session()
        return self._spark

    def pick(self, full: int, quick: int) -> int:
        """Return the number for this length of run."""
        return quick if self.quick else full

    @property
    def million(self) -> int:
        """How many rows pass for a million."""
        return self.pick(1_000_000, 50_000)

    def rows_folder(self, files: int, rows: int) -> Path:
        """Return a folder with so many rows, as Parquet files of equal size; written when first asked for."""
        folder = self.folder / "rows" / f"{rows}-in-{files}"
        return folder if folder.exists() else write_rows(folder, files, rows // files)

    def frame(self, folder: Path) -> "DataFrame":
        """Return a frame of `key`, `value` and `timestamp`."""
        return self.spark.read.parquet(str(folder))

    def fresh(self, name: str) -> Path:
        """Return the path of a folder that does not exist."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def add(self, table: Table) -> None:
        """Keep a table, and show it at once."""
        self.tables.append(table)
        print(f"\n{table.markdown()}", flush=True)

    def judge(self, verdict: Verdict) -> None:
        """Keep a verdict."""
        self.verdicts.append(verdict)

    def stop(self) -> None:
        """Stop the session."""
        if self._spark is not None:
            self._spark.stop()


def noise_note(results: Iterable[Result]) -> str:
    """Return how busy other processes kept the machine during the timed runs."""
    others = [each for result in results for each in result.other_cores]
    return f"other processes kept {statistics.median(others):.1f} cores busy meanwhile (at most {max(others):.1f})"
