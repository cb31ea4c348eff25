"""The verb `verify`: checks every log, and in a store also against the ledger, on all cores or by Spark."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sparklog.pipeline.checks.verify_logs import VerifyResult, verify
from sparklog.pipeline.checks.verify_objects import verify_objects
from sparklog.pipeline.places.forgotten_findings import forgotten_findings
from sparklog.pipeline.places.store_view import StoreView, open_logs
from sparklog.pipeline.places.stored_logs import Place
from sparklog.pipeline.report import DONE, FAILED, show, to_json
from sparklog.pipeline.terminal import say
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.log.files.names import LOG
from sparklog.storage_core.objects.open_storage import StoragePlace

__all__ = ["run"]

_TASK_BYTES = 256 << 20
"""Of a store of objects; a task copies its logs, at least one, into the temporary folder of its executor."""


def run(store: Place, deep: bool, jobs: int | None, keep_in: Path | None, spark: bool, as_json: bool) -> int:
    """Carry the verb out; return the exit code."""
    if spark and jobs is not None:
        raise InvalidConfigError(
            "--jobs counts threads of this machine; with --spark the cores are those of its master"
        )

    def report(each: Finding) -> None:
        say(to_json(each.as_dict()) if as_json else f"{each} -> {each.remedy}")

    check = _check_on_spark if spark else partial(_check_here, jobs=jobs)
    result = check(store, report, keep_in, deep=deep)
    show(result, as_json=as_json)
    return DONE if result.is_sound else FAILED


def _check_here(
    store: Place, report: Callable[[Finding], None], keep_in: Path | None, *, deep: bool, jobs: int | None
) -> VerifyResult:
    if isinstance(store, StoragePlace):
        return verify_objects(store, report, deep=deep, jobs=jobs)
    view = open_logs(store)
    with _progress_bar(view) as progress:
        result = verify(view, report, deep=deep, jobs=jobs, keep_in=keep_in, progress=progress)
    result.add(forgotten_findings(view), report)
    return result


def _check_on_spark(
    store: Place, report: Callable[[Finding], None], keep_in: Path | None, *, deep: bool
) -> VerifyResult:
    from sparklog.pipeline.checks.on_spark import logs_on_spark, parts_on_spark
    from sparklog.pipeline.spark.session import running_session

    with running_session({"spark.app.name": "sparklog verify"}, with_jars=False) as spark:
        if isinstance(store, StoragePlace):
            parts_of = partial(parts_on_spark, spark, deep=deep)
            return verify_objects(store, report, parts_of=parts_of, part_bytes=_TASK_BYTES)
        view = open_logs(store)
        result = verify(view, report, keep_in=keep_in, reports_of=partial(logs_on_spark, spark, keep_in, deep=deep))
        result.add(forgotten_findings(view), report)
        return result


@contextlib.contextmanager
def _progress_bar(view: StoreView) -> Iterator[Callable[[int], None]]:
    """Show on a terminal's standard error how many bytes are checked; yields the function that adds to them."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _bytes: None
        return
    columns = (BarColumn(None), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=sum(_log_bytes(each.directory) for each in view.logs))
        yield lambda count: bar.update(task, advance=count)


def _log_bytes(directory: Path) -> int:
    try:
        return sum(path.stat().st_size for path in directory.glob(f"*{LOG}"))
    except OSError:
        return 0
