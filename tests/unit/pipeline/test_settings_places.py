"""Problems of a settings file are one a line, each with the line of the file, or the option, that it comes from."""

from pathlib import Path

import pytest

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
        assert any(each.startswith("error: --set checkpoint=store/logs/c: checkpoint: lies in") for each in lines)
    else:
        assert any(each.startswith("error: --set maintenance.every=soon: maintenance.every: 'soon'") for each in lines)


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
