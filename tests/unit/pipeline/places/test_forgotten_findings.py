"""`sparklog verify` looks for records of forgotten keys."""

import json
import shutil
from pathlib import Path

from tests.build.compacted_store import LOG, write_keyed
from tests.build.erased_keys import ask, erase
from tests.build.retained_store import state_of
from tests.sparklog_command import Sparklog


def test_verify_when_keys_wait_to_be_erased_then_a_note_says_how_many_records(
    sparklog: Sparklog, tmp_path: Path
) -> None:
    """What nobody has tried to erase is no damage."""
    store = write_keyed(tmp_path / "store")
    request = ask(store, "k3")

    ran = sparklog("verify", store)

    assert ran.code == 0
    name = f"control/forgotten/{request.request_id}.json"
    assert f"pending: store/{name} erasure pending, 29 records in 7 segments -> " in ran.out


def test_verify_when_erased_keys_are_back_then_file_and_offsets_are_told(sparklog: Sparklog, tmp_path: Path) -> None:
    """A copy from before the erasure was put back: no CRC tells that."""
    store = write_keyed(tmp_path / "store", {"min.cleanable.dirty.ratio": 1.0})
    ask(store, "k3")
    shutil.copytree(store / "logs", tmp_path / "copy")
    erase(store)
    assert sparklog("verify", store).out.startswith("sound")
    shutil.copy(tmp_path / "copy" / str(LOG) / f"{0:020}.log", store / "logs" / str(LOG))
    for index in (store / "logs" / str(LOG)).glob(f"{0:020}.*index"):
        shutil.copy(tmp_path / "copy" / str(LOG) / index.name, index)

    ran = sparklog("verify", store, "--json")

    assert ran.code == 1
    (found,) = [each for each in map(json.loads, ran.out.splitlines()) if each.get("kind") == "forgotten"]
    assert (found["log"], found["file"]) == (str(LOG), f"{0:020}.log")
    assert (found["first_offset"], found["last_offset"]) == (3, 31)
    assert "k3" not in ran.out


def test_verify_when_old_files_wait_to_be_removed_then_a_note_says_so(sparklog: Sparklog, tmp_path: Path) -> None:
    """Until `file.delete.delay.ms` is over they hold what was erased."""
    store = write_keyed(tmp_path / "store")
    ask(store, "k3")
    erase(store)
    (store / "logs" / str(LOG) / f"{0:020}.log.deleted").write_bytes(b"old")

    ran = sparklog("verify", store)

    assert ran.code == 0
    assert f"pending: {LOG}/{LOG} 1 old files wait to be removed and may hold erased records" in ran.out


def test_verify_when_a_request_is_damaged_then_it_is_named(sparklog: Sparklog, tmp_path: Path) -> None:
    """The logs are checked all the same."""
    store = write_keyed(tmp_path / "store", count=20)
    request = ask(store, "k3")
    path = store / "control" / "forgotten" / f"{request.request_id}.json"
    path.write_bytes(path.read_bytes()[:-40])

    ran = sparklog("verify", store)

    assert ran.code == 1
    assert "checkpoint: store/control/forgotten " in ran.out
    assert path.name in ran.out
    assert ran.out.splitlines()[-1].startswith("NOT sound: 2 logs, ")


def test_verify_when_a_newer_release_made_a_request_then_nobody_is_told_to_delete_it(
    sparklog: Sparklog, tmp_path: Path
) -> None:
    """The erasure that waits, or the digests of a done one, would be lost."""
    store = write_keyed(tmp_path / "store", count=20)
    request = ask(store, "k3")
    path = store / "control" / "forgotten" / f"{request.request_id}.json"
    path.write_text('{"version": 9}')

    ran = sparklog("verify", store)

    assert ran.code == 1
    assert "has version 9" in ran.out
    assert "-> verify with the release that wrote it" in ran.out
    assert "delete" not in ran.out


def test_verify_when_a_log_cant_be_searched_then_nobody_says_that_nothing_is_left(
    sparklog: Sparklog, tmp_path: Path
) -> None:
    """It is damage, of which the check of the log tells too."""
    store = write_keyed(tmp_path / "store")
    ask(store, "k3")
    path = store / "logs" / str(LOG) / f"{state_of(store, LOG).active_base_offset:020}.log"
    path.write_bytes(path.read_bytes()[:70] + b"?" + path.read_bytes()[71:])

    ran = sparklog("verify", store)

    assert ran.code == 1
    assert "can't be searched for forgotten keys" in ran.out


def test_verify_when_a_topic_has_no_request_then_its_logs_are_not_searched(sparklog: Sparklog, tmp_path: Path) -> None:
    """The search decodes records, which a check without --deep does not."""
    store = write_keyed(tmp_path / "store", count=20)
    path = store / "logs" / str(LOG) / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:70] + b"?" + path.read_bytes()[71:])

    ran = sparklog("verify", store)

    assert ran.code == 1
    assert "can't be searched" not in ran.out
