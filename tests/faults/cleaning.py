"""A cleaning as a work that is interrupted: at each moment the log has the last record of each key, in order."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.opening.access import maintaining
from sparklog.sink.operations.clean_logs import clean_logs, pending_removals, plan_cleanings
from sparklog.sink.operations.retain_logs import RetentionRun, remove_deleted
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import StorageError
from tests.build.compacted_store import (
    BUDGET,
    LOG,
    NOW_MS,
    SETTINGS,
    expected_offsets,
    keyed_rows,
    offsets,
    write_keyed,
)
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import state_of
from tests.build.sink_store import in_process, open_store
from tests.faults.works import Work

__all__ = ["Clean"]

_COUNT = 120
_GROUPED = {"segment.bytes": 1500}
"""Some segments become one, and there are several such groups."""


class Clean(Work):
    """A cleaning of a store's logs."""

    @staticmethod
    def prepare(folder: Path) -> None:
        store = write_keyed(folder / "store", count=_COUNT)
        with closing(open_store(store, {LOG.topic: {**SETTINGS, **_GROUPED}}, topic=LOG.topic)):
            pass
        (folder / "active").write_text(str(state_of(store, LOG).active_base_offset))

    def arrange(self) -> None:
        """Nothing has to be ready."""

    def steps(self) -> Sequence[Callable[[], object]]:
        return [self._clean]

    def finish(self) -> list[str]:
        """Clean once more, and append."""
        self._clean()
        wrong = self.problems_of_promises(1)
        with closing(open_store(self._store, {LOG.topic: {**SETTINGS, **_GROUPED}}, topic=LOG.topic)) as writer:
            writer.append("q", 99, in_process(keyed_rows(_COUNT, _COUNT + 5)))
        if offsets(self._store) != expected_offsets(self._cleaned_below, _COUNT + 5):
            wrong.append("not what it is to be, with more behind it")
        verify(open_logs(self._store), lambda finding: wrong.append(finding.what))
        return wrong

    def problems_of_refused(self, done: int) -> list[str]:
        return self.problems_of_promises(done)

    def problems_of_promises(self, done: int) -> list[str]:
        found, due = offsets(self._store), expected_offsets(self._cleaned_below, _COUNT)
        if done and found != due:
            return ["not what it is to be"]
        wrong = [] if found == sorted(set(found)) else ["a record is there twice, or goes back"]
        return wrong if set(due) <= set(found) else [*wrong, "the last record of a key is lost"]

    @property
    def _store(self) -> Path:
        return self.folder / "store"

    @property
    def _cleaned_below(self) -> int:
        """Base of the active segment when the store was prepared."""
        return int((self.folder / "active").read_text())

    def _clean(self) -> None:
        clock = ManualClock(NOW_MS)
        with maintaining(self._store) as maintained:
            plans = plan_cleanings(Store.find(self._store), {}, clock)
            rows = list(clean_logs(maintained, plans, BUDGET, clock))
        failures = [row.reason for row in rows if row.outcome != "cleaned"]
        failures += remove_deleted(RetentionRun([], pending_removals(plans, clock)), clock).values()
        if failures:
            raise StorageError("; ".join(failures))
