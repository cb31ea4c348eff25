"""`sparklog mount --into`: what a broker's folders get, and what is refused; a broker judges it in `tests/kafka`."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.locks.broker_lock import lock_roots
from sparklog.sink.store.store_folder import Store, random_id
from tests.build.broker_target import make_target
from tests.build.sink_store import contents, in_process, log_directories, numbers, open_events, open_store, rows
from tests.sparklog_command import Sparklog

_OTHER_ID = "QwPJrpf0TCG88m6Shk8vCg"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store of two logs in several segments."""
    path = tmp_path / "store"
    with closing(open_events(path)) as writer:
        for turn in range(4):
            writer.append("q", turn, in_process(numbers(turn * 40, (turn + 1) * 40)))
    return path


def _ids(store: Path) -> dict[str, str]:
    states = Ledger.open(Store.find(store).ledger_path).states()
    return {log.topic: state.topic_id for log, state in states.items()}


@pytest.fixture
def target(store: Path, tmp_path: Path) -> Path:
    """A stopped broker's folder that has the topic with the store's id, and another one."""
    ids = _ids(store) | {"own": _OTHER_ID}
    return make_target(tmp_path / "target", {"events": 2, "own": 1}, ids, {"events": {"retention.ms": "-1"}, "own": {}})


def _logs(store: Path) -> dict[str, bytes]:
    """Return the bytes of each `.log`, by log and file."""
    return {
        f"{name}/{path.name}": path.read_bytes()
        for name, directory in log_directories(store).items()
        for path in directory.glob("*.log")
    }


def _placed(target: Path) -> dict[str, bytes]:
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in target.glob("*/*.log")
        if path.parent.name.startswith("events")
    }


def test_mount_into_when_it_is_not_executed_then_a_plan_and_nothing_changes(
    store: Path, target: Path, sparklog: Sparklog
) -> None:
    """Partitions, offsets and bytes."""
    before = contents(target)

    ran = sparklog("mount", store, "--into", target)

    assert ran.code == 0, ran.err
    assert "events: 2 partitions, 160 offsets" in ran.out
    assert "planned: 2 logs" in ran.out
    assert contents(target) == before


