"""`sparklog import`: what it plans, takes and refuses; brokers judge it in `tests/kafka/test_import.py`."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.pipeline.brokers.import_logs import execute_import
from sparklog.sink.importing.import_logs import make_store
from sparklog.sink.importing.plan_import import ImportChoice
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.rows import LogState
from sparklog.sink.locks.broker_lock import lock_roots
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_other_properties, read_topic_configs
from sparklog.storage_core.checkpoint.leader_epochs import parse_leader_epochs
from sparklog.storage_core.checkpoint.offset_checkpoint import render_offset_checkpoint
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.golden import GoldenLog, copy_broker_root, golden_logs, write_cluster_metadata
from tests.build.sink_store import contents, in_process, log_directories, numbers, open_store, read_log
from tests.faults.fault_plan import FaultPlan
from tests.faults.system_calls import watched
from tests.sparklog_command import Sparklog

_SEGMENTS = "v2-segments"
_CUT = "v2-deleted-records"


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A stopped broker's root: a log of five segments, and one that starts inside a segment."""
    return copy_broker_root(tmp_path / "broker", _SEGMENTS, _CUT)


def _state(store: Path, topic: str) -> LogState:
    return Ledger.open(store / "ledger").states()[TopicPartition(topic, 0)]


def test_import_when_it_is_not_executed_then_a_plan_and_nothing_is_made(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Topic, partitions, offsets and bytes; neither folder changes."""
    before = contents(broker)

    ran = sparklog("import", broker, tmp_path / "store")

    assert ran.code == 0, ran.err
    assert f"{_SEGMENTS}: 1 partitions, 240 offsets" in ran.out
    assert "--execute" in ran.out
    assert not (tmp_path / "store").exists()
    assert contents(broker) == before


def test_import_when_it_is_executed_then_the_same_bytes_offsets_and_ids(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Closed segments are the same files; the last one, which the broker appends to, is a file of the store's own."""
    store, before = tmp_path / "store", contents(broker)

    ran = sparklog("import", broker, store, "--execute")

    assert ran.code == 0, ran.err
    assert contents(broker) == before
    assert sparklog("verify", store, "--deep").code == 0
    for name, directory in log_directories(store).items():
        segments = sorted((broker / name).glob("*.log"))
        placed = [directory / each.name for each in segments]
        assert [each.read_bytes() for each in placed] == [each.read_bytes() for each in segments]
        assert not placed[-1].samefile(segments[-1])
        for suffix in ("index", "timeindex"):
            assert {each.name: each.read_bytes() for each in (broker / name).glob(f"*.{suffix}")}.items() <= {
                each.name: each.read_bytes() for each in directory.glob(f"*.{suffix}")
            }.items()
        assert (directory / "partition.metadata").read_bytes() == (broker / name / "partition.metadata").read_bytes()
    state = _state(store, _CUT)
    assert (state.log_start_offset, state.log_end_offset, state.recovery_point) == (70, 160, 160)


def test_import_when_a_sink_appends_then_behind_it_in_its_own_segment_and_epoch(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The broker's epochs stay, and a next one begins where the store goes on."""
    store = tmp_path / "store"
    epochs = parse_leader_epochs((broker / f"{_SEGMENTS}-0" / "leader-epoch-checkpoint").read_bytes())
    assert sparklog("import", broker, store, "--execute").code == 0

    with closing(open_store(store, {_SEGMENTS: {}}, topic=_SEGMENTS)) as writer:
        writer.append("query", 0, in_process(numbers(0, 5)))

    directory = log_directories(store)[f"{_SEGMENTS}-0"]
    assert [record.offset for record in read_log(directory)] == [*range(245)]
    assert (directory / f"{240:020}.log").stat().st_size
    found = parse_leader_epochs((directory / "leader-epoch-checkpoint").read_bytes())
    assert found == [*epochs, (epochs[-1][0] + 1, 240)]
    assert sparklog("verify", store).code == 0


def test_import_when_the_shutdown_was_not_clean_then_without_the_torn_tail(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """What a broker was writing when it was copied is no batch; the rest is all there, with sound indexes."""
    (broker / ".kafka_cleanshutdown").unlink()
    last = sorted((broker / f"{_SEGMENTS}-0").glob("*.log"))[-1]
    whole = last.read_bytes()
    last.write_bytes(whole + whole[:70])
    last.with_suffix(".index").write_bytes(bytes(10_000))

    ran = sparklog("import", broker, tmp_path / "store", "--execute")

    assert ran.code == 0, ran.err
    assert "fewer bytes than a batch announces" in ran.out
    assert (log_directories(tmp_path / "store")[f"{_SEGMENTS}-0"] / last.name).read_bytes() == whole
    assert last.read_bytes() == whole + whole[:70]
    assert sparklog("verify", tmp_path / "store", "--deep").code == 0


def test_import_when_a_batch_is_damaged_then_refused_unless_the_rest_may_go(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The file is named; --allow-gaps takes what a broker's start would keep."""
    (broker / ".kafka_cleanshutdown").unlink()
    damaged = sorted((broker / f"{_SEGMENTS}-0").glob("*.log"))[1]
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)

    refused = sparklog("import", broker, tmp_path / "store", "--execute")
    allowed = sparklog("import", broker, tmp_path / "store", "--allow-gaps", "--execute")

    assert refused.code == 2
    assert f"a broker's start would drop records of a log: {_SEGMENTS}-0/{damaged.name}" in refused.err
    assert allowed.code == 0, allowed.err
    assert _state(tmp_path / "store", _SEGMENTS).log_end_offset < 240
    assert sparklog("verify", tmp_path / "store").code == 0


def _with_gap(broker: Path) -> str:
    """Take a segment out of a log; return the missing offsets."""
    [second, third] = sorted((broker / f"{_SEGMENTS}-0").glob("*.log"))[1:3]
    for path in (broker / f"{_SEGMENTS}-0").glob(f"{second.stem}*"):
        path.unlink()
    return f"offsets {int(second.stem)}..{int(third.stem) - 1}"


def test_import_when_a_segment_is_missing_then_refused_unless_gaps_are_allowed(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The offsets are named; no store is made."""
    missing = _with_gap(broker)
    write_cluster_metadata(broker, {_SEGMENTS: {"cleanup.policy": "delete"}})

    refused = sparklog("import", broker, tmp_path / "store", "--execute")
    made = (tmp_path / "store").exists()
    allowed = sparklog("import", broker, tmp_path / "store", "--allow-gaps", "--execute")

    assert refused.code == 2
    assert missing in refused.err
    assert "--allow-gaps takes what is left" in refused.err
    assert not made
    assert allowed.code == 0, allowed.err
    assert sparklog("verify", tmp_path / "store").code == 0


@pytest.mark.parametrize("is_in_store", [False, True])
def test_import_when_settings_are_not_known_then_gaps_are_refused_until_a_file_has_the_policy(
    broker: Path, tmp_path: Path, sparklog: Sparklog, is_in_store: bool
) -> None:
    """Compaction may have left them, or they are lost: the policy says which; --allow-gaps is for losses alone."""
    if is_in_store:
        other = copy_broker_root(tmp_path / "other", _SEGMENTS)
        assert sparklog("import", other, tmp_path / "store", "--execute").code == 0
    missing = _with_gap(broker)
    (broker / f"{_SEGMENTS}-0").rename(broker / f"{_SEGMENTS}-{int(is_in_store)}")
    compacted, deleted = tmp_path / "compacted.yaml", tmp_path / "deleted.yaml"
    compacted.write_text(f"topics:\n  {_SEGMENTS}: {{cleanup.policy: compact}}\n")
    deleted.write_text(f"topics:\n  {_SEGMENTS}: {{retention.ms: -1}}\n")

    refused = sparklog("import", broker, tmp_path / "store", "--allow-gaps", "--execute")
    lost = sparklog("import", broker, tmp_path / "store", "--config", deleted)
    ran = sparklog("import", broker, tmp_path / "store", "--config", compacted, "--execute")

    assert (refused.code, lost.code) == (2, 2)
    assert missing in refused.err
    assert "--config FILE" in refused.err
    assert "--allow-gaps" not in refused.err
    assert "--allow-gaps takes what is left" in lost.err
    assert ran.code == 0, ran.err
    assert sparklog("verify", tmp_path / "store").code == 0


def test_import_when_the_store_has_such_a_log_then_refused_and_nothing_changes(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Histories are not merged, of one topic or of another one with its name."""
    store = tmp_path / "store"
    assert sparklog("import", broker, store, "--topics", _CUT, "--execute").code == 0
    with closing(open_store(store, {_SEGMENTS: {}}, topic=_SEGMENTS)) as writer:
        writer.append("query", 0, in_process(numbers(0, 5)))
    before = Ledger.open(store / "ledger").version

    again = sparklog("import", broker, store, "--topics", _CUT, "--execute")
    other = sparklog("import", broker, store, "--topics", _SEGMENTS, "--execute")

    assert (again.code, other.code) == (2, 2)
    assert f"topic {_CUT} is in the store already: log={_CUT}-0 id=" in again.err
    assert f"topic {_SEGMENTS} is in the store already: log={_SEGMENTS}-0 id=" in other.err
    assert [state.intent for state in Ledger.open(store / "ledger").all_states()] == ["", ""]
    assert sparklog("verify", store).code == 0
    assert Ledger.open(store / "ledger").version >= before


def test_import_when_a_second_folder_has_other_partitions_of_the_topic_then_they_are_added(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The disks of several brokers are imported one after the other; the id says that it is one topic."""
    (broker / f"{_SEGMENTS}-0").rename(broker / f"{_SEGMENTS}-1")
    other = copy_broker_root(tmp_path / "other", _SEGMENTS)

    first = sparklog("import", broker, tmp_path / "store", "--execute")
    second = sparklog("import", other, tmp_path / "store", "--execute")

    assert (first.code, second.code) == (0, 0), second.err
    assert set(log_directories(tmp_path / "store")) == {f"{_CUT}-0", f"{_SEGMENTS}-0", f"{_SEGMENTS}-1"}
    assert sparklog("verify", tmp_path / "store").code == 0


@pytest.mark.parametrize("is_file", [False, True])
def test_import_when_the_store_has_the_topic_then_its_settings_stay_and_the_difference_is_noted(
    broker: Path, tmp_path: Path, sparklog: Sparklog, is_file: bool
) -> None:
    """Maintenance would delete by the settings of a broker, or of a file, what the store was to keep."""
    other, config = copy_broker_root(tmp_path / "other", _SEGMENTS), tmp_path / "given.yaml"
    write_cluster_metadata(other, {_SEGMENTS: {"retention.ms": "-1", "min.insync.replicas": "2"}})
    write_cluster_metadata(broker, {_SEGMENTS: {"retention.ms": "86400000", "min.insync.replicas": "1"}})
    config.write_text(f"topics:\n  {_SEGMENTS}: {{retention.ms: 86400000}}\n")
    (broker / f"{_SEGMENTS}-0").rename(broker / f"{_SEGMENTS}-1")
    assert sparklog("import", other, tmp_path / "store", "--execute").code == 0

    ran = sparklog("import", broker, tmp_path / "store", *(("--config", config) if is_file else ()), "--execute")

    assert ran.code == 0, ran.err
    assert f"{_SEGMENTS}: the store has it, and its settings stay: " in ran.out
    assert "retention.ms=-1, not 86400000" in ran.out
    assert "min.insync.replicas=2, not 1" in ran.out
    found = Store.find(tmp_path / "store")
    assert read_topic_configs(found)[_SEGMENTS].retention_ms == -1
    assert read_other_properties(found) == {_SEGMENTS: {"min.insync.replicas": "2"}}


def test_import_when_the_store_does_not_know_its_topics_settings_then_they_stay_unknown(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The broker's are of the partitions that come; nothing may be deleted from the others by them."""
    other = copy_broker_root(tmp_path / "other", _SEGMENTS)
    write_cluster_metadata(broker, {_SEGMENTS: {"retention.ms": "5"}})
    (broker / f"{_SEGMENTS}-0").rename(broker / f"{_SEGMENTS}-1")
    assert sparklog("import", other, tmp_path / "store", "--execute").code == 0

    ran = sparklog("import", broker, tmp_path / "store", "--topics", _SEGMENTS, "--execute")

    assert ran.code == 0, ran.err
    assert f"{_SEGMENTS}: the store has it, and its settings stay: retention.ms=unknown, not 5" in ran.out
    assert read_topic_configs(Store.find(tmp_path / "store")) == {}


def test_import_when_the_store_is_made_then_files_are_read_as_often_as_for_one_that_is_there(
    broker: Path, tmp_path: Path
) -> None:
    """What a copy of a running broker has not flushed is scanned once, although what is refused makes no store."""
    choice, made, there = ImportChoice(folders=(broker,)), FaultPlan(), FaultPlan()
    make_store(tmp_path / "there")

    with watched(broker, made):
        execute_import(tmp_path / "made", choice, SystemClock())
    with watched(broker, there):
        execute_import(tmp_path / "there", choice, SystemClock())

    assert made.counts["open"] == there.counts["open"] > 0


def test_import_when_one_log_is_given_then_that_one(broker: Path, tmp_path: Path, sparklog: Sparklog) -> None:
    """With the start that the checkpoint beside it says."""
    ran = sparklog("import", broker / f"{_CUT}-0", tmp_path / "store", "--execute", "--json")

    assert ran.code == 0, ran.err
    [log] = ran.objects[0]["logs"]
    assert (log["log"], log["log_start_offset"], log["log_end_offset"]) == (f"{_CUT}-0", 70, 160)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--topics", "other"), 1, "no log to import: topics=other known=v2-deleted-records, v2-segments"),
        (("--topics", "("), 2, "no regular expression: topics=("),
        (("--log-dir", "ledger"), 2, "log_dirs='ledger' is the store"),
    ],
)
def test_import_when_an_option_can_not_be_met_then_said_in_one_line(
    broker: Path, tmp_path: Path, sparklog: Sparklog, arguments: tuple[str, str], code: int, message: str
) -> None:
    """Nothing is made."""
    ran = sparklog("import", broker, tmp_path / "store", *arguments, "--execute")

    assert ran.code == code
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "store").exists()


def test_import_when_a_broker_has_the_folder_then_refused(broker: Path, tmp_path: Path, sparklog: Sparklog) -> None:
    """It might append meanwhile."""
    with lock_roots([broker]):
        ran = sparklog("import", broker, tmp_path / "store", "--execute")

    assert ran.code == 3
    assert "a broker runs on this folder" in ran.err
    assert not (tmp_path / "store").exists()


def test_import_when_the_folder_is_a_stores_then_refused(broker: Path, tmp_path: Path, sparklog: Sparklog) -> None:
    """Its ledger alone knows where its logs end."""
    assert sparklog("import", broker, tmp_path / "store", "--execute").code == 0

    logs = sparklog("import", tmp_path / "store" / "logs", tmp_path / "other", "--execute")
    around = sparklog("import", broker, broker / "store", "--execute")

    assert (logs.code, around.code) == (2, 2)
    assert "these are logs of a store" in logs.err
    assert "DIR and STORE lie in each other" in around.err


def test_import_when_other_directories_lie_there_then_they_are_listed(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """What a broker set aside, and topics of the cluster itself: a line for all logs of one."""
    for name in ("__consumer_offsets-3", "__consumer_offsets-14", "__transaction_state-0"):
        (broker / name).mkdir()
    shutil.copytree(broker / f"{_CUT}-0", broker / f"{_CUT}-0.{'ab' * 16}-delete")

    ran = sparklog("import", broker, tmp_path / "store", "--execute")

    assert ran.code == 0, ran.err
    assert "left out: __consumer_offsets: 2 logs of a topic that a cluster keeps for itself\n" in ran.out
    assert "left out: __transaction_state: 1 log of a topic that a cluster keeps for itself\n" in ran.out
    assert ran.out.count("__consumer_offsets") == 1
    assert "-delete: set aside" in ran.out
    assert set(log_directories(tmp_path / "store")) == {f"{_CUT}-0", f"{_SEGMENTS}-0"}


def test_import_when_the_broker_knows_the_settings_then_they_are_the_stores(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Properties that the store has a use for; without a retention of its own a topic keeps its records for ever."""
    settings = {_SEGMENTS: {"segment.ms": "60000", "min.insync.replicas": "1"}, _CUT: {"retention.ms": "5"}}
    write_cluster_metadata(broker, settings)

    ran = sparklog("import", broker, tmp_path / "store", "--execute")

    assert ran.code == 0, ran.err
    assert f"{_SEGMENTS}: retention.ms is its broker's default, which is not known; here it is -1" in ran.out
    found = read_topic_configs(Store.find(tmp_path / "store"))
    assert (found[_SEGMENTS].segment_ms, found[_SEGMENTS].retention_ms) == (60_000, -1)
    assert found[_CUT].retention_ms == 5
    assert read_other_properties(Store.find(tmp_path / "store")) == {_SEGMENTS: {"min.insync.replicas": "1"}}


def test_import_when_a_log_reaches_above_its_high_watermark_then_the_offsets_are_noted(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """A former follower may have what the partition never had; all of it is imported."""
    recorded = {TopicPartition(_SEGMENTS, 0): 200, TopicPartition(_CUT, 0): 160}
    (broker / "replication-offset-checkpoint").write_bytes(render_offset_checkpoint(recorded))

    ran = sparklog("import", broker, tmp_path / "store", "--execute")

    assert ran.code == 0, ran.err
    assert f"{_SEGMENTS}-0: offsets 200..239 are above the high watermark that the broker recorded last" in ran.out
    assert f"{_CUT}-0: offsets" not in ran.out
    assert _state(tmp_path / "store", _SEGMENTS).log_end_offset == 240


def test_import_when_the_file_of_high_watermarks_is_damaged_then_noted_and_imported(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """It does not decide what is taken."""
    (broker / "replication-offset-checkpoint").write_bytes(b"damaged\n")

    ran = sparklog("import", broker, tmp_path / "store", "--execute")

    assert ran.code == 0, ran.err
    assert "high watermarks are not known: " in ran.out
    assert f"path={broker / 'replication-offset-checkpoint'}" in ran.out


def test_import_when_a_file_has_settings_then_they_are_the_stores(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """In place of the broker's; problems of the file are said before anything is made."""
    write_cluster_metadata(broker, {_CUT: {"retention.ms": "5"}})
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(f"topics:\n  {_CUT}: {{retention.ms: 7}}\n  another: {{}}\n")
    bad.write_text(f"topics:\n  {_CUT}: {{retention.mss: 7}}\n")

    refused = sparklog("import", broker, tmp_path / "store", "--config", bad, "--execute")
    ran = sparklog("import", broker, tmp_path / "store", "--config", good, "--execute")

    assert refused.code == 2
    assert "bad.yaml:2: topics.v2-deleted-records.retention.mss: unknown property" in refused.err
    assert ran.code == 0, ran.err
    assert f"{_SEGMENTS}: its settings are not known" in ran.out
    assert {name: each.retention_ms for name, each in read_topic_configs(Store.find(tmp_path / "store")).items()} == {
        _CUT: 7
    }


def test_import_when_a_copy_is_asked_for_then_no_file_is_shared(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """A broker that goes on as a follower may cut its closed segments."""
    ran = sparklog("import", broker, tmp_path / "store", "--copy", "--execute", "--json")

    assert ran.code == 0, ran.err
    assert all(path.stat().st_nlink == 1 for path in (tmp_path / "store" / "logs").rglob("*.log"))
    assert json.loads(ran.out)["executed"] is True


@pytest.mark.parametrize("golden", golden_logs())
def test_import_when_a_golden_directory_then_each_record_and_the_stores_own_behind(
    golden: GoldenLog, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Any format: what the broker's consumer read is there, v2 batches follow in a segment of their own."""
    name, store, expected = golden.directory.name, tmp_path / "store", golden.expected
    topic = name.rpartition("-")[0]
    broker = copy_broker_root(tmp_path / "broker", golden.name)

    ran = sparklog("import", broker, store, "--execute")
    assert ran.code == 0, ran.err
    found = sparklog("read", store, topic, "--json").objects
    verified = sparklog("verify", store, "--deep")
    with closing(open_store(store, {topic: {}}, topic=topic)) as writer:
        writer.append("query", 0, in_process(numbers(0, 3)))
    after = sparklog("read", store, topic, "--json").objects

    assert [each["offset"] for each in found] == [each["offset"] for each in expected["records"]]
    assert verified.code == 0, verified.out
    assert after[: len(found)] == found
    assert [each["offset"] - expected["high_watermark"] for each in after[len(found) :]] == [0, 1, 2]
    assert sparklog("verify", store, "--deep").code == 0


def test_import_when_the_epoch_file_is_lost_then_its_entries_are_those_of_the_batches(
    broker: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Clients compare the epochs of batches with what a broker says."""
    (broker / f"{_SEGMENTS}-0" / "leader-epoch-checkpoint").unlink()

    ran = sparklog("import", broker, tmp_path / "store", "--execute")

    assert ran.code == 0, ran.err
    directory = log_directories(tmp_path / "store")[f"{_SEGMENTS}-0"]
    assert parse_leader_epochs((directory / "leader-epoch-checkpoint").read_bytes()) == [(0, 0), (1, 240)]
    assert sparklog("verify", tmp_path / "store").code == 0


@pytest.mark.parametrize("golden", golden_logs("v2-*"))
def test_read_committed_when_transactions_were_imported_then_as_the_brokers_consumer(
    golden: GoldenLog, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Aborted records are passed over; an open transaction ends the log, also after a sink has appended."""
    store, expected = tmp_path / "store", golden.expected
    topic = golden.directory.name.rpartition("-")[0]
    broker = copy_broker_root(tmp_path / "broker", golden.name)
    assert sparklog("import", broker, store, "--execute").code == 0
    committed = ("--isolation", "read_committed")

    found = sparklog("read", store, topic, *committed, "--json").objects
    latest = sparklog("offsets", store, topic, *committed).out
    with closing(open_store(store, {topic: {}}, topic=topic)) as writer:
        writer.append("query", 0, in_process(numbers(0, 1)))
    after = sparklog("offsets", store, topic, *committed).out

    end, is_stable = expected["last_stable_offset"], expected["last_stable_offset"] == expected["high_watermark"]
    assert [each["offset"] for each in found] == expected["read_committed_offsets"]
    assert latest == f"{topic}:0:{end}\n"
    assert after == f"{topic}:0:{end + is_stable}\n"
