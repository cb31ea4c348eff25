"""`sparklog forget`: keys on the list, and what is left of them."""

import base64
import json
from pathlib import Path

import pytest

from tests.build.compacted_store import LOG, write_keyed
from tests.build.erased_keys import erase
from tests.sparklog_command import Sparklog


def _file(folder: Path, content: bytes) -> Path:
    path = folder / "keys.txt"
    path.write_bytes(content)
    return path


def test_forget_when_keys_are_given_then_their_segments_are_told(sparklog: Sparklog, tmp_path: Path) -> None:
    """Nothing is erased yet; the verification says so with its exit code."""
    store = write_keyed(tmp_path / "store")

    ran = sparklog("forget", store, LOG.topic, "--keys", _file(tmp_path, b"k3\nk5\r\n\n"))

    assert ran.code == 0
    assert "2 keys of topic keyed: waits for maintenance" in ran.out
    assert "keyed-0 segment 0: " in ran.out
    assert ", the active one: " in ran.out
    assert "active segments are rolled first, by the sink where one runs" in ran.out
    assert "k3" not in ran.out
    assert sparklog("forget", store, "--verify").code == 1


def test_forget_when_a_request_is_done_then_it_says_from_which_segments(sparklog: Sparklog, tmp_path: Path) -> None:
    """Counts alone are kept."""
    store = write_keyed(tmp_path / "store")
    keys = _file(tmp_path, b"k3\n")
    (asked,) = json.loads(sparklog("forget", store, LOG.topic, "--json", "--keys", keys).out)["requests"]
    erase(store)

    ran = sparklog("forget", store, LOG.topic, "--verify")

    (request,) = json.loads(sparklog("forget", store, "--verify", "--json").out)["requests"]
    counts = {each["segment"]: each["records"] for each in asked["segments"]}
    assert ran.code == 0
    assert "0 records left of 29" in ran.out
    for base_offset, count in counts.items():
        assert f"  {LOG} segment {base_offset}: {count} records erased" in ran.out
    assert {each["segment"]: each["records"] for each in request["erased"]} == counts
    assert (asked["records_found"], asked["erased"]) == (29, [])


def test_forget_when_keys_are_base64_then_they_are_any_bytes(sparklog: Sparklog, tmp_path: Path) -> None:
    """A key may hold line ends."""
    store = write_keyed(tmp_path / "store")
    encoded = base64.b64encode(b"k3") + b"\n" + base64.b64encode(b"\n\0")

    ran = sparklog("forget", store, LOG.topic, "--base64", "--json", "--keys", _file(tmp_path, encoded))

    (request,) = json.loads(ran.out)["requests"]
    assert request["keys"] == 2
    assert request["records_left"] == 29


def test_forget_when_lines_of_base64_are_blank_then_no_key_is_empty(sparklog: Sparklog, tmp_path: Path) -> None:
    """The empty key is a key: nobody asked to erase its records."""
    store = write_keyed(tmp_path / "store", count=20)

    ran = sparklog(
        "forget", store, LOG.topic, "--base64", "--json", "--keys", _file(tmp_path, b"azE=\n \n\t\n azI= \n")
    )

    assert json.loads(ran.out)["requests"][0]["keys"] == 2
    ran = sparklog("forget", store, LOG.topic, "--base64", "--keys", _file(tmp_path, b" \n\t\r\n"))
    assert (ran.code, "the file has no key" in ran.err) == (2, True)


def test_forget_when_a_line_is_no_base64_then_its_number_is_told(sparklog: Sparklog, tmp_path: Path) -> None:
    """The line itself is a key, and is not shown."""
    store = write_keyed(tmp_path / "store", count=20)

    ran = sparklog("forget", store, LOG.topic, "--base64", "--keys", _file(tmp_path, b"azM=\nsecret!\n"))

    assert ran.code == 2
    assert "line=2" in ran.err
    assert "secret" not in ran.err


