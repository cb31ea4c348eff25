from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.pipeline.settings.stream_settings import Settings, load_settings
from sparklog.storage_core.errors import InvalidConfigError

_FILE = """
store: ./store
checkpoint: ./checkpoint
source: {format: csv, path: ./data, schema: "a string", options: {maxFilesPerTrigger: 1, header: true}}
records:
  topic: "'flights'"
  key: a
  value: to_json(struct(*))
  partition: 0
  headers: null
trigger: {available_now: true}
topics:
  flights: {partitions: 6, segment.bytes: 16777216, compression.type: zstd}
"""
_KAFKA = """
store: s
checkpoint: c
source: {format: kafka, options: {kafka.bootstrap.servers: "localhost:1", subscribe: t}}
topics: {t: {partitions: 2}}
"""

Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a text to a file and load it."""

    def load(text: str, *overrides: str) -> Settings:
        path = tmp_path / "settings.yaml"
        path.write_text(text)
        return load_settings(path, overrides)

    return load


def test_load_settings_when_file_is_sound_then_every_value_is_typed(load: Load) -> None:
    """Options and expressions become text as Spark spells it, paths stay as written, null is absent."""
    settings = load(_FILE)

    assert (settings.store, settings.checkpoint, settings.offsets) == ("./store", "./checkpoint", "assigned")
    assert settings.source.options == {"maxFilesPerTrigger": "1", "header": "true"}
    assert settings.source.option("MAXfilesPERtrigger") == "1"
    assert (settings.records.partition, settings.records.headers) == ("0", None)
    assert settings.records.fixed_topic == "flights"
    assert settings.trigger.available_now
    assert settings.topics == {"flights": {"partitions": 6, "segment.bytes": 16777216, "compression.type": "zstd"}}


def test_load_settings_when_topic_depends_on_row_then_no_fixed_topic(load: Load) -> None:
    """Only a plain text in quotes is one topic for every row."""
    assert load(_FILE, "records.topic=concat('a', 'b')").records.fixed_topic is None


def test_load_settings_when_overridden_then_later_one_wins(load: Load) -> None:
    """An override replaces or adds one key; it is YAML, except that a text keeps its quotes."""
    settings = load(
        _FILE,
        "topics.flights.segment.bytes=1000",
        "topics.flights.segment.bytes=2000",
        "records.topic='other'",
        "topics.other.partitions=3",
        "spark.driver.memory=2g",
        "trigger={processing_time: 5 seconds}",
    )

    assert settings.topics["flights"]["segment.bytes"] == 2000
    assert settings.records.topic == "'other'"
    assert settings.topics["other"] == {"partitions": 3}
    assert settings.spark == {"spark.driver.memory": "2g"}
    assert (settings.trigger.available_now, settings.trigger.processing_time) == (False, "5 seconds")


def test_load_settings_when_source_is_kafka_without_records_then_mirrored(load: Load) -> None:
    """A Kafka source is taken straight through, its offsets only where they are preserved."""
    assigned, preserved = load(_KAFKA).records, load(_KAFKA + "offsets: preserved\n").records

    assert (assigned.topic, assigned.partition, assigned.headers, assigned.offset) == (
        "topic",
        "partition",
        "headers",
        None,
    )
    assert preserved.offset == "offset"


def test_load_settings_when_kafka_records_are_partial_then_rest_is_mirrored(load: Load) -> None:
    """An expression replaces one column of a mirror; null leaves one out."""
    records = load(_KAFKA, "records.topic='t'", "records.partition=null").records

    assert (records.topic, records.partition, records.key) == ("'t'", None, "key")


def test_load_settings_when_many_things_are_wrong_then_all_are_named(load: Load) -> None:
    """One error lists every problem of the file, each with its key."""
    text = """
store: 5
sorce: {}
source: {format: cvs, path: x}
records: {topic: "'a'", keys: 1, on_invalid: maybe}
trigger: {available_now: true, processing_time: 5 parsecs}
offsets: preserved
quarantine: q
log_dirs: [a, a]
spark: {driver.memory: 1g}
topics:
  a: {partitions: 0, segment.byte: 3, retention.ms: soon}
  "b/c": {}
  a.b: {}
  a_b: {}
  7: {}
