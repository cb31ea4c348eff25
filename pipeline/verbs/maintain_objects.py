"""The verb `maintain` for a store of objects: in this process, by its threads, without Spark and control tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparklog.pipeline.report import DONE, FAILED, show, to_json
from sparklog.pipeline.settings.maintenance_settings import MaintenanceSettings
from sparklog.pipeline.streaming.stop_request import StopRequest
from sparklog.pipeline.terminal import say, say_at_once
from sparklog.sink.objects.maintain_objects import MaintainedObjects, ObjectTask, maintain_objects, plan_objects
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.objects.open_storage import StoragePlace

__all__ = ["run_objects"]


@dataclass(frozen=True, slots=True)
class _Report:
    """Tasks as JSON has them."""

    tasks: Sequence[ObjectTask]
    is_executed: bool

    def as_dict(self) -> dict[str, Any]:
        """Return counts of tasks by kind."""
        kinds = {kind: sum(each.kind == kind for each in self.tasks) for kind in ("retain", "clean", "merge", "remove")}
        return {"executed": self.is_executed, **kinds, "failed": sum(each.error is not None for each in self.tasks)}

    def lines(self) -> Sequence[str]:
        """Return nothing: tasks are shown at once."""
        return ()

    def verdict(self) -> str:
        """Return the counts, for people."""
        counts = self.as_dict()
        found = ", ".join(f"{counts[kind]:,} {kind}" for kind in ("retain", "clean", "merge", "remove") if counts[kind])
        failed = f"; {counts['failed']:,} failed" if counts["failed"] else ""
        what = f"{found or 'nothing is due'}{failed}"
        return f"done: {what}" if self.is_executed else f"planned: {what}" + ("; --execute does it" if found else "")


def run_objects(
    place: StoragePlace, settings: MaintenanceSettings, given: Mapping[str, object], *, execute: bool, as_json: bool
) -> int:
    """Carry the verb out; return the exit code.

    Args:
        given: options that such a store does not have, by their names; those with a value are refused.

    Raises:
        InvalidConfigError: such an option is given.
        LogStorageError: the ledger can't be read or written.
    """
    useless = sorted(name for name, value in given.items() if value)
    if useless:
        names = ", ".join(f"--{name}".replace("_", "-") for name in useless)
        raise InvalidConfigError(f"{names}: not for a store of objects: address={place.address}")
    store = MaintainedObjects(place, SystemClock(), settings.memory_bytes)
    tasks: list[ObjectTask] = []
    if not execute:
        tasks = plan_objects(store)
        for task in tasks:
            _say(task, as_json=as_json)
    else:
        with StopRequest(say_at_once, "logs") as stop:
            stop.install()
            for task in maintain_objects(store, lambda: stop.requested):
                tasks.append(task)
                _say(task, as_json=as_json)
    report = _Report(tasks, execute)
    show(report, as_json=as_json)
    return FAILED if any(each.error is not None for each in tasks) else DONE


def _say(task: ObjectTask, *, as_json: bool) -> None:
    if as_json:
        say(to_json(asdict(task) | {"log": None if task.log is None else str(task.log)}))
        return
    where = "" if task.log is None else f" {task.log}"
    say(f"{task.kind}{where}: {task.what if task.error is None else f'failed: {task.error}'}")
