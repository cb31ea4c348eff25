"""Names of topics and of their partitions' directories."""

import pytest

from storage_core.errors import InvalidConfigError
from storage_core.topic_partition import TopicPartition, check_topic_name, parse_directory_name, topic_names_collide


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "...", "-"])
def test_check_topic_name_takes_what_kafka_takes(name: str) -> None:
    """1 to 249 of letters, digits, dot, underscore and dash."""
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0", "٣"])
def test_check_topic_name_refuses_what_kafka_refuses(name: str) -> None:
    """A name is a file name on every platform."""
    with pytest.raises(InvalidConfigError, match="is illegal"):
        check_topic_name(name)


def test_topic_names_collide_where_kafkas_metrics_do() -> None:
    """`.` and `_` are one character there; a topic does not collide with itself."""
    assert topic_names_collide("a.b", "a_b")
    assert not topic_names_collide("a.b", "a.b")
    assert not topic_names_collide("a.b", "a-b")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("or-ders-12", TopicPartition("or-ders", 12)),
        ("a-1-2", TopicPartition("a-1", 2)),
        ("orders", None),
        ("orders-", None),
        ("-3", None),
        ("orders-x", None),
        ("orders-٣", None),
        ("orders-0.a3f-delete", None),
        ("orders-0.a3f-future", None),
        ("orders-0.a3f-stray", None),
        ("or ders-0", None),
    ],
)
def test_parse_directory_name_splits_at_the_last_dash(name: str, expected: TopicPartition | None) -> None:
    """What a broker is about to delete, moves or does not know is no log."""
    assert parse_directory_name(name) == expected
    if expected is not None:
        assert expected.directory_name == str(expected) == name


def test_topic_partitions_sort_by_topic_then_number() -> None:
    """As Kafka writes its checkpoint files."""
    logs = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]

    assert sorted(logs) == [TopicPartition("a", 9), TopicPartition("a", 10), TopicPartition("b", 0)]
