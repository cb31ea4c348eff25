"""Truncations of imported logs: transactions that lose their markers, batches of old formats at the end."""

from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.log.producers.transactions import find_last_stable_offset
from sparklog.storage_core.log.scan.log_walk import SegmentList
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.golden import copy_broker_root
from tests.build.sink_store import in_process, log_directories, numbers, open_store
from tests.build.truncated import truncate_to
from tests.sparklog_command import Sparklog


def _state(store: Path, topic: str) -> LogState:
    return Ledger.open(store / "ledger").states()[TopicPartition(topic, 0)]


@pytest.mark.parametrize("offset", [3, 9, 14, 17, 22, 29])
def test_truncation_when_it_takes_a_marker_then_that_transaction_is_open(
    tmp_path: Path, sparklog: Sparklog, offset: int
) -> None:
    """What is stable then is what the batches that are left say; later snapshots and index entries are gone."""
    log = TopicPartition("v2-transactional", 0)
    store, broker = tmp_path / "store", copy_broker_root(tmp_path / "broker", log.topic)
    assert sparklog("import", broker, store, "--execute").code == 0

    truncate_to(store, log, offset, SystemClock())

    state, directory = _state(store, log.topic), log_directories(store)[str(log)]
    for path in directory.glob("*.snapshot"):
        assert int(path.stem) <= offset
        path.unlink()  # the scan of all batches is to decide
    stable = find_last_stable_offset(SegmentList(directory, offset), 0)
    assert state.first_unstable_offset == (stable if stable < offset else -1)
    assert sparklog("verify", store, "--deep").code == 0


def test_import_when_a_broker_may_have_compacted_a_log_then_not_its_active_segment(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """Truncations go down to there."""
    store, broker = tmp_path / "store", copy_broker_root(tmp_path / "broker", "v2-compact-before")
    assert sparklog("import", broker, store, "--execute").code == 0

    state = _state(store, "v2-compact")
    assert state.compacted_offset == max(int(each.stem) for each in (broker / str(state.log)).glob("*.log"))
    assert 0 < state.compacted_offset < state.log_end_offset


def test_truncate_when_it_takes_a_marker_then_the_plan_says_where_read_committed_ends(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """What a stream appends later would be invisible to such readers for good."""
    name, store = "v2-transactional", tmp_path / "store"
    assert sparklog("import", copy_broker_root(tmp_path / "broker", name), store, "--execute").code == 0

    planned = sparklog("truncate", store, "--to", f"{name}:0:9")
    ran = sparklog("truncate", store, "--to", f"{name}:0:9", "--execute", "--json")

    assert f"a transaction is open from offset {_state(store, name).first_unstable_offset} on, for good" in planned.out
    assert f"--to {name}:0:{_state(store, name).first_unstable_offset} takes it back, too" in planned.out
    (log,) = ran.objects[0]["logs"]
    assert log["first_unstable_offset"] == _state(store, name).first_unstable_offset >= 0
    again = sparklog("truncate", store, "--to", f"{name}:0:{log['first_unstable_offset']}", "--execute", "--json")
    assert again.objects[0]["logs"][0]["first_unstable_offset"] == -1


@pytest.mark.parametrize("name", ["v0-segments", "v0-gzip", "v1-segments", "v1-lz4", "v1-log-append-time"])
@pytest.mark.parametrize("offset", [5, 33])
def test_truncation_when_it_ends_in_an_old_format_then_v2_follows_there(
    tmp_path: Path, sparklog: Sparklog, name: str, offset: int
) -> None:
    """Formats may mix in a segment, as where a broker's message format was raised."""
    store, broker = tmp_path / "store", copy_broker_root(tmp_path / "broker", name)
    assert sparklog("import", broker, store, "--execute").code == 0
    before = sparklog("read", store, name, "--json").objects

    truncate_to(store, TopicPartition(name, 0), offset, SystemClock())
    with closing(open_store(store, {name: {}}, topic=name)) as writer:
        writer.append("query", 0, in_process(numbers(0, 3)))
    after = sparklog("read", store, name, "--json").objects

    kept = [each for each in after if each["offset"] < offset]
    assert kept == before[: len(kept)]
    assert [each["offset"] for each in after[len(kept) :]] == [offset, offset + 1, offset + 2]
    assert sparklog("verify", store, "--deep").code == 0
