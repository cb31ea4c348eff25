"""A ledger that has lost its newest entries ends lower, and is sound in itself: no verb takes it for the store."""

import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.reader.options import parse_options
from sparklog.pipeline.reader.selection import choose_logs
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.opening.access import writing
from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.inspect.verify.findings import Finding
from sparklog.storage_core.log.files.names import LOG, segment_file_name
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import contents, in_process, log_directories, numbers, open_events, stored_numbers
from tests.sparklog_command import Sparklog

_LOCKS = ("writer.lock", "maintenance.lock")
_BATCHES, _ROWS = 3, 100


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store with three micro-batches, closed well."""
    path = memory_path / "s"
    writer = open_events(path)
    for batch in range(_BATCHES):
        writer.append("q", batch, in_process(numbers(batch * _ROWS, (batch + 1) * _ROWS)))
    writer.close()
    return path


def _newest(store: Path) -> Path:
    return max((store / "ledger" / "_delta_log").glob("0*.json"))


def _crash(store: Path) -> None:
    """Let the store look as if its last writer had died."""
    (store / "writer.lock").write_text('{"pid": 1}\n')


def _demand_refusal(store: Path, sparklog: Sparklog, named: str) -> None:
    """Every opening refuses, also the second one; every reader does; nothing changes."""
    before = contents(store, without=_LOCKS)

    for _ in range(2):
        with pytest.raises(LogStorageError, match=named):
            open_events(store)
        with pytest.raises(LogStorageError, match=named), writing(store):
            pass
    for verb in (["describe", store], ["verify", store], ["offsets", store, "events"], ["read", store, "events:0"]):
        ran = sparklog(*verb)
        assert ran.code != 0, (verb, ran.out)
        assert named in ran.out + ran.err, (verb, ran.out, ran.err)
    options = parse_options({"path": str(store), "subscribe": "events"})
    with pytest.raises(LogStorageError, match=named):
        choose_logs(open_logs(store), options)
    assert contents(store, without=_LOCKS) == before


def _demand_rows(store: Path) -> None:
    """Every acknowledged row is there, and writing goes on."""
    assert stored_numbers(store) == list(range(_BATCHES * _ROWS))
    writer = open_events(store)
    writer.append("q", _BATCHES, in_process(numbers(_BATCHES * _ROWS, (_BATCHES + 1) * _ROWS)))
    writer.close()
    assert stored_numbers(store) == list(range((_BATCHES + 1) * _ROWS))


@pytest.mark.parametrize("kept", [0, 1, 40, "line", "lines"])
@pytest.mark.parametrize("back", [0, 1, 3])
def test_store_when_an_entry_is_empty_or_cut_after_a_clean_close_then_refused(
    store: Path, sparklog: Sparklog, kept: int | str, back: int
) -> None:
    """Delta takes an empty entry for one without actions: rows would be cut off that were acknowledged."""
    entry = sorted((store / "ledger" / "_delta_log").glob("0*.json"))[-1 - back]
    whole = entry.read_bytes()
    lines = whole.splitlines(keepends=True)
    entry.write_bytes(whole[:kept] if isinstance(kept, int) else b"".join(lines[: 1 if kept == "line" else -1]))

    _demand_refusal(store, sparklog, "the ledger can't be read")

    entry.write_bytes(whole)
    _demand_rows(store)


@pytest.mark.parametrize("count", [1, 2])
def test_store_when_newest_entries_are_missing_after_a_clean_close_then_refused(
    store: Path, sparklog: Sparklog, count: int
) -> None:
    """As after a copy that was cut short: the version of the last close says that there were more."""
    entries = sorted((store / "ledger" / "_delta_log").glob("0*.json"))[-count:]
    held = [(entry, entry.read_bytes()) for entry in entries]
    for entry in entries:
        entry.unlink()

    _demand_refusal(store, sparklog, f"missing={entries[0].name}")

    for entry, whole in held:
        entry.write_bytes(whole)
    _demand_rows(store)


@pytest.mark.parametrize("has_crashed", [False, True])
def test_store_when_an_entry_is_missing_behind_which_others_are_then_refused(
    store: Path, sparklog: Sparklog, has_crashed: bool
) -> None:
    """What comes behind a gap is no crash's."""
    entry = sorted((store / "ledger" / "_delta_log").glob("0*.json"))[-2]
    whole = entry.read_bytes()
    entry.unlink()
    if has_crashed:
        _crash(store)

    _demand_refusal(store, sparklog, "the ledger can't be read")

    entry.write_bytes(whole)
    _demand_rows(store)


