"""A commit that nobody confirms: the writer gives up, and the next start finds out what became of it."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from tests.kill.harness import exit_code, finish_direct, start_direct, wait_until_stopped, wake
from tests.kill.records import problems_of, read_input

pytestmark = pytest.mark.kill


def test_job_when_the_commit_cannot_be_made_durable_then_gives_up_and_its_next_run_completes_the_log(
    context: ForkServerContext, folder: Path
) -> None:
    """It does not undo what may be visible; here the commit turns out not to have survived."""
    job = start_direct(context, folder, SPARKLOG_FAULT_POINT="commit.written:3", SPARKLOG_FAULT_SIGNAL="STOP")
    wait_until_stopped(job)
    ledger = folder / "store" / "ledger"
    committed = Ledger.open(ledger)
    (ledger / "_delta_log" / f"{committed.version:020}.json").unlink()

    wake(job)

    assert exit_code(job) == 1
    refusal = (folder / "error.txt").read_text()
    assert refusal.startswith("CommitStateUnknownError: ")
    assert refusal.endswith("query_id=job batch_id=1")
    assert finish_direct(context, folder) == 0
    assert problems_of(folder / "store", read_input(folder / "input")) == []