"""
    with pytest.raises(InvalidConfigError) as caught:
        load(text, "nonsense")
    problems = str(caught.value)

    for part in (
        "store: 5 is not text",
        "checkpoint: is missing",
        "sorce: unknown key; did you mean 'source'?",
        "source.format: 'cvs' is none of csv,",
        "records.value: is missing",
        "records.keys: unknown key; did you mean 'key'?",
        "records.on_invalid: 'maybe'",
        "records.offset: is missing",
        "trigger.processing_time: can't be set together",
        "trigger.processing_time: '5 parsecs' is not an interval",
        "log_dirs=['a', 'a'] is empty or names a folder twice",
        "spark.driver.memory: the name of a Spark setting",
        "topics.a.partitions: 0 is",
        "topics.a.segment.byte: unknown property",
        "topics.a.retention.ms: 'soon' is not an integer",
        "topics.b/c: topic name",
        "'a.b' and 'a_b' collide",
        "topics.7: the topic's name is not text",
        "--set nonsense: is not of the form key=value",
    ):
        assert part in problems
    assert "\n" not in problems


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("records.topic='other'", "records.topic: topic 'other' is not among topics: flights"),
        ("quarantine=q", "quarantine: is only used with records.on_invalid: quarantine"),
        ("records.offset=a", "records.offset: is only used with offsets: preserved"),
        ("checkpoint=store/logs/c", "checkpoint: lies in the store's logs folder"),
        ("checkpoint=store", "checkpoint: is the store itself"),
        ("checkpoint=hdfs:///c", "checkpoint: names no name node"),
        ("source.path=null", "source.path: is missing"),
        ("source={}", "source: is empty"),
        ("source=[1]", r"source: is not a mapping"),
        ("records={}", "records: is empty"),
        ("topics={}", "topics: is empty"),
        ("source.format=rate", "source.path: is not a setting of rate sources"),
        ("source.format=text", "source.schema: is fixed by text sources"),
        (
            "source.format=kafka",
            "source.options.kafka.bootstrap.servers: is missing; .*source.options: give exactly one of",
        ),
        ("source.options.x=2024-01-01", "source.options.x: .* put it in quotes"),
        ("trigger.available_now=1", "trigger.available_now: 1 is not true or false"),
        ("log_dirs=a", "log_dirs: 'a' is not a list of texts"),
    ],
)
def test_load_settings_when_one_setting_is_wrong_then_named(load: Load, override: str, problem: str) -> None:
    """A wrong setting is named by its key with what is wrong about it."""
    with pytest.raises(InvalidConfigError, match=problem):
        load(_FILE, override)


def test_load_settings_when_key_stands_twice_then_refused(load: Load) -> None:
    """YAML would keep the last of two equal keys; the file is refused instead."""
    with pytest.raises(InvalidConfigError, match=r"settings.yaml:13: store: occurs twice, first at line 1"):
        load(_FILE.strip() + "\n" + "store: ./again\n")


@pytest.mark.parametrize("text", ["- a", "", "just text"])
def test_load_settings_when_file_is_no_mapping_then_refused(load: Load, text: str) -> None:
    """A settings file is one mapping."""
    with pytest.raises(InvalidConfigError, match="is not a mapping of settings"):
        load(text)


def test_load_settings_when_yaml_is_broken_then_line_and_column(load: Load) -> None:
    """A file that does not parse is refused in one line that says where."""
    with pytest.raises(InvalidConfigError, match=r"is not YAML: .* line=2 column=") as caught:
        load("store: [a\nb: c")
    assert "\n" not in str(caught.value)


def test_load_settings_when_file_is_absent_then_named(tmp_path: Path) -> None:
    """A file that can't be read is named with the reason."""
    with pytest.raises(InvalidConfigError, match=r"none\.yaml: can't read the settings file: No such file"):
        load_settings(tmp_path / "none.yaml")


def test_load_settings_when_file_is_not_utf8_then_named(tmp_path: Path) -> None:
    """A file that is not text is refused as such."""
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"store: \xff")

    with pytest.raises(InvalidConfigError, match="is not UTF-8"):
        load_settings(path)


@pytest.mark.parametrize("own", ["ledger", "staging"])
@pytest.mark.parametrize("key", ["checkpoint", "quarantine"])
def test_load_settings_when_a_folder_lies_where_the_sink_deletes_then_refused(
    tmp_path: Path, key: str, own: str
) -> None:
    """A checkpoint that goes at each start would bring every record again."""
    file = tmp_path / "settings.yaml"
    file.write_text(
        "store: ./s\ncheckpoint: ./c\nsource: {format: rate}\n"
        "records: {topic: \"'o'\", value: cast(value as string), on_invalid: quarantine}\ntopics: {o: {}}\n"
    )

    with pytest.raises(InvalidConfigError, match=f"{key}: lies in the store's {own} folder"):
        load_settings(file, [f"{key}=s/{own}/below"])
