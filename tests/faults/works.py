"""Pieces of work that faults and power cuts interrupt, and what must be true once they were started again.

A work is prepared once, and its folder copied for each fault. `arrange` comes before the fault, each of `steps` is
acknowledged once it has returned, and `finish` goes on as a user would: with the same writer, or with a new one.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.errors import InvalidConfigError
from tests.build.damaged_store import DAMAGES, problems_of_repaired, segments, write_store
from tests.faults.fault_plan import Fault, FaultPlan
from tests.faults.job import MICRO_BATCHES, append, batch_values, open_job, problems, visible_values, write_job
from tests.faults.system_calls import watched

__all__ = ["AfterCrash", "Append", "Close", "NewStore", "Repair", "Stream", "Work"]


class Work(ABC):
    """One piece of work in one folder.

    Attributes:
        folder: where it works; a copy of the prepared one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    @abstractmethod
    def prepare(folder: Path) -> None:
        """Write what the work starts from."""

    @abstractmethod
    def arrange(self) -> None:
        """Get ready; nothing fails yet."""

    @abstractmethod
    def steps(self) -> Sequence[Callable[[], object]]:
        """Return what is done, in order."""

    @abstractmethod
    def finish(self) -> list[str]:
        """Go on to the end on a disk that works, whatever happened before; return what is wrong then."""

    def problems_of_refused(self, done: int) -> list[str]:
        """Return what is wrong after a step was refused, `done` steps were acknowledged, and nobody went on yet."""
        del done
        return []

    def problems_of_promises(self, done: int) -> list[str]:
        """Return which of `done` acknowledged steps are lost after a power cut, having started again."""
        del done
        return []


class _Job(Work):
    """Work of the job that appends; `_first` micro-batches are committed before."""

    _first = 1
    writer: StoreWriter | None = None

    @classmethod
    def prepare(cls, folder: Path) -> None:
        write_job(folder)
        with contextlib.closing(open_job(folder)) as writer:
            for number in range(cls._first):
                append(writer, folder, number)

    def arrange(self) -> None:
        self.writer = open_job(self.folder)

    def finish(self) -> list[str]:
        wrong = []
        for number in range(MICRO_BATCHES):
            try:
                is_replayed = self.append(number)
                if number < self._first and not is_replayed:
                    wrong.append(f"micro-batch {number} was lost")
            except InvalidConfigError as error:
                if "gave up after an error" not in str(error):
                    raise
                self.close()
                self.append(number)
        self.close()
        return [*wrong, *problems(self.folder)]

    def problems_of_refused(self, done: int) -> list[str]:
        return [] if visible_values(self.folder) == batch_values(self.folder, self._first + done) else ["not as before"]

    def problems_of_promises(self, done: int) -> list[str]:
        self.writer = open_job(self.folder)
        found = visible_values(self.folder)
        known = [count for count in range(MICRO_BATCHES + 1) if batch_values(self.folder, count) == found]
        if not known:
            return ["part of a micro-batch is visible"]
        return [] if known[-1] >= self._promised(done) else [f"micro-batch {known[-1]} is lost"]

    def append(self, number: int) -> bool:
        """Append a micro-batch; return whether it was committed before."""
        self.writer = self.writer or open_job(self.folder)
        return append(self.writer, self.folder, number)

    def close(self) -> None:
        if self.writer is not None:
            writer, self.writer = self.writer, None
            writer.close()

    def _promised(self, done: int) -> int:
        return self._first + done


class Append(_Job):
    """A micro-batch by an open writer."""

    def steps(self) -> Sequence[Callable[[], object]]:
        return [lambda: self.append(1)]


class Close(_Job):
    """The end of a writer that has appended."""

    _first = 2

    def arrange(self) -> None:
        super().arrange()
        self.append(2)

    def steps(self) -> Sequence[Callable[[], object]]:
        return [self.close]

    def problems_of_refused(self, done: int) -> list[str]:
        return super().problems_of_refused(done + 1)

    def _promised(self, done: int) -> int:
        del done
        return MICRO_BATCHES


class NewStore(_Job):
    """A store that is made."""

    _first = 0

    @classmethod
    def prepare(cls, folder: Path) -> None:
        write_job(folder)

    def arrange(self) -> None:
        pass

    def steps(self) -> Sequence[Callable[[], object]]:
        return [super().arrange]

    def problems_of_refused(self, done: int) -> list[str]:
        del done
        return []

    def _promised(self, done: int) -> int:
        del done
        return 0


class AfterCrash(_Job):
    """A store that is opened after a writer died right before its commit."""

    @classmethod
    def prepare(cls, folder: Path) -> None:
        super().prepare(folder)
        work = cls(folder)
        work.writer = open_job(folder)
        with watched(folder / "store", FaultPlan(Fault("ledger", 1, lasts=True))), contextlib.suppress(Exception):
            work.append(1)  # nor can it be undone any more

    def arrange(self) -> None:
        pass

    def steps(self) -> Sequence[Callable[[], object]]:
        return [super().arrange]

    def _promised(self, done: int) -> int:
        del done
        return self._first


class Stream(_Job):
    """A store from its beginning to an orderly end."""

    _first = 0

    @classmethod
    def prepare(cls, folder: Path) -> None:
        write_job(folder)

    def arrange(self) -> None:
        pass

    def steps(self) -> Sequence[Callable[[], object]]:
        return [*(lambda number=number: self.append(number) for number in range(MICRO_BATCHES)), self.close]

    def _promised(self, done: int) -> int:
        return min(done, MICRO_BATCHES)


class Repair(Work):
    """The repair of a store with several damages at once."""

    @staticmethod
    def prepare(folder: Path) -> None:
        store = write_store(folder / "store")
        for name in ("payload", "active segment's payload", "epochs changed", "leftover", "checkpoint"):
            DAMAGES[name](store)
        segments(store)[0].with_suffix(".index").unlink()

    def arrange(self) -> None:
        pass

    def steps(self) -> Sequence[Callable[[], object]]:
        return [self._repair]

    def finish(self) -> list[str]:
        self._repair()
        return problems_of_repaired(self.folder / "store")

    def _repair(self) -> None:
        execute_repair(self.folder / "store", RepairOptions(jobs=1), SystemClock(), lambda _: None)
