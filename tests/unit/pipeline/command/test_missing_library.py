"""The wheel does not require what clusters bring: where it is missing, one line says how to get it."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from sparklog.sink.config import SinkConfig
from sparklog.sink.objects.object_writer import ObjectWriter
from sparklog.storage_core.clock import SystemClock
from tests.build.sink_store import EVENTS, in_process, numbers


def _run(missing: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where a library is missing."""
    program = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"  # the import system takes this for a module that is not there
        "from sparklog.pipeline.command.cli import main\n"
        f"main({list(arguments)!r})\n"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)


def test_command_when_pyarrow_is_missing_then_one_line_names_the_extra(tmp_path: Path) -> None:
    done = _run("pyarrow", "read", str(tmp_path), "t")

    assert done.returncode == 2
    assert done.stderr == (
        "error: the library pyarrow is missing, which clusters have: pip install 'sparklog[spark]'\n"
    )


def test_maintain_when_the_store_is_an_address_then_it_needs_no_pyspark(tmp_path: Path) -> None:
    """The archive of Python for clusters has none."""
    config = SinkConfig.from_options(f"file://{tmp_path}/store", EVENTS, topic="events")
    assert config.objects is not None
    with closing(ObjectWriter(config, config.objects, SystemClock())) as writer:
        writer.append("query", 0, in_process(numbers(0, 20)))

    done = _run("pyspark", "maintain", str(config.objects.address), "--execute")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("done: ")
