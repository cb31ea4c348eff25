"""From a store of objects to a store of this machine, and so to a broker."""

from contextlib import closing
from pathlib import Path

from sparklog.sink.config import SinkConfig
from sparklog.sink.objects.maintain_objects import MaintainedObjects, maintain_objects
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.sink.store.store_folder import Store
from sparklog.sink.store.topic_configs import read_topic_configs
from sparklog.storage_core.clock import SystemClock
from tests.build.sink_store import in_process, numbers, read_store
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
    mounted = sparklog(
        "mount", str(store), "--new-cluster", "--out", str(tmp_path / "out"), "--broker", "1@127.0.0.1:9092"
    )
    assert mounted.code == 0, mounted.err
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("sparklog-")] == []