@pytest.mark.parametrize("content", ["k3\n".encode("utf-8-sig"), "k3\n".encode("utf-16")])
def test_forget_when_the_file_begins_with_a_byte_order_mark_then_it_is_refused(
    sparklog: Sparklog, tmp_path: Path, content: bytes
) -> None:
    """Its first key, or all of them, would be others than meant, and nothing would be erased."""
    store = write_keyed(tmp_path / "store", count=20)

    ran = sparklog("forget", store, LOG.topic, "--keys", _file(tmp_path, content))

    assert ran.code == 2
    assert "byte order mark" in ran.err
    assert not (store / "control" / "forgotten").exists()


@pytest.mark.parametrize("content", [b"", b"\n\r\n"])
def test_forget_when_the_file_has_no_key_then_it_is_refused(sparklog: Sparklog, tmp_path: Path, content: bytes) -> None:
    """A request for nothing would be done at once, and look like an erasure."""
    store = write_keyed(tmp_path / "store", count=20)

    ran = sparklog("forget", store, LOG.topic, "--keys", _file(tmp_path, content))

    assert ran.code == 2
    assert "the file has no key" in ran.err


def test_forget_when_a_file_has_a_key_twice_then_it_counts_once(sparklog: Sparklog, tmp_path: Path) -> None:
    """With either line end; the last line needs none."""
    store = write_keyed(tmp_path / "store", count=20)

    ran = sparklog("forget", store, LOG.topic, "--json", "--keys", _file(tmp_path, b"k3\r\nk5\nk3\n\xff\xfe\xfdk3"))

    assert json.loads(ran.out)["requests"][0]["keys"] == 3


def test_forget_when_a_topic_is_not_compacted_then_it_is_refused(sparklog: Sparklog, tmp_path: Path) -> None:
    """Nothing would ever clean it."""
    store = write_keyed(tmp_path / "store", {"cleanup.policy": "delete"}, count=20)

    ran = sparklog("forget", store, LOG.topic, "--keys", _file(tmp_path, b"k3\n"))

    assert ran.code == 2
    assert "cleanup.policy=delete" in ran.err


def test_forget_when_the_topic_is_unknown_then_it_is_refused(sparklog: Sparklog, tmp_path: Path) -> None:
    """A mistyped topic has nothing to forget."""
    store = write_keyed(tmp_path / "store", count=20)

    assert "no topic 'keydd'" in sparklog("forget", store, "keydd", "--keys", _file(tmp_path, b"k3\n")).err


def test_forget_when_nothing_was_asked_for_then_verify_says_so(sparklog: Sparklog, tmp_path: Path) -> None:
    """No request is no failure."""
    ran = sparklog("forget", write_keyed(tmp_path / "store", count=20), "--verify")

    assert (ran.code, ran.out) == (0, "no requests to forget keys\n")


def test_forget_when_the_topic_to_verify_is_unknown_then_it_is_refused(sparklog: Sparklog, tmp_path: Path) -> None:
    """A mistyped topic would get the all-clear."""
    store = write_keyed(tmp_path / "store", count=20)

    ran = sparklog("forget", store, "keydd", "--verify")

    assert ran.code == 1
    assert "no topic 'keydd'" in ran.err
    assert sparklog("forget", store, LOG.topic, "--verify").code == 0


def test_forget_when_a_log_cant_be_searched_then_what_is_left_is_a_lower_bound(
    sparklog: Sparklog, tmp_path: Path
) -> None:
    """Nobody knows how many there were, so nothing is told of that."""
    store = write_keyed(tmp_path / "store")
    keys = _file(tmp_path, b"k3\n")
    sorted((store / "logs" / str(LOG)).glob("*.log"))[1].unlink()

    ran = sparklog("forget", store, LOG.topic, "--keys", keys)

    assert "waits for maintenance, at least 0 records left\n" in ran.out
    assert f"{LOG}: can't be searched: " in ran.out
    assert ran.out.endswith("unknown: 1 logs can't be searched; at least 0 records left\n")
