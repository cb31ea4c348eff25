import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.storage_core.index.transaction_index import (
    AbortedTransaction,
    pack_transaction_entries,
    parse_transaction_index,
)
from sparklog.storage_core.inspect.repair.plan import plan_repair
from sparklog.storage_core.inspect.verify.verify_log import verify_directory
from sparklog.storage_core.record.attributes import CONTROL_BIT
from sparklog.storage_core.record.batch_scan import scan_batches
from tests.build.golden import GoldenLog, golden_logs

_GOLDEN = Path(__file__).resolve().parents[4] / "data" / "golden"


@pytest.fixture
def log(memory_path: Path) -> Path:
    """A broker's log with two producers' transactions, some aborted."""
    source = _GOLDEN / "v2-transactional" / "v2-transactional-0"
    return Path(shutil.copytree(source, memory_path / source.name))


def _change(log: Path, change: Callable[[list[AbortedTransaction]], list[AbortedTransaction]]) -> Path:
    (path,) = log.glob("*.txnindex")
    path.write_bytes(pack_transaction_entries(change(parse_transaction_index(path.read_bytes(), 0))))
    return path


@pytest.mark.parametrize("golden", golden_logs())
def test_verify_directory_when_broker_wrote_transactions_then_index_as_we_would_write_it(golden: GoldenLog) -> None:
    """What follows from the markers is what the broker's index holds, to the byte."""
    report = verify_directory(golden.directory)

    for base, entries in report.aborted.items():
        path = golden.directory / f"{base:020d}.txnindex"
        assert pack_transaction_entries(entries) == (path.read_bytes() if path.exists() else b"")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda entries: entries[1:], "lacks the transaction of producer"),
        (lambda entries: [replace(entries[0], first_offset=entries[0].first_offset + 1), *entries[1:]], "entry 0 says"),
        (lambda entries: [replace(entries[0], last_stable_offset=10**6), *entries[1:]], "entry 0 says"),
        (lambda entries: [replace(entries[0], producer_id=77), *entries[1:]], "where its producer aborted nothing"),
        (
            lambda entries: [*entries, replace(entries[-1], last_offset=entries[-1].last_offset + 1)],
            "where its producer aborted nothing",
        ),
    ],
)
def test_verify_directory_when_transaction_index_contradicts_the_markers_then_found(
    log: Path, change: Callable[[list[AbortedTransaction]], list[AbortedTransaction]], what: str
) -> None:
    """An entry lies where its abort marker is, and names where the transaction began."""
    path = _change(log, change)

    findings = verify_directory(log).findings

    assert {(each.kind, each.rule, each.file) for each in findings} == {("index", "txn-index", path.name)}
    assert any(what in each.what for each in findings), findings


def test_verify_directory_when_transaction_index_is_torn_then_found(log: Path) -> None:
    """An index holds whole entries."""
    (path,) = log.glob("*.txnindex")
    path.write_bytes(path.read_bytes() + b"\0")

    assert ["not a multiple of 34" in each.what for each in verify_directory(log).findings] == [True]


def test_verify_directory_when_batches_of_a_transaction_are_damaged_then_its_entry_is_not_blamed(log: Path) -> None:
    """What a damaged batch began is not known."""
    (path,) = log.glob("*.log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)

    assert {each.rule for each in verify_directory(log).findings} == {"crc"}


@pytest.mark.parametrize("field", [17, 22, 45, 60, 70])
def test_repair_when_a_marker_is_damaged_then_left_with_its_index_entry(log: Path, field: int) -> None:
    """A transaction without its end would hold up every reader of committed records: its marker is not left out."""
    (path,) = log.glob("*.log")
    data = path.read_bytes()
    scan = scan_batches(data)
    for start in scan.position[scan.attributes & CONTROL_BIT != 0][:-1].tolist():
        path.write_bytes(data[: start + field] + bytes([data[start + field] ^ 0x20]) + data[start + field + 1 :])

        report = verify_directory(log)
        plan = plan_repair(report, None, {each.name: each.stat().st_size for each in log.iterdir()})

        assert [(each.rule, each.position) for each in plan.left] == [("marker", start)]
        assert (plan.rewrites, plan.lost) == ([], [])
        (index,) = log.glob("*.txnindex")
        assert {each.last_offset for each in parse_transaction_index(index.read_bytes(), 0)} == {
            each.last_offset for each in report.aborted[0]
        }
