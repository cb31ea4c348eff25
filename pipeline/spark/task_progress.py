"""A progress bar for the tasks of a Spark job, on a terminal."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sparklog.sink.spark.errors import SPARK_ERRORS

__all__ = ["task_progress"]

_POLL_S = 0.5


@contextlib.contextmanager
def task_progress(spark: SparkSession, what: str, count: int) -> Iterator[None]:
    """Show the number of finished tasks of the running jobs, if standard error is a terminal.

    Args:
        what: text before the bar.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    is_over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def completed() -> int:
        stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
        return max((each.numCompletedTasks for each in stages if each and each.numTasks == count), default=0)

    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(what, total=count)

        def follow() -> None:
            while not is_over.wait(_POLL_S):
                with contextlib.suppress(*SPARK_ERRORS):
                    progress.update(bar, completed=completed())

        thread = threading.Thread(target=follow, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