def test_mount_into_when_it_is_executed_then_the_logs_are_there_sound_and_the_others_as_they_were(
    store: Path, target: Path, sparklog: Sparklog
) -> None:
    """The marker of a clean shutdown is gone, so that the broker checks what it got; lines of other logs stay."""
    (target / "recovery-point-offset-checkpoint").write_text("0\n2\nevents 0 0\nown 0 7\n")
    before = contents(target / "own-0")

    ran = sparklog("mount", store, "--into", target, "--execute", "--json")

    assert ran.code == 0, ran.err
    assert ran.objects[0]["executed"] is True
    assert _placed(target) == _logs(store)
    assert contents(target / "own-0") == before
    assert not (target / ".kafka_cleanshutdown").exists()
    assert "own 0 7" in (target / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert [each.name for each in target.iterdir() if each.name.endswith("-delete")] == []
    assert sparklog("verify", target / "events-0").code == 0
    assert sparklog("verify", target / "events-1").code == 0


def test_mount_into_when_it_is_done_already_then_nothing_is_placed_again(
    store: Path, target: Path, sparklog: Sparklog
) -> None:
    """The broker's directories stay, with what the broker has added to them."""
    assert sparklog("mount", store, "--into", target, "--execute").code == 0
    (target / "events-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n4 80\n")
    (target / ".kafka_cleanshutdown").touch()
    before = contents(target)

    ran = sparklog("mount", store, "--into", target, "--execute")

    assert ran.code == 0, ran.err
    assert "2 logs are there already" in ran.out
    assert contents(target) == before


def test_mount_into_when_a_log_starts_inside_a_segment_then_the_broker_starts_there(
    store: Path, target: Path, sparklog: Sparklog
) -> None:
    """An older line of the log goes, those of other logs stay."""
    (target / "log-start-offset-checkpoint").write_text("0\n2\nevents 1 5\nown 0 7\n")
    assert sparklog("delete-records", store, "events:0", "--before", 3, "--execute").code == 0

    assert sparklog("mount", store, "--into", target, "--execute").code == 0

    assert (target / "log-start-offset-checkpoint").read_text() == "0\n2\nevents 0 3\nown 0 7\n"


def test_mount_into_when_epochs_are_above_the_brokers_then_they_are_lowered_in_copies(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The store's own files keep theirs; run again, the logs count as there."""
    for turn in range(4, 7):
        with closing(open_events(store, take_lock_by_force=True)) as writer:
            writer.append("q", turn, in_process(numbers(turn * 40, (turn + 1) * 40)))
    target, before = make_target(tmp_path / "target", {"events": 2}, _ids(store), epoch=1), _logs(store)

    ran = sparklog("mount", store, "--into", target, "--execute")
    again = sparklog("mount", store, "--into", target, "--execute")

    assert ran.code == 0, ran.err
    assert "events-0: its leader epochs are above the broker's: copied, with epochs up to 1" in ran.out
    epochs = (target / "events-0" / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    assert [line.split()[0] for line in epochs] == ["0", "1"]
    assert _placed(target).keys() == before.keys()
    assert _placed(target) != before
    assert _logs(store) == before
    assert "2 logs are there already" in again.out
    assert sparklog("verify", target / "events-0").code == 0


def test_mount_into_when_topics_have_several_replicas_then_no_file_has_two_names(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """A follower truncates its log in place."""
    target = make_target(tmp_path / "target", {"events": 2}, _ids(store), replicas=(1, 2))

    assert sparklog("mount", store, "--into", target, "--execute").code == 0

    assert {path.stat().st_nlink for path in target.glob("events-*/*.log")} == {1}


def test_mount_into_when_topics_were_made_anew_then_they_keep_their_ids(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """A broker knows no other one."""
    target = make_target(tmp_path / "target", {"events": 2}, {"events": _OTHER_ID})

    ran = sparklog("mount", store, "--into", target, "--topics-made-anew", "--execute")

    assert ran.code == 0, ran.err
    assert _OTHER_ID in (target / "events-1" / "partition.metadata").read_text()
    assert _placed(target) == _logs(store)


def _unlocked(found: dict[str, bytes]) -> dict[str, bytes]:
    """Return files without the lock, which stays."""
    return {name: each for name, each in found.items() if not name.endswith(".lock")}


def _refused(store: Path, target: Path, sparklog: Sparklog, *options: str) -> str:
    """Run the mount, which is refused and changes nothing, and return what it says."""
    before = contents(target)
    ran = sparklog("mount", store, "--into", target, *options, "--execute")
    assert ran.code in (1, 2, 3), ran.out
    assert _unlocked(contents(target)) == _unlocked(before)
    assert len(ran.err.splitlines()) == 1
    return ran.err


def test_mount_into_when_a_broker_holds_the_folder_then_refused(store: Path, target: Path, sparklog: Sparklog) -> None:
    """It would not see the files, or append to the old ones."""
    with lock_roots([target]):
        assert "a broker runs on this folder" in _refused(store, target, sparklog)


def test_mount_into_when_the_topic_has_another_id_then_refused(store: Path, tmp_path: Path, sparklog: Sparklog) -> None:
    """It may be another topic of that name."""
    target = make_target(tmp_path / "target", {"events": 2}, {"events": _OTHER_ID})

    said = _refused(store, target, sparklog)

    assert f"the target's topic is another one: topic=events target_id={_OTHER_ID} store_id=" in said
    assert "--topics-made-anew" in said


@pytest.mark.parametrize(("count", "said"), [(3, "topic=events target=3 store=2"), (1, "does not have this log")])
def test_mount_into_when_the_topic_has_other_partitions_then_refused(
    store: Path, tmp_path: Path, sparklog: Sparklog, count: int, said: str
) -> None:
    """Keys would be in others."""
    target = make_target(tmp_path / "target", {"events": count}, _ids(store))

    assert said in _refused(store, target, sparklog)


def test_mount_into_when_another_broker_has_further_partitions_then_refused(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """The broker's copy of the metadata has them."""
    target = make_target(tmp_path / "target", {"events": 3}, _ids(store))
    shutil.rmtree(target / "events-2")

    assert "topic=events target=3 store=2" in _refused(store, target, sparklog)


def test_mount_into_when_a_log_has_records_then_refused_by_name(
    store: Path, target: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Also if only its newest records are others, or more."""
    with closing(open_events(tmp_path / "other")) as writer:
        writer.append("q", 0, in_process(numbers(0, 10)))
    found = log_directories(tmp_path / "other")["events-1"]
    shutil.copyfile(found / f"{0:020}.log", target / "events-1" / f"{0:020}.log")

    said = _refused(store, target, sparklog)

    assert "the target has records: log=events-1 offsets 0..3 " in said
    assert "nothing is overwritten" in said


def test_mount_into_when_the_broker_has_newer_records_then_refused_by_name(
    store: Path, target: Path, sparklog: Sparklog
) -> None:
    """An older mount does not take records back."""
    with closing(open_events(store)) as writer:
        writer.append("q", 4, in_process(numbers(160, 200)))
    assert sparklog("mount", store, "--into", target, "--execute").code == 0
    assert sparklog("truncate", store, "--to", "events:0:80", "--execute").code == 0

    said = _refused(store, target, sparklog, "--allow-gaps")  # a batch across the new end is lost

    assert "the target has records: log=events-0 offsets 0..113 " in said


def test_mount_into_when_the_brokers_records_are_gone_then_offsets_are_not_given_twice(
    store: Path, target: Path, sparklog: Sparklog
) -> None:
    """The log is empty, but ends above the store's."""
    log = target / "events-0"
    for path in log.glob(f"{0:020}.*"):
        path.rename(path.with_name(path.name.replace(f"{0:020}", f"{500:020}")))

    said = _refused(store, target, sparklog)

    assert "the target has given offsets to records that are gone: log=events-0 target_end=500 store=0..90 " in said


def test_mount_into_when_a_log_is_damaged_then_refused_and_nothing_is_left(
    store: Path, target: Path, sparklog: Sparklog
) -> None:
    """The store's file is named; logs that were sound are not put in either."""
    first = sorted(log_directories(store)["events-1"].glob("*.log"))[0]
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)

    assert "a log of the store is damaged" in _refused(store, target, sparklog)
    assert sorted(path.name for path in target.iterdir() if path.is_dir() and "events" in path.name) == [
        "events-0",
        "events-1",
    ]


def test_mount_into_when_the_topic_is_not_there_then_said_how_to_make_it(
    store: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """With its number of partitions."""
    target = make_target(tmp_path / "target", {"own": 1}, {"own": random_id()})

    said = _refused(store, target, sparklog)

    assert "the target does not have this log: log=events-0" in said
    assert "create the topic with 2 partitions" in said


def test_mount_into_when_the_folders_are_of_two_brokers_then_refused(
    store: Path, target: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Each broker is mounted on its own."""
    other = make_target(tmp_path / "other", {"x": 1}, {"x": random_id()})
    (other / "meta.properties").write_text("version=1\ncluster.id=another\nnode.id=1\n")

    assert "--into must name each of the log.dirs of one broker once" in _refused(
        store, target, sparklog, "--into", str(other)
    )


def test_mount_into_when_the_broker_has_two_folders_then_each_log_goes_where_its_directory_is(
    store: Path, target: Path, tmp_path: Path, sparklog: Sparklog
) -> None:
    """Each folder has its own checkpoint files."""
    other = make_target(tmp_path / "other", {}, {})
    (target / "events-1").rename(other / "events-1")

    ran = sparklog("mount", store, "--into", target, "--into", other, "--execute")

    assert ran.code == 0, ran.err
    assert _placed(target) | _placed(other) == _logs(store)
    assert (other / "recovery-point-offset-checkpoint").read_text().splitlines()[2].startswith("events 1 ")


def test_mount_into_when_the_folder_is_no_brokers_then_refused(store: Path, tmp_path: Path, sparklog: Sparklog) -> None:
    """A store's logs, the store itself, any other folder."""
    (tmp_path / "folder").mkdir()

    assert "it has no meta.properties" in _refused(store, tmp_path / "folder", sparklog)
    assert "these are logs of a store" in _refused(store, store, sparklog)


def test_mount_into_when_the_brokers_retention_would_delete_records_then_a_warning(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """By the settings that the broker has, or by Kafka's default."""
    path = tmp_path / "store"
    with closing(open_store(path, {"t": {"retention.ms": -1}}, topic="t")) as writer:
        writer.append("q", 0, in_process(rows(value=["old"], timestamp=[1_700_000_000_000], partition=[0])))
    target = make_target(tmp_path / "target", {"t": 1}, _ids(path))

    ran = sparklog("mount", path, "--into", target)

    assert "warning: t-0: the broker will delete 1 segments by retention.ms, which the topic does not set" in ran.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give one of --new-cluster, with --out DIR, and --into DIR"),
        (("--new-cluster", "--into", "target"), "give one of --new-cluster, with --out DIR, and --into DIR"),
        (("--out", "new"), "give one of --new-cluster, with --out DIR, and --into DIR"),
        (("--new-cluster",), "--new-cluster needs --out DIR"),
        (("--into", "target", "--out", "new"), "--out goes with --new-cluster, not with --into"),
        (("--into", "target", "--broker", "1@h:1"), "--broker goes with --new-cluster, not with --into"),
        (("--new-cluster", "--out", "new", "--topics-made-anew"), "--topics-made-anew goes with --into"),
        (("--new-cluster", "--out", "new", "--create-topics", "h:1"), "--create-topics goes with --into"),
        (("--into", "target", "--replication-factor", "2"), "are for --create-topics"),
    ],
)
def test_mount_when_its_options_contradict_each_other_then_said_which(
    store: Path, target: Path, sparklog: Sparklog, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    """Exactly one way is chosen."""
    monkeypatch.chdir(target.parent)

    ran = sparklog("mount", store, *options)

    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert not Path("new").exists()


def test_mount_when_topics_are_created_with_replicas_then_the_factor_is_the_running_clusters(
    store: Path, target: Path, sparklog: Sparklog
) -> None:
    """How many brokers that cluster has is not known here; what is wrong is another option."""
    options = ("--replication-factor", "2", "--create-topics", "h:1", "--command-config", str(target / "none"))

    ran = sparklog("mount", store, "--into", target, *options)

    assert (ran.code, str(target / "none") in ran.err) == (1, True), ran.err
