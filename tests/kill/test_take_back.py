"""A bad load of a real Spark stream is taken back to the cut before it, killed on the way; the stream goes on above."""

from functools import partial
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.pipeline.brokers.truncate import ends_then, execute_truncation
from sparklog.pipeline.settings.stream_settings import load_settings
from sparklog.pipeline.streaming.job import run_stream
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.past.cuts import CutTable, cuts_path
from sparklog.sink.past.past_state import find_past
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.clock import SystemClock, wait_until
from sparklog.storage_core.operation_fault_points import TRUNCATE_FAULT_POINTS
from tests.build.cut_store import forget_past
from tests.build.sink_store import read_store
from tests.build.text_stream import write_text_stream
from tests.kill.directory_job import finish
from tests.sparklog_command import Sparklog

pytestmark = [pytest.mark.kill, pytest.mark.spark]

_EVERY_MS = 1_000
_STEPS = ("commit.written", "undo.deleted", "undo.cut:2", *TRUNCATE_FAULT_POINTS)


def _load(folder: Path, name: str, values: range) -> None:
    """Run the stream to its end over one more file."""
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / name).write_text("".join(f"{each:05}\n" for each in values))
    settings = write_text_stream(
        folder,
        {},
        store=str(folder / "store"),
        checkpoint=str(folder / "checkpoint"),
        source={"format": "text", "path": str(folder / "data")},
        cuts={"every": f"{_EVERY_MS}ms", "keep": "30m"},
        topics={"t": {"partitions": 3, "segment.bytes": 2000, "batch.size": 300}},
    )
    run_stream(load_settings(settings), lambda _line: None)


def _wait_for_cut(store: Path) -> int:
    """Wait until a cut of this state is due; return its moment."""
    cut_ms = (Ledger.open(store / "ledger").changed_ms // _EVERY_MS + 1) * _EVERY_MS
    assert wait_until(lambda: SystemClock().now_ms() >= cut_ms, 10.0, 0.05)
    return cut_ms


def _ends(store: Path) -> dict[str, int]:
    return {str(log): state.log_end_offset for log, state in Ledger.open(store / "ledger").states().items()}


def _take_back(store: Path, cut_ms: int) -> None:
    found = Store.find(store)
    past = find_past(found.ledger_path, AsOf(timestamp_ms=cut_ms))
    execute_truncation(store, lambda ledger: ends_then(found, ledger, past, None), SystemClock())


@pytest.mark.parametrize("step", _STEPS)
def test_stream_when_its_load_was_taken_back_then_goes_on_above_the_cut(
    spark: SparkSession, context: ForkServerContext, tmp_path: Path, sparklog: Sparklog, step: str
) -> None:
    """A consumer that has read to the cut gets each later offset once, with the later load; the bad one is gone."""
    store = tmp_path / "store"
    _load(tmp_path, "good.txt", range(300))
    cut, good, cut_ms = _ends(store), read_store(store), _wait_for_cut(store)
    _load(tmp_path, "bad.txt", range(90_000, 90_900))
    assert _ends(store) != cut
    assert cut_ms in CutTable(cuts_path(store)).times()
    forget_past(store)

    assert finish(context, partial(_take_back, cut_ms=cut_ms), store, SPARKLOG_FAULT_POINT=step) == -9
    assert sparklog("truncate", store, "--as-of", cut_ms, "--execute").code == 0

    assert _ends(store) == cut
    assert read_store(store) == good
    _load(tmp_path, "later.txt", range(300, 700))
    assert sparklog("verify", store).code == 0
    above = {name: log[len(good[name]) :] for name, log in read_store(store).items()}
    assert {name: log[: len(good[name])] for name, log in read_store(store).items()} == good
    for name, log in above.items():
        assert [each.offset for each in log] == list(range(cut[name], _ends(store)[name]))
    values = sorted(int(each.value or b"-1") for log in above.values() for each in log)
    assert values == list(range(300, 700))
