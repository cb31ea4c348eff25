"""What others wrote reaches the terminal as text: ESC, BEL, newlines and bidirectional marks are shown, not obeyed."""

import re
from pathlib import Path

import pytest

from tests.build.sink_store import in_process, open_store, rows
from tests.plain.legacy_scalar import pack_entry
from tests.plain.scalar import Record
from tests.sparklog_command import Sparklog

_HOSTILE = "a\x1b]0;title\x07b\r\nc\u202ed\u2066e\x9bf\u2028g\u061ch\x7f"
_SHOWN = r"a\x1b]0;title\x07b\r\nc\u202ed\u2066e\u009bf\u2028g\u061ch\x7f"
_OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_NAME = "00000000000000000000.log"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one record that is hostile wherever it can be."""
    store = tmp_path_factory.mktemp("hostile") / "store"
    writer = open_store(store, {"t": {}}, topic="t")
    headers = [[{"key": _HOSTILE, "value": _HOSTILE.encode()}]]
    writer.append("q", 0, in_process(rows(key=[_HOSTILE], value=[_HOSTILE], timestamp=[5], headers=headers)))
    writer.close()
    return store


def test_read_when_record_has_control_characters_then_they_are_shown(sparklog: Sparklog, store: Path) -> None:
    """Key, value, header name and header value are one line without anything that a terminal obeys but our tabs."""
    out = sparklog("read", store, "t").out

    assert out == "\t".join(["t:0:0", "1970-01-01T00:00:00.005Z", _SHOWN, _SHOWN, f"{_SHOWN}={_SHOWN}"]) + "\n"


def test_read_when_raw_is_asked_for_then_bytes_as_they_are(sparklog: Sparklog, store: Path) -> None:
    """Raw on demand: the record's own bytes between our tabs."""
    out = sparklog("read", store, "t", "--raw").out

    assert out == "\t".join(["t:0:0", "1970-01-01T00:00:00.005Z", _HOSTILE, _HOSTILE, f"{_HOSTILE}={_HOSTILE}"]) + "\n"


@pytest.mark.parametrize(
    "arguments",
    [["read", "{store}", "t", "--json"], ["dump-log", "--files", "{log}", "--print-data-log", "--json"]],
    ids=["read", "dump-log"],
)
def test_json_when_header_has_control_characters_then_escaped_as_json(
    sparklog: Sparklog, store: Path, arguments: list[str]
) -> None:
    """JSON escapes what a terminal obeys, and means the same."""
    log = store / "logs" / "t-0" / _NAME
    ran = sparklog(*(each.format(store=store, log=log) for each in arguments))

    assert not _OBEYED.search(ran.out)
    assert any(each["headers"][0][0] == _HOSTILE for each in ran.objects if "headers" in each)


@pytest.mark.parametrize("options", [["--print-data-log"], ["--print-data-log", "--skip-record-metadata"]], ids=len)
def test_dump_log_when_record_has_control_characters_then_they_are_shown(
    sparklog: Sparklog, store: Path, options: list[str]
) -> None:
    """Header names, keys and values of both kinds of lines."""
    out = sparklog("dump-log", "--files", store / "logs" / "t-0" / _NAME, *options).out

    assert not _OBEYED.search(out)
    assert f"key: {_SHOWN} payload: {_SHOWN}\n" in out
    assert (f"headerKeys: [{_SHOWN}]" in out) == (len(options) == 1)


def test_dump_log_when_raw_is_asked_for_then_as_kafka_prints_it(sparklog: Sparklog, store: Path) -> None:
    """Raw on demand: what Kafka's tool prints."""
    out = sparklog("dump-log", "--files", store / "logs" / "t-0" / _NAME, "--print-data-log", "--raw").out

    assert f"key: {_HOSTILE} payload: {_HOSTILE}\n" in out


def test_dump_log_when_record_of_an_old_format_is_hostile_then_shown(sparklog: Sparklog, tmp_path: Path) -> None:
    """Formats v0 and v1 have lines of their own."""
    path = tmp_path / _NAME
    path.write_bytes(pack_entry(Record(offset=0, timestamp=1, key=_HOSTILE.encode(), value=b"v"), 1))

    assert f"key: {_SHOWN} payload: v\n" in sparklog("dump-log", "--files", path, "--print-data-log").out


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "{root}"],
        ["describe", "{root}"],
        ["describe", "{root}/evil\x1b[31m\u202e-0"],
        ["repair", "{root}"],
        ["offsets", "{root}", "no\x1bsuch"],
        ["read", "{root}", "evil\x1b[31m\u202e:0"],
        ["recover", "{root}"],
        ["dump-log", "--files", "{root}/evil\x1b[31m\u202e-0/" + _NAME],
        ["dump-log", "--files", "{root}/no\x1bsuch.log,{root}/evil\x1b[31m\u202e-0/no\x1bkind"],
        ["read", "{root}/no\x1bsuch", "t"],
    ],
    ids=lambda arguments: "-".join(re.sub(r"\W+", "", each) for each in arguments),
)
def test_verbs_when_a_folder_has_a_hostile_name_then_it_is_shown(
    sparklog: Sparklog, tmp_path: Path, arguments: list[str]
) -> None:
    """Results, tables, findings and errors show names of files that others gave."""
    directory = tmp_path / "evil\x1b[31m\u202e-0"
    directory.mkdir()
    (directory / _NAME).write_bytes(b"\x00" * 70)
    (directory / "stray\x1b\x07").mkdir()

    ran = sparklog(*(each.format(root=tmp_path) for each in arguments))

    assert not _OBEYED.search(ran.out + ran.err), ran