@pytest.mark.parametrize("has_crashed", [False, True])
@pytest.mark.parametrize("name", ["z.json", "00000000000000000099.json", "00000000000000000004.0badcafe.json"])
def test_store_when_a_foreign_file_lies_among_the_entries_then_refused(
    store: Path, sparklog: Sparklog, name: str, has_crashed: bool
) -> None:
    """It is not removed as what a power cut left."""
    foreign = store / "ledger" / "_delta_log" / name
    foreign.write_text("somebody's")
    if has_crashed:
        _crash(store)

    _demand_refusal(store, sparklog, "99.json" if "99" in name else name)

    foreign.unlink()
    _demand_rows(store)


@pytest.mark.parametrize("has_crashed", [False, True])
def test_store_when_the_newest_entry_is_a_protocol_upgrade_then_refused(
    store: Path, sparklog: Sparklog, has_crashed: bool
) -> None:
    """Another program's commit is no torn one of ours."""
    DeltaTable(store / "ledger").alter.set_table_properties({"delta.minReaderVersion": "1", "delta.appendOnly": "true"})
    foreign = _newest(store)
    if has_crashed:
        _crash(store)

    _demand_refusal(store, sparklog, foreign.name)

    foreign.unlink()
    _demand_rows(store)


def _data_file(store: Path) -> Path:
    table = DeltaTable(store / "ledger")
    name: str = table.file_uris()[0].rpartition("/")[2]
    return store / "ledger" / name


@pytest.mark.parametrize("content", [None, b"", b"\0" * 500])
def test_store_when_the_data_file_of_the_newest_entry_is_gone_after_a_crash_then_refused(
    store: Path, sparklog: Sparklog, content: bytes | None
) -> None:
    """It was on the disk before its entry was written, so that no power cut takes it."""
    data = _data_file(store)
    whole = data.read_bytes()
    data.unlink()
    if content is not None:
        data.write_bytes(content)
    _crash(store)

    _demand_refusal(store, sparklog, "the ledger can't be read")

    data.write_bytes(whole)
    _demand_rows(store)


def test_store_when_the_entry_of_a_clean_close_is_torn_after_a_later_crash_then_refused(
    store: Path, sparklog: Sparklog
) -> None:
    """It was acknowledged: what a writer that came later, and died, tore is another one."""
    entry = _newest(store)
    whole = entry.read_bytes()
    entry.write_bytes(whole[:60])
    _crash(store)
    before = contents(store, without=_LOCKS)

    for _ in range(2):
        with pytest.raises(LogStorageError, match="was committed"):
            open_events(store)

    assert contents(store, without=_LOCKS) == before
    entry.write_bytes(whole)
    _demand_rows(store)


@pytest.mark.parametrize("is_following", [False, True])
def test_store_when_bytes_lie_above_the_end_after_a_clean_close_then_refused(
    store: Path, sparklog: Sparklog, is_following: bool
) -> None:
    """No crash left them: they are another ledger's, and are not cut off unless a repair is asked to."""
    state = Ledger.open(store / "ledger").states()[TopicPartition("events", 0)]
    base = state.log_end_offset if is_following else state.active_base_offset
    segment = log_directories(store)["events-0"] / segment_file_name(base, LOG)
    whole = segment.read_bytes() if segment.exists() else None
    segment.write_bytes((whole or b"") + b"more")

    _demand_refusal(store, sparklog, "bytes lie past a log's committed end")

    if whole is None:
        segment.unlink()
    else:
        segment.write_bytes(whole)
    _demand_rows(store)


