"""Cuts hold nothing back: after retention and compaction each is what it was, or is refused."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.places.past_logs import require_readable
from sparklog.pipeline.places.store_view import open_logs
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.past.cuts import CutTable, cuts_path
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.quantity_text import iso_time
from tests.build.compacted_store import LOG, NOW_MS, SETTINGS, clean, keyed_rows
from tests.build.cut_store import forget_past
from tests.build.manual_clock import ManualClock
from tests.build.retained_store import retain
from tests.build.sink_store import in_process, open_store
from tests.sparklog_command import Sparklog

_HOUR_MS = 3_600_000
_TURNS = 10
_EACH = 20
_Values = dict[bytes | None, bytes | None]


def _write(store: Path, **settings: object) -> Path:
    """Twenty records an hour, each key again and again, with tombstones."""
    clock = ManualClock(NOW_MS)
    with closing(open_store(store, {LOG.topic: {**SETTINGS, **settings}}, topic=LOG.topic, clock=clock)) as writer:
        for turn in range(_TURNS):
            writer.append("q", turn, in_process(keyed_rows(turn * _EACH, (turn + 1) * _EACH)))
            clock.advance(_HOUR_MS)
    forget_past(store)
    return store


def _values_of(store: Path) -> dict[int, dict[bytes | None, bytes]]:
    """Return for each cut that can be read the last value of each key, tombstones left out."""
    found: dict[int, dict[bytes | None, bytes]] = {}
    for cut_ms in CutTable(cuts_path(store)).times():
        view = open_logs(store, AsOf(timestamp_ms=cut_ms))
        try:
            require_readable(view, view.logs)
        except InvalidConfigError:
            continue
        values: _Values = {}
        for each in view.logs:
            reader = each.reader()
            for batch in reader.read(reader.log_start_offset):
                values.update(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))
        found[cut_ms] = {key: value for key, value in values.items() if value is not None}
    return found


def test_cuts_when_the_log_is_compacted_then_each_has_its_last_values_or_is_refused(tmp_path: Path) -> None:
    """A cut below the compaction's end may lack what later records superseded; one above it has every last value."""
    store = _write(tmp_path / "s")
    before = _values_of(store)
    assert len(before) == _TURNS - 1

    clean(store)
    after = _values_of(store)

    assert 0 < len(after) < len(before)
    assert after == {cut_ms: before[cut_ms] for cut_ms in after}
    assert [*after] == sorted(before)[-len(after) :]


def test_cuts_when_min_compaction_lag_is_long_then_all_stay_whole(tmp_path: Path) -> None:
    """Who wants to read a compacted topic as of yesterday sets `min.compaction.lag.ms` to a day."""
    store = _write(tmp_path / "s", **{"min.compaction.lag.ms": 10 * _HOUR_MS})
    before = _values_of(store)

    clean(store)

    assert _values_of(store) == before


def test_cuts_when_retention_deletes_then_those_above_are_read_from_the_new_start(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """The plan names the moment before which none can be read any more, and it is so."""
    store = _write(tmp_path / "s", **{"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": 2_000})
    planned = sparklog("retain", store)

    retain(store)

    left = json.loads(sparklog("describe", store, "--cuts", "--json").out)["cuts"]
    usable = [each["cut_ms"] for each in left if each["state"] != "passed"]
    assert 0 < len(usable) < len(left)
    assert f"after this, cuts before {iso_time(usable[0])} can't be read: {LOG}" in planned.out
    assert "after this" not in sparklog("retain", store).out


def test_maintain_when_a_compaction_is_planned_then_names_the_cuts_that_it_overtakes(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """A plan that overtakes nothing says nothing of cuts."""
    store = _write(tmp_path / "s")
    planned = sparklog("maintain", store).out

    clean(store)

    left = [*_values_of(store)]
    assert f"after this, cuts before {iso_time(left[0])} can't be read: {LOG}" in planned


@pytest.mark.parametrize("before", [200, 110])
def test_delete_records_when_planned_then_names_the_cuts_that_it_overtakes(
    tmp_path: Path, sparklog: Sparklog, before: int
) -> None:
    """At the log's end no cut is left."""
    store = _write(tmp_path / "s", **{"cleanup.policy": "delete", "retention.ms": -1})

    planned = sparklog("delete-records", store, f"{LOG.topic}:{LOG.partition}", "--before", before).out

    line = f"cuts before {iso_time(NOW_MS // _HOUR_MS * _HOUR_MS + 6 * _HOUR_MS)}" if before < 200 else "no cut"
    assert f"after this, {line} can" in planned


@pytest.mark.parametrize("is_regrown", [False, True])
def test_cuts_when_a_log_was_truncated_then_those_above_are_refused_also_after_it_has_grown_again(
    tmp_path: Path, sparklog: Sparklog, is_regrown: bool
) -> None:
    """Other records have these offsets now: the log's leader epoch has risen."""
    store, clock = _write(tmp_path / "s", **{"min.compaction.lag.ms": 10 * _HOUR_MS}), ManualClock(NOW_MS)
    before = _values_of(store)

    ran = sparklog("truncate", store, "--to", f"{LOG.topic}:{LOG.partition}:105", "--execute")
    assert ran.code == 0, ran.err
    if is_regrown:
        clock.advance(_TURNS * _HOUR_MS)
        with closing(open_store(store, {LOG.topic: SETTINGS}, topic=LOG.topic, clock=clock)) as writer:
            writer.append("q", _TURNS, in_process(keyed_rows(200, 400)))
        forget_past(store)

    after = _values_of(store)
    assert {cut_ms: after[cut_ms] for cut_ms in [*before][:5]} == {cut_ms: before[cut_ms] for cut_ms in [*before][:5]}
    assert {*after}.isdisjoint([*before][5:])
    refused = sparklog("read", store, LOG.topic, "--as-of", iso_time([*before][6]))
    assert (refused.code, f"log={LOG}: it was truncated since" in refused.err) == (2, True)
