"""The archive of Python for clusters, and a stream with what is in it."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.text_stream import write_text_stream

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 900
_LARGEST_ARCHIVE_BYTES = 250 << 20


def _names(lock: Path) -> dict[str, list[str]]:
    """Return the entries of a lock file, each with its hashes but without its markers, by name."""
    found: dict[str, list[str]] = {}
    text = re.sub(r" ; [^\\\n]*", " ", lock.read_text())
    for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
        if entry.strip():
            found.setdefault(entry.partition("==")[0], []).append(entry)
    return found


def test_cluster_lock_when_compared_then_has_the_same_versions_without_spark() -> None:
    """What is on a cluster is what the tests ran with; pyspark is the cluster's own."""
    whole, cluster = _names(_ROOT / "requirements.lock"), _names(_ROOT / "requirements-cluster.lock")

    assert {name: whole[name] for name in cluster} == cluster
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = [*project["dependencies"], *extras["spark"], *extras["s3"], *extras["hdfs"]]
    assert {each.partition(">=")[0].lower() for each in required} - cluster.keys() == {"pyspark"}
    assert "py4j" not in cluster


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the archive."""
    if not os.environ.get("SPARKLOG_SOAK"):
        pytest.skip("PACKING FOR A CLUSTER WAS NOT TESTED: it fetches packages for minutes; SPARKLOG_SOAK=1 does it")
    folder = tmp_path_factory.mktemp("packing")
    source = folder / "source"
    shutil.copytree(_ROOT, source, ignore=shutil.ignore_patterns(".*", "demo", "tests", "build", "dist", "*.egg-info"))
    _do([sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(folder), "."], source)
    (wheel,) = folder.glob("*.whl")
    program = str(source / "deploy" / "pack_environment.sh")
    _do([program, sys.executable, str(wheel), str(folder / "environment.tar.gz")], folder)
    return folder


def _do(command: list[str], folder: Path, **variables: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_archive_when_packed_then_has_sparklog_and_no_spark(archive: Path) -> None:
    """A cluster has Spark; 492 MB of it again would cross the network with each job."""
    with tarfile.open(archive / "environment.tar.gz") as packed:
        names = packed.getnames()
    packages = {found[1] for name in names if (found := re.search(r"site-packages/(\w+)", name))}

    assert {"sparklog", "pyarrow", "numba"} <= packages
    assert not {"pyspark", "py4j", "pytest"} & packages
    assert (archive / "environment.tar.gz").stat().st_size < _LARGEST_ARCHIVE_BYTES


@pytest.mark.spark
def test_stream_when_workers_run_the_archives_python_then_records_are_there(archive: Path) -> None:
    """Executors of their own processes, with nothing of this project but what is in the archive."""
    job = archive / "job"
    (job / "data").mkdir(parents=True)
    (job / "data" / "a").write_text("one\ntwo\n")
    with tarfile.open(archive / "environment.tar.gz") as packed:
        packed.extractall(job / "environment", filter="fully_trusted")
    spark = {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "600m",
        "spark.ui.enabled": "false",
        "spark.python.daemon.module": "sparklog.pipeline.spark.worker_daemon",
    }
    write_text_stream(job, spark)
    command = [sys.executable, str(_ROOT / "sparklog" / "__main__.py"), "stream", "--config", "settings.yaml"]
    python = str(job / "environment" / "bin" / "python")
    _do(command, job, PYSPARK_PYTHON=python, SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH="")

    batches = LogReader(job / "store" / "logs" / "t-0").read(0)
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [b"one", b"two"]