def test_store_when_bytes_lie_above_the_end_after_a_clean_close_then_a_repair_keeps_them_and_cuts_them_off(
    store: Path, sparklog: Sparklog
) -> None:
    """It is the remedy that the refusal names."""
    state = Ledger.open(store / "ledger").states()[TopicPartition("events", 0)]
    segment = log_directories(store)["events-0"] / segment_file_name(state.active_base_offset, LOG)
    size = segment.stat().st_size
    segment.write_bytes(segment.read_bytes() + b"more")

    planned = sparklog("repair", store)
    assert (planned.code, "keep and drop the bytes above" in planned.out, segment.stat().st_size) == (1, True, size + 4)

    assert sparklog("repair", store, "--execute").code == 0

    kept = store / "control" / "cut" / "events-0" / f"{segment.name}.{size}-{size + 4}"
    assert kept.read_bytes() == b"more"
    _demand_rows(store)


def test_store_when_bytes_lie_above_the_end_after_a_crash_then_they_are_cut_off(store: Path) -> None:
    """An unfinished micro-batch leaves them."""
    state = Ledger.open(store / "ledger").states()[TopicPartition("events", 0)]
    segment = log_directories(store)["events-0"] / segment_file_name(state.active_base_offset, LOG)
    segment.write_bytes(segment.read_bytes() + b"more")
    _crash(store)

    _demand_rows_after_opening(store)


def test_store_when_its_owners_recorded_no_version_then_it_opens_as_after_a_crash(store: Path) -> None:
    """An earlier state of this release closed it: bytes above the end are cut off as leftovers."""
    (store / "control" / "ledger-version.writer.json").unlink()
    state = Ledger.open(store / "ledger").states()[TopicPartition("events", 0)]
    segment = log_directories(store)["events-0"] / segment_file_name(state.active_base_offset, LOG)
    segment.write_bytes(segment.read_bytes() + b"more")

    _demand_rows_after_opening(store)


def test_store_when_a_file_below_control_is_damaged_then_it_can_be_read_and_verify_says_so(store: Path) -> None:
    """Whoever writes refuses it: without it nobody can tell whether the ledger is whole."""
    name = "ledger-version.writer.json"
    (store / "control" / name).write_bytes(b"\0\0")

    assert stored_numbers(store) == list(range(_BATCHES * _ROWS))
    view = open_logs(store)
    view.require_clean_end()
    found: list[Finding] = []
    verify(view, found.append)
    assert [each.rule for each in found] == ["control-file"]
    assert name in found[0].what
    for _ in range(2):
        with pytest.raises(LogStorageError, match=name):
            open_events(store)


@pytest.mark.parametrize("role", ["writer", "maintenance"])
def test_sink_when_a_recorded_version_is_damaged_while_it_runs_then_it_closes_well(store: Path, role: str) -> None:
    """Its own file it writes anew; another role's is that one's, and the next opening names it."""
    path = store / "control" / f"ledger-version.{role}.json"
    writer = open_events(store)
    writer.append("q", _BATCHES, in_process(numbers(_BATCHES * _ROWS, (_BATCHES + 1) * _ROWS)))
    path.write_bytes(b"\0\0")

    writer.close()

    assert (store / "writer.lock").read_bytes() == b""
    if role == "maintenance":
        with pytest.raises(LogStorageError, match=path.name):
            open_events(store)
        path.unlink()
    open_events(store).close()
    assert stored_numbers(store) == list(range((_BATCHES + 1) * _ROWS))


def test_reading_when_it_looks_for_bytes_above_an_end_then_it_writes_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have no right to."""
    opened: list[int] = []
    real = os.open

    def noted(path: Any, flags: int, *others: Any, **options: Any) -> int:
        opened.append(flags & (os.O_WRONLY | os.O_RDWR))
        return real(path, flags, *others, **options)

    monkeypatch.setattr(os, "open", noted)
    open_logs(store)

    assert not any(opened)


def _demand_rows_after_opening(store: Path) -> None:
    open_events(store).close()
    _demand_rows(store)
