from pathlib import Path

import pytest

from sparklog.storage_core.errors import StorageError, WriterFencedError
from sparklog.storage_core.log.files.deleted_files import (
    drop_deleted,
    drop_listed,
    is_segment_file,
    list_deleted,
    mark_deleted,
)
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.owners import CheckedBy


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(name.encode())


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _of(base: int, *suffixes: str) -> list[str]:
    return [f"{base:020}{suffix}" for suffix in suffixes]


_ALL = (".index", ".log", ".snapshot", ".timeindex", ".txnindex")


def test_mark_deleted_when_segments_go_then_all_their_files_are_renamed(tmp_path: Path) -> None:
    """Log, indexes and the snapshot of the same offset; nothing else in the directory."""
    others = ["leader-epoch-checkpoint", "partition.metadata", *_of(3, ".log.cleaned", ".log.swap"), "3.log"]
    _touch(tmp_path, *_of(3, *_ALL), *_of(9, *_ALL), *others)

    assert mark_deleted(tmp_path, lambda base: base < 9, UNSHARED) == 5
    assert _names(tmp_path) == sorted([*_of(9, *_ALL), *others, *(f"{name}.deleted" for name in _of(3, *_ALL))])
    assert mark_deleted(tmp_path, lambda base: base < 9, UNSHARED) == 0


def test_mark_deleted_when_the_store_was_lost_then_nothing_is_renamed(tmp_path: Path) -> None:
    """The owner is asked before the first name changes."""
    _touch(tmp_path, *_of(3, ".log"))

    def refuse() -> None:
        raise WriterFencedError("lost")

    with pytest.raises(WriterFencedError):
        mark_deleted(tmp_path, lambda _: True, CheckedBy(refuse))
    assert _names(tmp_path) == _of(3, ".log")


def test_mark_deleted_when_the_store_is_lost_on_the_way_then_the_next_file_keeps_its_name(tmp_path: Path) -> None:
    """The owner is asked before each name: somebody else's new file may have it by then."""
    _touch(tmp_path, *_of(3, ".log", ".index"))
    asked: list[None] = []

    def refuse_later() -> None:
        asked.append(None)
        if len(asked) > 1:
            raise WriterFencedError("lost")

    with pytest.raises(WriterFencedError):
        mark_deleted(tmp_path, lambda _: True, CheckedBy(refuse_later))
    assert _names(tmp_path) == sorted(_of(3, ".log.deleted", ".index"))


def test_mark_deleted_when_a_name_was_taken_before_then_replaced(tmp_path: Path) -> None:
    """A power cut may give a renamed file its old name back beside the new one."""
    _touch(tmp_path, *_of(3, ".log", ".log.deleted"))

    mark_deleted(tmp_path, lambda _: True, UNSHARED)

    assert _names(tmp_path) == _of(3, ".log.deleted")
    assert (tmp_path / _of(3, ".log.deleted")[0]).read_text() == _of(3, ".log")[0]


def test_list_deleted_when_files_wait_then_only_those_of_segments(tmp_path: Path) -> None:
    """What is no segment's file is somebody else's, a metadata log's snapshot too."""
    _touch(tmp_path, *_of(3, ".log", ".index.deleted", ".snapshot.deleted", ".checkpoint.deleted"), "x.deleted")

    assert sorted(each.name for each in list_deleted(tmp_path)) == _of(3, ".index.deleted", ".snapshot.deleted")
    assert all(each.size_bytes > 0 and each.renamed_ms > 0 for each in list_deleted(tmp_path))


def test_drop_listed_when_a_name_is_another_files_by_now_then_that_stays(tmp_path: Path) -> None:
    """It was renamed later than the one that was listed, and waits for its own time."""
    _touch(tmp_path, *_of(3, ".log.deleted", ".index.deleted", ".timeindex.deleted", ".snapshot.deleted"))
    listed = list_deleted(tmp_path)
    (tmp_path / f"{3:020}.log.deleted").unlink()
    _touch(tmp_path, "new")
    (tmp_path / "new").replace(tmp_path / f"{3:020}.index.deleted")
    again = tmp_path / f"{3:020}.timeindex.deleted"
    while set(listed) >= {each for each in list_deleted(tmp_path) if each.name == again.name}:
        again.rename(tmp_path / "aside").rename(again)  # until the clock of the disk goes on
    drop_listed(tmp_path, listed)
    drop_listed(tmp_path / "gone", listed)

    assert _names(tmp_path) == _of(3, ".index.deleted", ".timeindex.deleted")


def test_drop_deleted_when_files_are_gone_already_then_no_error(tmp_path: Path) -> None:
    """Two runs may remove the same files, and a topic's deletion the directory."""
    _touch(tmp_path, *_of(3, ".log.deleted"))

    drop_deleted(tmp_path, [*_of(3, ".log.deleted"), *_of(3, ".index.deleted")])
    drop_deleted(tmp_path / "gone", _of(3, ".log.deleted"))

    assert _names(tmp_path) == []


def test_mark_deleted_when_the_directory_is_gone_then_a_storage_error(tmp_path: Path) -> None:
    """The disk's answer is told as one of ours."""
    with pytest.raises(StorageError):
        mark_deleted(tmp_path / "gone", lambda _: True, UNSHARED)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (_of(3, ".log")[0], True),
        (_of(3, ".timeindex")[0], True),
        (_of(3, ".snapshot")[0], True),
        (_of(3, ".log.deleted")[0], False),
        (_of(3, ".index.log")[0], False),
        (_of(3, ".checkpoint")[0], False),
        ("3.log", False),
    ],
)
def test_is_segment_file_when_given_a_name_then_by_its_form(name: str, expected: bool) -> None:
    """Twenty digits and one of five suffixes."""
    assert is_segment_file(name) == expected
