import pytest

from sparklog.pipeline.settings.overrides import apply_override, split_key


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("store", ["store"]),
        ("records.key", ["records", "key"]),
        ("topics.flights.segment.bytes", ["topics", "flights", "segment.bytes"]),
        ("topics.flights.partitions", ["topics", "flights", "partitions"]),
        ("topics.a.delete.retention.ms", ["topics", "a", "delete.retention.ms"]),
        ("topics.some.new.topic.segment.bytes", ["topics", "some.new.topic", "segment.bytes"]),
        ("topics.flights.no.such.name", ["topics", "flights", "no.such.name"]),
        ("topics.flights", ["topics", "flights"]),
        ("source.options.kafka.bootstrap.servers", ["source", "options", "kafka.bootstrap.servers"]),
        ("source.path", ["source", "path"]),
        ("spark.driver.memory", ["spark", "spark.driver.memory"]),
        ("spark.spark.driver.memory", ["spark", "spark.driver.memory"]),
    ],
)
def test_split_key_when_names_hold_dots_then_kept_whole(key: str, names: list[str]) -> None:
    """A dot inside a property, option or Spark setting does not split it."""
    assert split_key(key) == names


def test_split_key_when_topic_is_declared_then_longest_declared_one() -> None:
    """A declared topic with dots in its name is found before any property is looked at."""
    assert split_key("topics.a.delete.retention.ms", ["a", "a.delete"]) == ["topics", "a.delete", "retention.ms"]


def test_apply_override_when_mappings_are_absent_then_made() -> None:
    """An override may name a section that the file does not have."""
    tree: dict[object, object] = {"topics": None}

    assert apply_override(tree, "topics.t.segment.bytes", 5) is None
    assert tree == {"topics": {"t": {"segment.bytes": 5}}}


@pytest.mark.parametrize("key", ["", "records..key", "store.x"])
def test_apply_override_when_key_leads_nowhere_then_problem(key: str) -> None:
    """A key with an empty name, or one below a plain value, is a problem."""
    assert apply_override({"store": "s"}, key, 1)
