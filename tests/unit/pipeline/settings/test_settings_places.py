"""Problems of a settings file are one a line, each with the line of the file, or the option, that it comes from."""

from pathlib import Path

import pytest

from sparklog.pipeline.settings.stream_settings import load_settings
from sparklog.storage_core.errors import InvalidConfigError
from tests.sparklog_command import Sparklog

_FILE = """store: ./store
checkpoint: ./checkpoint
source:
  format: text
  path: ./data
  schema: a string
records: {topic: "'orders'", value: value}
common: &common
  retention.ms: soon
topics:
  orders:
    partitions: 0
    segment.bytes: 5
    segment.byte: 5
  a.b:
    <<: *common
    partitions: 1
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A settings file with problems at known lines."""
    path = tmp_path / "file.yaml"
    path.write_text(_FILE)
    return path


@pytest.mark.parametrize("verb", ["stream", "maintain"])
def test_verb_when_settings_are_wrong_then_a_line_each_with_its_place(
    sparklog: Sparklog, config: Path, verb: str
) -> None:
    """A missing or unknown key has the line of what is around it; a value that `--set` gave has no line."""
    options = {"stream": ["--set", "checkpoint=store/logs/c", "--set", "x"], "maintain": ["--every", "soon"]}[verb]
    ran = sparklog(verb, "--config", config, *options)
    lines = ran.err.splitlines()

    assert ran.code == 2
    assert all(line.startswith("error: ") for line in lines)
    for line in (
        f"{config}:6: source.schema: is fixed by text sources",
        f"{config}:8: common: unknown key",
        f"{config}:9: topics.a.b.retention.ms: 'soon' is not an integer",
        f"{config}:12: topics.orders.partitions: 0 is not an integer from 1",
        f"{config}:13: topics.orders.segment.bytes: 5 is outside 14..2147483647",
        f"{config}:14: topics.orders.segment.byte: unknown property",
    ):
        assert any(each.startswith(f"error: {line}") for each in lines), (line, lines)
    if verb == "stream":
        assert "error: --set x: is not of the form key=value" in lines
        assert any(each.startswith("error: --set checkpoint: checkpoint: lies in") for each in lines)
    else:
        assert any(each.startswith("error: --set maintenance.every: maintenance.every: 'soon'") for each in lines)


def test_stream_when_a_setting_is_missing_then_the_file_is_named(sparklog: Sparklog, tmp_path: Path) -> None:
    """What stands nowhere has no line."""
    path = tmp_path / "file.yaml"
    path.write_text("store: s\n")

    assert f"error: {path}: checkpoint: is missing" in sparklog("stream", "--config", path).err.splitlines()


def test_stream_when_an_anchor_holds_itself_then_refused(sparklog: Sparklog, tmp_path: Path) -> None:
    """Lines of a file that never ends are not looked for without end."""
    path = tmp_path / "file.yaml"
    path.write_text("store: s\nsource: &a\n  format: rate\n  options: *a\n")

    ran = sparklog("stream", "--config", path)

    assert ran.code == 2
    assert f"error: {path}: checkpoint: is missing" in ran.err.splitlines()


@pytest.mark.parametrize(
    "override",
    [
        'source.options={kafka.sasl.jaas.config: "password=SECRET"}',
        "source.options=password SECRET",
        "source.options={kafka.sasl.jaas.config: [SECRET]}",
        "source.options.kafka.sasl.jaas.config: SECRET",
    ],
)
def test_stream_when_an_override_is_wrong_then_its_value_is_not_printed(
    sparklog: Sparklog, tmp_path: Path, override: str
) -> None:
    """An option may be a password: an error names its key alone."""
    path = tmp_path / "file.yaml"
    path.write_text("store: s\ncheckpoint: c\nsource: {format: kafka}\ntopics: {t: {}}\n")

    ran = sparklog("stream", "--config", path, "--set", override)

    assert ran.code == 2
    assert "error: --set source.options" in ran.err
    assert "SECRET" not in ran.err


def test_stream_when_a_name_holds_a_newline_then_the_whole_problem_is_printed(sparklog: Sparklog, config: Path) -> None:
    """The newline is shown as an escape, and what follows it is not lost."""
    config.write_text(_FILE.replace("  orders:", '  "we\\nird":'))

    ran = sparklog("stream", "--config", config)

    assert f"error: {config}:12: topics.we\\nird.partitions: 0 is not an integer from 1" in ran.err.splitlines()


def test_stream_when_keys_stand_twice_then_the_full_key_and_its_line(sparklog: Sparklog, config: Path) -> None:
    """Also below the top of the file, and where an anchor's mapping is used more than once."""
    config.write_text(_FILE + "    partitions: 2\n")

    lines = sparklog("stream", "--config", config).err.splitlines()

    assert f"error: {config}:18: topics.a.b.partitions: occurs twice, first at line 17" in lines


def test_stream_when_a_brokers_property_is_wrong_then_its_own_line(sparklog: Sparklog, config: Path) -> None:
    """A broker-level name is the key that the file has; the topic's own name is told, too."""
    config.write_text(_FILE.replace("    partitions: 0\n", "    partitions: 1\n    log.roll.hours: x\n"))

    lines = sparklog("stream", "--config", config).err.splitlines()

    assert f"error: {config}:13: topics.orders.log.roll.hours: 'x': segment.ms='x' is not an integer" in lines


@pytest.mark.parametrize("text", ["? [a, b]\n: c\n", "? {a: b}\n: c\n", "store: 2026-13-45\n"])
def test_load_settings_when_yaml_makes_no_sense_then_refused(tmp_path: Path, text: str) -> None:
    """A key must be a scalar, and a date one of the calendar."""
    path = tmp_path / "file.yaml"
    path.write_text(text)

    with pytest.raises(InvalidConfigError, match="is not YAML"):
        load_settings(path)


def test_load_settings_when_aliases_are_nested_then_it_takes_no_time(tmp_path: Path) -> None:
    """25 mappings that each hold the one before twice have 2**25 full keys, which nobody lists."""
    path = tmp_path / "file.yaml"
    nested = [f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}" for i in range(1, 26)]
    path.write_text("\n".join(["a0: &a0 {z: 1}", *nested]))

    with pytest.raises(InvalidConfigError) as raised:
        load_settings(path)

    assert f"{path}:26: a25: unknown key" in raised.value.problems
