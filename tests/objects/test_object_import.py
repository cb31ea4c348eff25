"""From a store of objects to a store of this machine, and so to a broker."""

from contextlib import closing
from pathlib import Path

from sparklog.pipeline.brokers.mounting.copied_store import copied_store
from sparklog.sink.config import SinkConfig
from sparklog.sink.ledger.ledger import Ledger
from sparklog.sink.ledger.versions import AsOf
from sparklog.sink.objects.maintaining.maintain_objects import MaintainedObjects, maintain_objects
from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.clock import SystemClock
from tests.build.sink_store import in_process, numbers, read_log, read_store, rows
from tests.sparklog_command import Sparklog

_TOPICS = {"events": {"partitions": 2, "segment.bytes": 2000, "batch.size": 300, "retention.ms": -1}}


def test_import_when_its_source_is_a_store_of_objects_then_offsets_epochs_and_settings_are_kept(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """The store verifies, and a mount makes a broker's directory of it."""
    config = SinkConfig.from_options(f"file://{tmp_path}/objects/store", _TOPICS, topic="events")
    assert config.objects is not None
    for batch in range(20):
        with closing(ObjectWriter(config, config.objects, SystemClock())) as writer:
            writer.append("query", batch, in_process(numbers(20 * batch, 20 * batch + 20)))
    assert [*maintain_objects(MaintainedObjects(config.objects, SystemClock(), 1 << 20))]
    store = tmp_path / "store"

    planned = sparklog("import", str(config.objects.address), str(store))
    assert (planned.code, store.exists()) == (0, False)
    done = sparklog("import", str(config.objects.address), str(store), "--execute")

    assert done.code == 0, done.err
    found = read_store(store)
    assert sorted(int(each.value or b"") for log in found.values() for each in log) == list(range(400))
    for log in found.values():
        assert [each.offset for each in log] == list(range(len(log)))
    assert len(list((store / "logs" / "events-0").glob("*.log"))) > 2
    epochs = (store / "logs" / "events-0" / "leader-epoch-checkpoint").read_text().splitlines()
    assert int(epochs[1]) >= 20  # one for each opening
    assert read_topic_configs(Store.find(store))["events"].retention_ms == -1
    assert sparklog("verify", str(store), "--deep").code == 0
    assert _left_beside(tmp_path) == []


def _left_beside(folder: Path) -> list[str]:
    """Return the names of copies that a command has left."""
    return [path.name for path in folder.iterdir() if path.name.startswith("sparklog-")]


def test_mount_when_its_source_is_a_store_of_objects_then_as_of_a_store_with_the_same_logs(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """Also of an earlier version, and where offsets have gaps; the plan leaves nothing."""
    config = SinkConfig.from_options(f"file://{tmp_path}/objects/store", _TOPICS, topic="events", offsets="preserved")
    assert config.objects is not None
    versions = []
    for batch in range(2):
        with closing(ObjectWriter(config, config.objects, SystemClock())) as writer:
            some = range(40 * batch, 40 * batch + 40)
            given = rows(offset=[3 * n for n in some], partition=[n % 2 for n in some], value=[f"{n}" for n in some])
            writer.append("query", batch, in_process(given))
        versions.append(ObjectLedger.open(config.objects).version)
    address, out = str(config.objects.address), tmp_path / "out"
    options = ("--new-cluster", "--broker", "1@127.0.0.1:9092", "--out")

    planned = sparklog("mount", address, *options, str(out))
    assert (planned.code, out.exists()) == (0, False), planned.err
    done = sparklog("mount", address, *options, str(out), "--execute")
    before = sparklog("mount", address, *options, str(tmp_path / "before"), "--as-of", str(versions[0]), "--execute")
    deep = sparklog("mount", address, *options, str(tmp_path / "new" / "out"), "--execute")
    unknown = sparklog("mount", address, *options, str(tmp_path / "other"), "--topics", "evnts")
    taken = sparklog("mount", address, *options, str(out))

    assert done.code == 0, done.err
    assert f"ledger version {versions[1]}," in done.out
    assert f"ledger version {versions[0]}," in before.out
    for folder, count in ((out, 80), (tmp_path / "before", 40)):
        found = {name: read_log(folder / "data" / name) for name in ("events-0", "events-1")}
        assert sorted(int(each.value or b"") for log in found.values() for each in log) == list(range(count))
        assert all(each.offset == 3 * int(each.value or b"") for log in found.values() for each in log)
    assert deep.code == 0, deep.err
    assert (unknown.code, "known=events" in unknown.err) == (1, True)
    assert (taken.code, "not an empty folder" in taken.err) == (2, True)
    assert _left_beside(tmp_path) == []


def test_copy_when_made_for_a_mount_then_later_commands_name_its_source(tmp_path: Path) -> None:
    """The copy is gone by then; the version is named only where one was asked for."""
    config = SinkConfig.from_options(f"file://{tmp_path}/objects/store", _TOPICS, topic="events")
    assert config.objects is not None
    with closing(ObjectWriter(config, config.objects, SystemClock())) as writer:
        writer.append("query", 0, in_process(numbers(0, 20)))
    version = ObjectLedger.open(config.objects).version
    found = []

    for as_of in (None, AsOf(version=version)):
        with copied_store(config.objects, tmp_path / "out", None, as_of) as choice:
            found.append(
                (choice.given, choice.as_of, choice.plan(Ledger.open(choice.store.ledger_path)).ledger_version)
            )

    address = str(config.objects.address)
    assert found == [(address, None, version), (address, version, version)]
    assert _left_beside(tmp_path) == []
