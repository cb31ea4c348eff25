"""Kafka's jars and one broker for the whole suite; says so, loudly, where there is no Kafka to judge."""

from collections.abc import Iterator

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.toolbox import KafkaToolbox, KafkaUnavailableError

_NO_VERDICT = "KAFKA DID NOT JUDGE"


@pytest.fixture(scope="session")
def toolbox() -> KafkaToolbox:
    """Kafka's jars; every test that needs them is skipped, with a banner at the end, where they cannot be had."""
    try:
        return KafkaToolbox.obtain()
    except KafkaUnavailableError as error:
        pytest.skip(f"{_NO_VERDICT}: {error}")


@pytest.fixture(scope="session")
def broker(toolbox: KafkaToolbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running broker without topics, shared by the suite: each test brings topics of its own names."""
    with KafkaBroker(toolbox, tmp_path_factory.mktemp("broker")) as started:
        started.format()
        started.start()
        yield started


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End the run with one line nobody can miss when Kafka did not judge, and why."""
    reasons = {
        str(report.longrepr[2]).partition(f"{_NO_VERDICT}: ")[2]
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and _NO_VERDICT in str(report.longrepr[2])
    }
    for reason in sorted(reasons):
        terminalreporter.write_sep("!", f"{_NO_VERDICT}: {reason}", red=True, bold=True)
