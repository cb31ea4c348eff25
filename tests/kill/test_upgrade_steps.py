"""An upgrade that is killed at any step leaves the ledger of before, or the new one."""

from contextlib import closing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.operations.upgrade_store import upgrade_store
from sparklog.storage_core.errors import UnsupportedFormatError
from sparklog.storage_core.operation_fault_points import UPGRADE_FAULT_POINTS
from tests.build.older_store import make_older
from tests.build.sink_store import in_process, numbers, open_events, stored_numbers
from tests.kill.directory_job import finish

pytestmark = pytest.mark.kill

_STEPS = ["checkpoint.written", "checkpoint.replaced", "checkpoint.written:2", "checkpoint.replaced:2"]


def _upgrade(store: Path) -> None:
    upgrade_store(store)


@pytest.mark.parametrize("layout", [2, 3])
@pytest.mark.parametrize("step", [*UPGRADE_FAULT_POINTS, *_STEPS])
def test_upgrade_when_killed_at_a_step_then_the_store_is_of_one_layout_and_a_second_upgrade_completes_it(
    context: ForkServerContext, memory_path: Path, step: str, layout: int
) -> None:
    """Until it is complete the store is refused; no record and no micro-batch is lost."""
    store = memory_path / "store"
    with closing(open_events(store)) as writer:
        writer.append("first", 7, in_process(numbers(0, 100)))
    make_older(store, {"first": 7, "second": 3}, layout)
    assert finish(context, _upgrade, store, SPARKLOG_FAULT_POINT=step) == -9

    if step not in ("upgrade.finished", "checkpoint.replaced:2"):
        with pytest.raises(UnsupportedFormatError, match="sparklog upgrade"):
            open_logs(store)
        upgrade_store(store)

    assert stored_numbers(store) == list(range(100))
    ledger = Ledger.open(store / "ledger")
    assert (ledger.transaction_version("first"), ledger.transaction_version("second")) == (7, 3)
    with closing(open_events(store)) as writer:
        writer.append("first", 8, in_process(numbers(100, 110)))
    assert stored_numbers(store) == list(range(110))
