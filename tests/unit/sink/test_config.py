"""What a sink is told: folders that can't be, or that would swallow each other."""

from pathlib import Path
from typing import Any

import pytest

from sparklog.sink.config import SinkConfig
from sparklog.storage_core.errors import InvalidConfigError

_TOPICS = {"orders": {"partitions": 1}}


def _refusal(store: str | Path, **options: Any) -> str:
    with pytest.raises(InvalidConfigError) as error:
        SinkConfig.from_options(store, options.pop("topics", _TOPICS), **options)
    return str(error.value)


@pytest.mark.parametrize("store", ["file:/tmp/store", "dbfs:/store"])
def test_config_when_the_store_is_a_uri_then_refused(store: str) -> None:
    """It would otherwise become a local folder of that name."""
    assert f"store='{store}' is not a folder of this machine" in _refusal(store)


@pytest.mark.parametrize(
    ("store", "address"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("S3A://bucket/a", "s3://bucket/a"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net/a"),
        ("hdfs://node:8020/a", "hdfs://node:8020/a"),
        ("hdfs:///a", "hdfs:///a"),
        ("file:///tmp/a", "file:///tmp/a"),
    ],
)
def test_config_when_the_store_is_an_address_then_it_is_of_objects(store: str, address: str) -> None:
    """Also as Hadoop's users write it."""
    config = SinkConfig.from_options(store, _TOPICS, storage={"aws_secret_access_key": "geheim"})

    assert config.objects is not None
    assert str(config.objects.address) == address
    assert "geheim" not in repr(config)


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("ftp://host/a", "no address of a storage"),
        ("s3://bucket", "names no folder"),
        ("s3:///a", "names no bucket"),
        ("s3://bucket/a b", "holds a space"),
        ("s3://bucket/a/../b", "empty name, . or .."),
        ("s3://bucket/a//b", "empty name, . or .."),
    ],
)
def test_config_when_an_address_is_none_then_refused(store: str, told: str) -> None:
    assert told in _refusal(store)


def test_config_when_storage_is_given_for_a_folder_then_refused(tmp_path: Path) -> None:
    assert "storage.aws_region: is only used with a store at an address" in _refusal(
        tmp_path, storage={"aws_region": "x"}
    )


@pytest.mark.parametrize("name", ["50%", "a[1]", "a^b", "a|b", "a\\b", "a\nb"])
def test_config_when_the_ledger_could_not_lie_there_then_refused(tmp_path: Path, name: str) -> None:
    """Characters that the ledger's library mistakes are refused before anything is made."""
    assert "holds one of [ ] \\ ^ | % or a control character" in _refusal(tmp_path / name)


@pytest.mark.parametrize("log_dir", [".", "..", "staging", "ledger/logs", "./staging/../staging"])
def test_config_when_a_log_dir_is_a_folder_of_the_store_then_refused(tmp_path: Path, log_dir: str) -> None:
    """Staging is emptied at every start, and the store's own folders are no logs."""
    assert f"log_dirs={log_dir!r} is the store" in _refusal(tmp_path, log_dirs=("logs", log_dir))


def test_config_when_one_log_dir_lies_in_another_then_refused(tmp_path: Path) -> None:
    """A folder among logs that is no log ends the start of a broker."""
    assert "log_dirs='logs/x' lies in 'logs'" in _refusal(tmp_path, log_dirs=("logs", "logs/x"))


def test_config_when_two_log_dirs_are_one_folder_then_refused(tmp_path: Path) -> None:
    """One folder under two spellings is one folder."""
    assert "names a folder twice" in _refusal(tmp_path, log_dirs=("logs", f"{tmp_path}/x/../logs/"))


@pytest.mark.parametrize("folder", [".", "staging/bad", "logs", "logs/bad", "ledger"])
def test_config_when_quarantine_lies_in_a_folder_of_the_store_then_refused(tmp_path: Path, folder: str) -> None:
    """Diverted rows must not lie where they are deleted, nor where a broker expects logs."""
    assert "quarantine=" in _refusal(tmp_path, quarantine=tmp_path / folder)


def test_config_when_there_is_no_topic_then_refused(tmp_path: Path) -> None:
    """Without a topic no row could ever become a record."""
    assert _refusal(tmp_path, topics={}) == "topics is empty"


def test_config_when_several_settings_are_wrong_then_names_them_all(tmp_path: Path) -> None:
    """One try shows every problem, each with its key."""
    message = _refusal(
        tmp_path,
        topics={
            "a.b": {"partitions": 0, "segment.bytes": 1},
            "a_b": {"partitions": "many"},
            "bad name": {},
            "__consumer_offsets": {"retention": 1},
        },
        topic="c",
        offsets="mine",
        on_invalid="ignore",
        log_dirs=("logs", "logs"),
    )

    assert len(message.split("; ")) == 11
    for problem in (
        "topics.a.b.partitions: 0 is not an integer from 1",
        "topics.a.b.segment.bytes: 1 is outside",
        "topics.a_b.partitions: 'many' is not an integer from 1",
        "topics.bad name: topic name 'bad name' is illegal",
        "topics.__consumer_offsets: topic name '__consumer_offsets' is internal to Kafka",
        "topics.__consumer_offsets.retention: unknown property",
        "topic='c' is not among topics",
        "offsets='mine' is none of assigned, preserved",
        "on_invalid='ignore' is none of fail, quarantine",
        "log_dirs=['logs', 'logs'] is empty or names a folder twice",
        "topics 'a.b' and 'a_b' collide",
    ):
        assert problem in message


@pytest.mark.parametrize("partitions", [True, 1.5, -1, 2**31, None])
def test_topic_when_partitions_are_no_count_then_refused(tmp_path: Path, partitions: object) -> None:
    """Kafka's partition numbers are int32."""
    assert "topics.a.partitions: " in _refusal(tmp_path, topics={"a": {"partitions": partitions}})


def test_config_fills_in_what_is_not_given(tmp_path: Path) -> None:
    """One log directory and one partition; diverted rows lie in the store."""
    config = SinkConfig.from_options(str(tmp_path / "store"), {"a": {}})

    assert (config.log_dirs, config.topics["a"].partitions) == (("logs",), 1)
    assert config.quarantine == tmp_path / "store" / "quarantine"


def test_config_when_a_property_of_kafka_means_nothing_here_then_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Settings are read before a stream starts, and again when it opens its store."""
    topics = {"told-once": {"preallocate": True, "segment.bytes": 100}}

    for _ in range(2):
        SinkConfig.from_options(tmp_path, topics)

    assert caplog.messages == ["topics.told-once: preallocate is ignored, it has no meaning without a broker"]
