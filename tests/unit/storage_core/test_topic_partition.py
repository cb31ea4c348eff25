"""Names of topics and of their partitions' directories."""

import pytest

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.topic_partition import (
    DirectoryKind,
    SetAsideDirectory,
    TopicPartition,
    check_topic_name,
    parse_directory_name,
    parse_set_aside_name,
    set_aside_name,
    topic_names_collide,
)

_ID = "0123456789abcdef" * 2


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
        ("orders-2147483647", TopicPartition("orders", 2147483647)),
        ("orders-2147483648", None),
        ("orders-" + "9" * 5000, None),
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


@pytest.mark.parametrize("kind", ["delete", "future", "stray"])
@pytest.mark.parametrize("topic", ["orders", "or-ders", "or.ders", "a.b-1.c-2"])
def test_set_aside_name_is_read_back(topic: str, kind: DirectoryKind) -> None:
    """Dots and dashes in a topic change nothing: the id stands behind the last dot."""
    name = set_aside_name(TopicPartition(topic, 3), _ID, kind)

    assert name == f"{topic}-3.{_ID}-{kind}"
    assert parse_set_aside_name(name) == SetAsideDirectory(TopicPartition(topic, 3), _ID, kind)
    assert parse_directory_name(name) is None


def test_set_aside_name_when_the_topic_is_long_then_cut_to_255_but_for_future() -> None:
    """A file name has 255 characters; Kafka cuts the topic of a log that goes, never of one that comes."""
    log = TopicPartition("t" * 249, 3)

    assert len(set_aside_name(log, _ID, "delete")) == 255
    assert len(set_aside_name(log, _ID, "stray")) == 255
    assert len(set_aside_name(log, _ID, "future")) == 291


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders-0",
        "orders-0-delete",
        "orders-0.-delete",
        f"orders-0.{_ID}",
        f"orders-0.{_ID}-deleted",
        f"orders-0.{_ID}.x-delete",
        f"orders.{_ID}-delete",
        f"-0.{_ID}-delete",
        f"orders-x.{_ID}-future",
        f"or ders-0.{_ID}-stray",
        f"orders-0.{_ID}-delete\n",
    ],
)
def test_parse_set_aside_name_when_the_form_is_another_then_none(name: str) -> None:
    """A broker refuses to start on such a directory."""
    assert parse_set_aside_name(name) is None


def test_parse_set_aside_name_when_the_id_is_no_uuid_then_read_as_kafka_does() -> None:
    """Its pattern takes any characters there."""
    assert parse_set_aside_name("a-0.x-delete") == SetAsideDirectory(TopicPartition("a", 0), "x", "delete")
