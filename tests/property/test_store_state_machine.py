"""A store and plain lists of records stay the same, whatever is done to it in whatever order, crashes included."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.faults.system_calls import Call, watched
from tests.plain.store_model import LOGS, NOW_MS, RETENTION_MS, Model, Operation, RunningStore

_EXAMPLES, _STEPS = (60, 30) if os.environ.get("SPARKLOG_SOAK") else (10, 20)
_LOG = st.integers(0, 1)
_RECORDS = st.lists(
    st.tuples(
        st.integers(0, len(LOGS) - 1),
        st.integers(-3 * RETENTION_MS, RETENTION_MS // 10).map(lambda age: NOW_MS + age),
        st.integers(5, 90),
    ),
    max_size=40,
).map(tuple)


class _Copier:
    """Copies a store when its ledger is about to be written."""

    def __init__(self, store: Path, image: Path) -> None:
        self._store, self._image = store, image

    def before(self, call: Call) -> int:
        if call.kind == "ledger" and not self._image.exists():
            shutil.copytree(self._store, self._image)
        return call.size_bytes

    def after(self, call: Call) -> None:
        pass


class StoreMachine(RuleBasedStateMachine):
    """Operations on a store; each leaves what the lists say."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self._folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
        self._images = 0
        self._number = 0

    @initialize()
    def make(self) -> None:
        self.store, self.model = RunningStore(self._folder / "store"), Model()
        self.store.open()

    @rule(records=_RECORDS)
    def append(self, records: tuple[tuple[int, int, int], ...]) -> None:
        self._apply(Operation(kind="append", number=self._number, records=records))
        self._number += 1

    @rule(log=_LOG, back=st.integers(0, 60))
    def truncate(self, log: int, back: int) -> None:
        self._apply(Operation(kind="truncate", log=log, offset=max(self.model.logs[LOGS[log]].end - back, 0)))

    @rule(log=_LOG, by=st.integers(-30, 30))
    def empty_and_start_at(self, log: int, by: int) -> None:
        self._apply(Operation(kind="empty", log=log, offset=max(self.model.logs[LOGS[log]].end + by, 0)))

    @rule(log=_LOG, share=st.floats(0, 1), beside_sink=st.booleans())
    def delete_records(self, log: int, share: float, beside_sink: bool) -> None:
        known = self.model.logs[LOGS[log]]
        offset = known.start + round((known.end - known.start) * share)
        self._apply(Operation(kind="delete-records", log=log, offset=offset, beside_sink=beside_sink))

    @rule(later_ms=st.integers(0, 3 * RETENTION_MS), beside_sink=st.booleans())
    def retain(self, later_ms: int, beside_sink: bool) -> None:
        self._apply(Operation(kind="retain", now_ms=NOW_MS + later_ms, beside_sink=beside_sink))

    @rule(log=_LOG, log_dir=st.sampled_from(["logs", "more", "other"]))
    def move(self, log: int, log_dir: str) -> None:
        self._apply(Operation(kind="move", log=log, log_dir=log_dir))

    @rule()
    def delete_topic(self) -> None:
        self._apply(Operation(kind="delete-topic", log=2))

    @rule()
    def close(self) -> None:
        self._apply(Operation(kind="close"))

    @precondition(lambda self: not self.store.has_sink)
    @rule()
    def load(self) -> None:
        self.store.open()

    @rule(records=_RECORDS)
    def crash(self, records: tuple[tuple[int, int, int], ...]) -> None:
        """Go on with a copy that was taken right before a commit, as if its writer had died there."""
        self._images += 1
        image = self._folder / f"image-{self._images}"
        crashing = Operation(kind="append", number=self._number, records=records)
        with watched(self.store.root, _Copier(self.store.root, image)):
            self.store.apply(crashing)
        self._number += 1
        self.store.close()
        shutil.rmtree(self.store.root)
        self.store = RunningStore(image)
        self.store.open()

    @invariant()
    def is_like_the_model(self) -> None:
        if hasattr(self, "store"):
            assert self.model.problems(self.store.root) == []

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self._folder)

    def _apply(self, operation: Operation) -> None:
        self.model.apply(operation, self.store.root)
        self.store.apply(operation)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=_EXAMPLES,
    stateful_step_count=_STEPS,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking takes longer than reading twenty steps
)
