from pathlib import Path

import pytest

from pipeline.store_view import open_logs
from pipeline.verify_command import verify
from storage_core.inspect.findings import Finding
from tests.damaged_store import LOG, change, segments, write_store
from tests.retained_store import delete_records, write_aged
from tests.written_log import Batch, write_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six logs of seven segments, two of them damaged in one batch each."""
    for number in range(6):
        log = write_log(tmp_path / f"t-{number}", [[Batch([s, b]) for b in range(3)] for s in range(7)])
        for path, start, *_ in log.batches[4::9]:
            change(path, lambda data, start=start: data.__setitem__(start + 70, data[start + 70] ^ 1))
    return tmp_path


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_verify_when_run_side_by_side_then_findings_in_the_order_of_the_logs(folder: Path, jobs: int) -> None:
    """However many threads look: findings are the same, log by log, offset by offset."""
    reported: list[Finding] = []
    told: list[int] = []

    result = verify(open_logs(folder), reported.append, jobs=jobs, progress=told.append)

    places = [(each.log, each.first_offset) for each in reported]
    assert places == sorted(places)
    assert len(places) == 6 * 2
    assert reported == result.findings
    assert sum(told) == sum(path.stat().st_size for path in folder.rglob("*.log"))
    assert result.summary() == {
        "sound": False,
        "logs": 6,
        "segments": 42,
        "batches": 6 * 19,
        "bytes": result.summary()["bytes"],
        "findings": 12,
    }


def test_verify_when_a_stores_root_is_wrong_then_found(tmp_path: Path) -> None:
    """What lies around the logs of a store is checked with them, and one log alone without it."""
    store = write_store(tmp_path / "store")
    (store / "logs" / "notes").mkdir()
    (store / "logs" / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nt 0 91\n")

    found = [(each.log, each.rule, each.file) for each in verify(open_logs(store), lambda _: None).findings]

    assert found == [
        ("logs", "root-entry", "notes"),
        ("logs", "offset-checkpoint", "cleaner-offset-checkpoint"),
    ]
    assert verify(open_logs(store / "logs" / LOG), lambda _: None).findings == []


def test_verify_when_a_plain_logs_end_was_cut_then_the_roots_checkpoint_tells(tmp_path: Path) -> None:
    """In a broker's folder the recovery point says how far a log once went."""
    store = write_store(tmp_path / "store")
    last = segments(store)[-1]
    for path in (last, last.with_suffix(".index"), last.with_suffix(".timeindex")):
        path.unlink()

    found = verify(open_logs(store / "logs"), lambda _: None).findings

    assert {each.rule for each in found} == {"offset-checkpoint"}


def test_verify_when_retention_removes_segments_meanwhile_then_the_log_is_looked_at_again(memory_path: Path) -> None:
    """What goes because the log starts later is not missing."""
    store = write_aged(memory_path / "store")
    view = open_logs(store)
    delete_records(store, 100)

    result = verify(view, lambda _: None)

    assert result.findings == []
    assert result.logs[0].log_start_offset == 93
