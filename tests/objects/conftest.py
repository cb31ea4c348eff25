"""The storages that tests run on: a local folder, an S3 server and an HDFS; says loudly which could not be had."""

import uuid
from collections.abc import Iterator

import pytest

from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from tests.maven_jars import JarsUnavailableError
from tests.objects.gateway import Gateway, GatewayUnavailableError, running_gateway
from tests.objects.hadoop import running_hdfs

_NO_VERDICT = "NOT TESTED ON THIS STORAGE"


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """An S3 server with one bucket."""
    try:
        with running_gateway(tmp_path_factory.mktemp("s3")) as started:
            yield started
    except GatewayUnavailableError as error:
        pytest.skip(f"{_NO_VERDICT}: S3: {error}")


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an HDFS."""
    try:
        with running_hdfs(tmp_path_factory.mktemp("hdfs")) as address:
            yield address
    except JarsUnavailableError as error:
        pytest.skip(f"{_NO_VERDICT}: HDFS: {error}")


@pytest.fixture(params=["file", "s3", "hdfs"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StoragePlace:
    """A folder of its own on each storage."""
    if request.param == "file":
        return StoragePlace(parse_address(f"file://{tmp_path_factory.mktemp('objects')}/store"))
    if request.param == "s3":
        gateway: Gateway = request.getfixturevalue("gateway")
        return StoragePlace(parse_address(f"{gateway.address}/{uuid.uuid4().hex}"), gateway.options)
    return StoragePlace(parse_address(f"{request.getfixturevalue('hdfs')}/{uuid.uuid4().hex}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End the run with one line for each storage that nothing was tested on, and why."""
    reasons = {
        str(report.longrepr[2]).partition(f"{_NO_VERDICT}: ")[2]
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and _NO_VERDICT in str(report.longrepr[2])
    }
    for reason in sorted(reasons):
        terminalreporter.write_sep("!", f"{_NO_VERDICT}: {reason}", red=True, bold=True)
