"""The power goes while a broker's logs are imported: all of them are there, or none."""

from multiprocessing.context import ForkServerContext

import pytest

from sparklog.pipeline.places.store_view import open_logs
from tests.build.sink_store import contents
from tests.kill.directory_job import open_and_close
from tests.kill.import_job import IMPORTED, problems_of_import, run_import, write_places
from tests.kill.loop_disk import LoopDisk
from tests.kill.power_job import cases, cut_at, finish

pytestmark = pytest.mark.kill


@pytest.mark.parametrize(
    ("disk", "step"),
    cases(
        ["import.copied", "import.expected", "import.committed"],
        ["import.intended", "import.settings", "import.finished", "commit.written", "commit.written:2", "move.renamed"],
    ),
    indirect=["disk"],
)
def test_import_when_the_power_goes_at_a_step_then_all_logs_or_none_and_a_second_one_completes_it(
    context: ForkServerContext, disk: LoopDisk, step: str
) -> None:
    """What the ledger names has every byte, also files that are second names of the broker's."""
    store = write_places(disk.folder)
    disk.settle()
    broker = contents(disk.folder / "broker")

    cut_at(context, disk, step, run_import, store)

    finish(context, disk.folder, open_and_close, store)
    assert problems_of_import(store, broker) == []
    if not IMPORTED.keys() <= {str(each.log) for each in open_logs(store).logs}:
        finish(context, disk.folder, run_import, store)
    disk.cut_power()
    disk.plug_in()

    assert IMPORTED.keys() <= {str(each.log) for each in open_logs(store).logs}
    finish(context, disk.folder, open_and_close, store)
    assert problems_of_import(store, broker) == []
