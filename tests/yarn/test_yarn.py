"""Both jobs on a YARN of one node, from the archive and the files in `deploy/yarn`: `make yarn-test`."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import yaml

from sparklog.sink.objects.object_ledger import ObjectLedger
from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from tests.maven_jars import JarsUnavailableError, obtain_jars
from tests.objects.hadoop import running_servers
from tests.sparklog_command import Sparklog

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).resolve().parents[2]
_HERE = Path(__file__).resolve().parent
_DEPLOY = _ROOT / "deploy" / "yarn"
_SPARK = Path(pyspark.__file__).parent
_ARCHIVE = "SPARKLOG_ARCHIVE"
_FILES = 10
_LINES = 200
_TIMEOUT_S = 900
_APP_MASTER = b"org.apache.spark.deploy.yarn.ApplicationMaster"


class _Yarn:
    """A running cluster.

    Attributes:
        address: of its HDFS.
        folder: of its files.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self._jobs: list[subprocess.Popen[bytes]] = []

    def put(self, name: str, data: bytes) -> None:
        """Write a file to the HDFS."""
        folder, _, last = name.rpartition("/")
        StoragePlace(parse_address(f"{self.address}/{folder}")).open().create(last, data)

    def submit(self, mode: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a job with the settings of `deploy/yarn`, made small."""
        small = {
            "spark.yarn.jars": f"local:{_SPARK}/jars/*",
            "spark.driver.memory": "600m",
            "spark.executor.memory": "600m",
            "spark.executor.memoryOverhead": "600m",
            "spark.executor.cores": "1",
            "spark.ui.enabled": "false",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        }
        if mode == "client":
            small["spark.pyspark.driver.python"] = sys.executable
        command = [_SPARK / "bin" / "spark-submit", "--properties-file", _DEPLOY / "sparklog.conf"]
        files = f"{self.folder}/settings.yaml,{_DEPLOY}/log4j2.properties"
        options = ["--load-spark-defaults", "--deploy-mode", mode, "--files", files]
        conf = [f"--conf={name}={value}" for name, value in small.items()]
        with (self.folder / f"submit-{len(self._jobs)}.log").open("wb") as output:
            job = subprocess.Popen(
                [*map(str, [*command, *options]), *conf, str(_ROOT / "sparklog" / "__main__.py"), *arguments],
                cwd=self.folder,
                env={
                    **os.environ,
                    "SPARK_HOME": str(_SPARK),
                    "HADOOP_CONF_DIR": str(self.folder / "conf"),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._jobs.append(job)
        return job

    def end(self) -> None:
        """End jobs that a failed test has left."""
        for each in self._jobs:
            each.kill()
            each.wait()

    def attempts(self) -> int:
        """Return how many application masters the newest application has had."""
        masters = self.folder.glob("target/**/application_*/container_*_000001/stderr")
        newest = max(path.parents[1].name for path in masters)
        return len({*self.folder.glob(f"target/**/{newest}/container_*_000001/stderr")})

    def output(self) -> Path:
        """Return the file with the output of the newest job."""
        return self.folder / f"submit-{len(self._jobs) - 1}.log"

    def finish(self, job: subprocess.Popen[bytes]) -> None:
        """Wait for a job's end; fail with the last lines of its containers if it failed."""
        try:
            code = job.wait(_TIMEOUT_S)
        finally:
            job.kill()
        if code != 0:
            logs = sorted(self.folder.glob("target/**/container_*/std*"), key=lambda path: path.stat().st_mtime)
            tails = [f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in logs if path.is_file()]
            pytest.fail(self.output().read_text()[-3000:] + "\n".join(tails[-4:]))


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Yarn]:
    """An HDFS and a YARN, with the archive where `deploy/yarn` expects it."""
    archive = os.environ.get(_ARCHIVE)
    if archive is None:
        pytest.skip("YARN WAS NOT TESTED: it takes minutes; make yarn-test does it")
    try:
        jars = obtain_jars(_HERE / "pom.xml", "yarn")
    except JarsUnavailableError as error:
        pytest.skip(f"YARN WAS NOT TESTED: {error}")
    folder = tmp_path_factory.mktemp("yarn")
    (folder / "conf").mkdir()
    (folder / "first").mkdir()
    shutil.copy(_HERE / "capacity-scheduler.xml", folder / "first")
    places = [folder / "conf", folder / "data"]
    class_path = [str(folder / "first"), f"{jars}/*"]
    with running_servers(_HERE / "MiniCluster.java", places, folder, class_path, "768m") as address:
        yarn = _Yarn(address, folder)
        yarn.put("apps/sparklog/environment.tar.gz", Path(archive).read_bytes())
        settings = yaml.safe_load((_DEPLOY / "settings.yaml").read_text())
        settings |= {
            "checkpoint": f"{address}/checkpoints/archive",
            "source": {"format": "text", "path": "hdfs:///input", "options": {"maxFilesPerTrigger": 1}},
            "records": {"topic": "'orders'", "value": "value"},
        }
        (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
        try:
            yield yarn
        finally:
            yarn.end()


def _put_input(yarn: _Yarn, files: range) -> None:
    for number in files:
        lines = (f"{number * _LINES + line}\n" for line in range(_LINES))
        yarn.put(f"input/{number:04d}", "".join(lines).encode())


def _kill_app_master(yarn: _Yarn) -> None:
    """End the JVM of the cluster's one application master, as a lost node would."""
    (master,) = [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdigit()
        and _APP_MASTER in (words := _command_line(path).split(b"\0"))
        and words[0].endswith(b"/java")
        and (path / "cwd").readlink().is_relative_to(yarn.folder)
    ]
    os.kill(master, signal.SIGKILL)


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _numbers(sparklog: Sparklog, store: str) -> list[int]:
    """Return the values, after checking that offsets are dense."""
    ran = sparklog("read", store, "orders", "--json")
    assert ran.code == 0, ran.err
    records = [json.loads(line) for line in ran.out.splitlines()]
    for partition in {each["partition"] for each in records}:
        offsets = [each["offset"] for each in records if each["partition"] == partition]
        assert offsets == list(range(len(offsets)))
    return sorted(int(base64.b64decode(each["value"])) for each in records)


def test_stream_when_its_application_master_is_killed_then_the_next_attempt_completes_the_store(
    yarn: _Yarn, sparklog: Sparklog
) -> None:
    """Then in client mode, then maintenance, each with the files in `deploy/yarn`."""
    store = f"{yarn.address}/archive"
    _put_input(yarn, range(_FILES))

    stream = yarn.submit("cluster", "stream", "--config", "settings.yaml", "--available-now")
    deadline = time.monotonic() + _TIMEOUT_S
    while (ledger := ObjectLedger.find(StoragePlace(parse_address(store)))) is None or ledger.version < 4:
        assert stream.poll() is None, yarn.output().read_text()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    _kill_app_master(yarn)
    assert len(_numbers(sparklog, store)) < _FILES * _LINES
    yarn.finish(stream)
    assert yarn.attempts() == 2
    assert _numbers(sparklog, store) == list(range(_FILES * _LINES))

    _put_input(yarn, range(_FILES, _FILES + 2))
    yarn.finish(yarn.submit("client", "stream", "--config", "settings.yaml", "--available-now"))
    assert _numbers(sparklog, store) == list(range((_FILES + 2) * _LINES))

    yarn.finish(yarn.submit("cluster", "maintain", "hdfs:///archive", "--execute"))
    assert _numbers(sparklog, store) == list(range((_FILES + 2) * _LINES))
    assert sparklog("verify", store, "--deep").code == 0
