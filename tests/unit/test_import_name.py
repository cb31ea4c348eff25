"""Sparklog takes one name of a program's imports: `sparklog`."""

import subprocess
import sys
from pathlib import Path


def test_sparklog_when_a_project_has_packages_of_the_same_names_then_both_are_imported(tmp_path: Path) -> None:
    """A project may have a `pipeline`, a `sink` and a `storage_core` of its own."""
    for name in ("pipeline", "sink", "storage_core"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWN = '{name}'\n")
    program = (
        "import pipeline, sink, storage_core; from sparklog import LogSink, register, errors;"
        "print(pipeline.OWN, sink.OWN, storage_core.OWN, LogSink.__module__, register.__module__, errors.__name__)"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.stdout.split() == [
        "pipeline",
        "sink",
        "storage_core",
        "sparklog.sink.log_sink",
        "sparklog.pipeline.reader.data_source",
        "sparklog.storage_core.errors",
    ]


def test_sparklog_when_a_module_of_it_is_imported_then_pyspark_is_not() -> None:
    """A reading verb and a task of another package wait for no Spark."""
    program = "import sys, sparklog.storage_core.log.read.log_reader; print('pyspark' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
