"""A store as a crash leaves it right before the ledger's commit: the next start makes it what it was before."""

import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store_writer import StoreWriter
from sparklog.storage_core.inspect.verify.findings import ExpectedLog
from tests.build.sink_store import contents, in_process, open_store, read_store, rows
from tests.build.verified_logs import findings_of

_TOPIC = {
    "partitions": 2,
    "segment.bytes": 900,
    "segment.ms": 400,
    "batch.size": 250,
    "index.interval.bytes": 200,
}
_ROW = st.tuples(st.integers(0, 1), st.integers(0, 120), st.integers(-1, 1000))
_MICRO_BATCHES = st.lists(st.tuples(st.lists(_ROW, max_size=25), st.booleans()), min_size=1, max_size=6)


def _open(store: Path, preserved: bool) -> StoreWriter:
    return open_store(store, {"t": _TOPIC}, topic="t", offsets="preserved" if preserved else "assigned")


def _logs(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(store / "logs").items() if name.startswith("t-")}


def _findings(store: Path, has_gaps: bool) -> list[str]:
    root = Store.find(store)
    logs = []
    for state in Ledger.open(root.ledger_path).states().values():
        expected = ExpectedLog(
            log_start_offset=state.log_start_offset,
            log_end_offset=state.log_end_offset,
            active_base_offset=state.active_base_offset,
            active_size_bytes=state.active_size_bytes,
            topic_id=state.topic_id,
            leader_epoch=state.leader_epoch,
            has_gaps=has_gaps,
        )
        logs.append((root.log_path(state), expected))
    return [str(each) for each in findings_of(logs)]


def _crash_before_commit(store: Path, image: Path) -> None:
    """Copy a store whose writer is alive, as if its newest commit had not come about."""
    shutil.copytree(store, image)
    newest = max((image / "ledger" / "_delta_log").glob("*.json"))
    newest.unlink()


def _assert_cut_back(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """The roll of an uncommitted micro-batch may have closed the time index of a segment that is active again."""
    for name in {*before, *after}:
        old, new = before.get(name, b""), after.get(name, b"")
        if name.endswith(".timeindex"):
            assert new.startswith(old), name
            assert len(new) - len(old) in (0, 12), name
        else:
            assert new == old, name


@settings(max_examples=30, deadline=None)
@given(micro_batches=_MICRO_BATCHES, preserved=st.booleans())
def test_open_after_a_crash_restores_the_committed_state(
    micro_batches: list[tuple[list[tuple[int, int, int]], bool]], preserved: bool
) -> None:
    """Whatever was rolled and indexed; the same micro-batch then lands where it would have landed without the crash."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        store, offset = Path(folder) / "store", 0
        with closing(_open(store, preserved)) as writer:
            for number, (lines, crashes) in enumerate(micro_batches):
                offsets = [offset := offset + 1 + value % 3 * 700 for _, value, _ in lines]
                batch = rows(
                    partition=[line[0] for line in lines],
                    offset=offsets,
                    timestamp=[line[2] for line in lines],
                    value=[bytes(line[1]) for line in lines],
                )
                before = _logs(store)
                writer.append("query", number, in_process(batch))
                if crashes:
                    image = Path(folder) / f"image-{number}"
                    _crash_before_commit(store, image)
                    with closing(_open(image, preserved)) as survivor:
                        _assert_cut_back(before, _logs(image))
                        assert not survivor.append("query", number, in_process(batch)).replayed
                        assert read_store(image) == read_store(store)
                    assert _findings(image, preserved) == []
        assert _findings(store, preserved) == []
