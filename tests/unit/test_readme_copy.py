"""The shell lines of the README that put a topic under a broker, as they stand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documented_samples import code_blocks

_README = Path(__file__).resolve().parents[2] / "README.md"
_TOPIC = "orders"
_LOGS = ("orders-0", "orders-1", "orders-eu-0", "orders-eu-1", "all-orders-0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store and a broker's log directory that both have logs of topics with names alike."""
    for name in _LOGS:
        _fill(tmp_path / "store" / "logs" / name, {"00.log": "ours", "00.index": "ours", "partition.metadata": "ours"})
        _fill(tmp_path / "broker" / name, {"00.log": "theirs", "99.log": "theirs", "partition.metadata": "theirs"})
    settings = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "batch.size": 900}
    configs = {_TOPIC: settings, "orders-eu": {"retention.ms": 9}}
    _fill(tmp_path / "store" / "control", {"topic-configs.json": json.dumps({"version": 0, "topics": configs})})
    _fill(tmp_path / "broker", {".kafka_cleanshutdown": ""})
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def _fill(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def _run(folder: Path, word: str, topic: str = _TOPIC) -> "subprocess.CompletedProcess[str]":
    """Run the block that has this word."""
    (block,) = [each for each in code_blocks(_README) if word in each]
    return subprocess.run(
        ["bash", "-c", block],
        cwd=folder,
        env={**os.environ, "TOPIC": topic, "BROKER_LOGS": str(folder / "broker")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _broker(folder: Path) -> dict[str, dict[str, str]]:
    return {
        each.name: {file.name: file.read_text() for file in each.iterdir()}
        for each in (folder / "broker").iterdir()
        if each.is_dir()
    }


def test_readme_when_its_lines_copy_a_topic_then_that_topic_and_no_other(folder: Path) -> None:
    """`orders-eu-0` is a log of another topic than `orders`: nothing of it is deleted or replaced."""
    before = _broker(folder)
    done = _run(folder, "-delete")

    assert (done.returncode, done.stderr) == (0, "")
    ours = {"00.log": "ours", "00.index": "ours", "partition.metadata": "theirs"}
    assert _broker(folder) == {**before, "orders-0": ours, "orders-1": ours}
    assert not (folder / "broker" / ".kafka_cleanshutdown").exists()


def test_readme_when_the_broker_has_no_such_log_then_nothing_is_deleted(folder: Path) -> None:
    """A topic with fewer partitions, or a broker's folder that is not the one."""
    (folder / "broker" / "orders-1" / "partition.metadata").unlink()
    before = _broker(folder)
    done = _run(folder, "-delete")

    assert (done.returncode, done.stdout) == (1, "the broker has no orders-1\n")
    assert _broker(folder) == before
    assert (folder / "broker" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("topic", ["order", "orders-0", ""])
def test_readme_when_the_store_has_no_such_topic_then_nothing_is_deleted(folder: Path, topic: str) -> None:
    """A mistyped name does not make the broker scan what it has."""
    before = _broker(folder)
    done = _run(folder, "-delete", topic)

    assert (done.returncode, done.stdout) == (1, f"store/logs has no log of {topic}\n")
    assert _broker(folder) == before
    assert (folder / "broker" / ".kafka_cleanshutdown").exists()


def test_readme_when_its_lines_print_options_then_every_setting_of_a_brokers_topic_is_there(folder: Path) -> None:
    """Without them a broker would compact or keep by its own defaults; `batch.size` it refuses to make a topic with."""
    done = _run(folder, "topic-configs.json")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "--partitions 2 --config cleanup.policy=compact --config retention.ms=-1 --config segment.bytes=1048576\n"
    )
