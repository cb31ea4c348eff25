"""What maintenance does to a store, as works that are interrupted: each log is as before then, or as after."""

import pickle
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path

from tests.build.ledger_rows import unfinished
from tests.faults.works import Work
from tests.plain.store_model import LOGS, NOW_MS, RETENTION_MS, Model, Operation, RunningStore

__all__ = ["OPERATIONS", "operation_work"]

OPERATIONS = {
    "truncate": Operation(kind="truncate", offset=43),
    "empty": Operation(kind="empty", offset=77),
    "delete-records": Operation(kind="delete-records", offset=41),
    "retain": Operation(kind="retain", now_ms=NOW_MS + RETENTION_MS // 2),
    "expire": Operation(kind="retain", now_ms=NOW_MS + 3 * RETENTION_MS),
    "move": Operation(kind="move", log_dir="other"),
    "delete-topic": Operation(kind="delete-topic", log=len(LOGS) - 1),
}
_MICRO_BATCHES = 3


def operation_work(name: str) -> type[Work]:
    """Return one operation as a work."""
    return type(name, (_Operation,), {"operation": OPERATIONS[name]})


class _Operation(Work):
    operation: Operation
    _store: RunningStore | None = None

    @classmethod
    def prepare(cls, folder: Path) -> None:
        """Write a store of three micro-batches, and what lists say of it before and behind the operation."""
        store, model = RunningStore(folder / "store"), Model()
        for number in range(_MICRO_BATCHES):
            model.apply(_append(number), store.root)
            store.apply(_append(number))
        store.close()
        before = deepcopy(model)
        model.apply(cls.operation, store.root)
        (folder / "models").write_bytes(pickle.dumps((before, model)))

    def arrange(self) -> None:
        self._running()

    def steps(self) -> Sequence[Callable[[], object]]:
        return [lambda: self._running().apply(self.operation)]

    def finish(self) -> list[str]:
        """Do it once more, and append."""
        store, (_, after), more = self._running(), self._models(), _append(_MICRO_BATCHES)
        store.close()
        after.apply(more, store.root)
        for operation in (self.operation, more, Operation(kind="close")):
            store.apply(operation)
        return after.problems(store.root)

    def problems_of_refused(self, done: int) -> list[str]:
        if unfinished(self.folder / "store"):  # the next opening finishes it
            return self.problems_of_promises(done)
        return self._differences(done)

    def problems_of_promises(self, done: int) -> list[str]:
        store = RunningStore(self.folder / "store")
        store.open()
        store.close()
        return self._differences(done)

    def _running(self) -> RunningStore:
        self._store = self._store or RunningStore(self.folder / "store")
        return self._store

    def _differences(self, done: int) -> list[str]:
        """Return how each log differs from what it was before, or if that was acknowledged from what it is to be."""
        before, after = self._models()
        root = self.folder / "store"
        wrong: list[str] = []
        for log in LOGS:
            found = [list(model.problems_of(root, log)) for model in ((after,) if done else (before, after))]
            fewest: list[str] = min(found, key=len)
            wrong += fewest
        return wrong

    def _models(self) -> tuple[Model, Model]:
        before, after = pickle.loads((self.folder / "models").read_bytes())
        return before, after


def _append(number: int) -> Operation:
    choose = random.Random(number)
    records = tuple(
        (choose.randrange(len(LOGS)), NOW_MS - choose.randrange(RETENTION_MS), choose.randint(5, 90)) for _ in range(75)
    )
    return Operation(kind="append", number=number, records=records)
