from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.storage_core.inspect.verify.findings import Finding
from tests.build.damaged_store import LOG, change, segments, write_store
from tests.build.retained_store import delete_records, write_aged
from tests.build.sink_store import in_process, open_store, rows
from tests.build.written_log import Batch, write_log
from tests.sparklog_command import Sparklog


def _flip(position: int, data: bytearray) -> None:
    data[position] ^= 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six logs of seven segments, two of them damaged in one batch each."""
    for number in range(6):
        log = write_log(tmp_path / f"t-{number}", [[Batch([s, b]) for b in range(3)] for s in range(7)])
        for path, start, *_ in log.batches[4::9]:
            change(path, partial(_flip, start + 70))
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
    assert result.as_dict() == {
        "sound": False,
        "logs": 6,
        "segments": 42,
        "batches": 6 * 19,
        "bytes": result.as_dict()["bytes"],
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


def test_verify_when_a_folder_without_ledger_holds_no_batch_then_that_is_a_finding(tmp_path: Path) -> None:
    """It may be the wrong folder."""
    log = tmp_path / "t-0"
    log.mkdir()
    (log / f"{0:020d}.log").touch()

    assert [each.kind for each in verify(open_logs(tmp_path), lambda _: None).findings] == ["nothing"]


def test_verify_when_retention_removes_segments_meanwhile_then_the_log_is_looked_at_again(memory_path: Path) -> None:
    """What goes because the log starts later is not missing."""
    store = write_aged(memory_path / "store")
    view = open_logs(store)
    delete_records(store, 100)

    result = verify(view, lambda _: None)

    assert result.findings == []
    assert result.logs[0].log_start_offset == 93


def test_verify_when_a_store_is_empty_then_sound(sparklog: Sparklog, tmp_path: Path) -> None:
    """Its ledger says that nothing is there; in a plain folder nobody does, and it may be the wrong one."""
    open_store(tmp_path / "store", {"t": {"partitions": 2}}, topic="t").close()

    assert sparklog("verify", tmp_path / "store") == (0, "sound: 2 logs, 2 segments, 0 batches, 0 bytes\n", "")
    assert sparklog("repair", tmp_path / "store").code == 0
    assert sparklog("verify", tmp_path / "store" / "logs").code == 1


@pytest.mark.parametrize("segment_bytes", [100, 1 << 20], ids=["at a segment border", "inside a segment"])
def test_verify_when_a_mirrors_only_gap_is_its_sources_then_sound(tmp_path: Path, segment_bytes: int) -> None:
    """Offsets that come from elsewhere may be missing, one gap as well as many, also once offsets are assigned."""
    topics = {"t": {"segment.bytes": segment_bytes, "batch.size": 50, "max.message.bytes": 100}}
    with closing(open_store(tmp_path / "store", topics, topic="t", offsets="preserved")) as writer:
        writer.append("q", 0, in_process(rows(offset=[0, 1, 2], value=["x"] * 3)))
        writer.append("q", 1, in_process(rows(offset=[10, 11, 12], value=["x"] * 3)))
    with closing(open_store(tmp_path / "store", topics, topic="t")) as writer:
        writer.append("q", 2, in_process(rows(value=["x"] * 3)))

    result = verify(open_logs(tmp_path / "store"), lambda _: None, deep=True)

    assert (result.findings, result.is_sound) == ([], True)


def test_verify_when_a_segment_of_assigned_offsets_is_lost_then_a_gap(tmp_path: Path) -> None:
    """Nothing else tells of a closed segment that went with its indexes."""
    store = write_store(tmp_path / "store")
    lost = segments(store)[1]
    for path in (lost, lost.with_suffix(".index"), lost.with_suffix(".timeindex")):
        path.unlink()

    assert "gap" in {each.kind for each in verify(open_logs(store), lambda _: None).findings}
