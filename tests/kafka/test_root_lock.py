"""A log directory is a broker's or a sink's, never both at a time: each is refused by the other one's lock."""

from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import StoreLockedError
from tests.build.sink_store import in_process, numbers, open_events
from tests.kafka.broker import KafkaBroker
from tests.kafka.toolbox import KafkaToolbox, KafkaToolError

pytestmark = pytest.mark.kafka


def test_log_directory_when_a_sink_or_a_broker_has_it_then_the_other_one_is_refused(
    toolbox: KafkaToolbox, tmp_path: Path
) -> None:
    """The broker ends with its own words, and starts once the sink is closed."""
    store = tmp_path / "store"
    with closing(open_events(store)) as sink, KafkaBroker(toolbox, tmp_path / "broker") as broker:
        sink.append("q", 0, in_process(numbers(0, 100)))
        broker.format(Store.find(store).store_id)
        roots = {"log.dirs": f"{broker.log_dir},{store / 'logs'}", "metadata.log.dir": broker.log_dir}
        with pytest.raises(KafkaToolError, match=r"Failed to acquire lock on file .lock in .*/store/logs"):
            broker.start(roots)
        sink.append("q", 1, in_process(numbers(100, 200)))

        sink.close()
        broker.start(roots)
        with pytest.raises(StoreLockedError, match=r"a broker runs on this folder.*store/logs/\.lock"):
            open_events(store)
        broker.stop()
