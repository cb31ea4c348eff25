"""Removals and renames that happen while an owner is held."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.storage_core.errors import WriterFencedError
from sparklog.storage_core.storage.owned_names import (
    UNSHARED,
    Owner,
    change_names,
    make_file,
    remove_empty_folder,
    remove_file,
    remove_tree,
    remove_unique,
    rename,
    replace_file,
)
from tests.build.owners import CheckedBy
from tests.build.sink_store import contents


def _lost() -> None:
    raise WriterFencedError("lost")


@pytest.mark.parametrize(
    "deed",
    [
        lambda owner, path: remove_file(owner, path / "file"),
        lambda owner, path: remove_empty_folder(owner, path / "empty"),
        remove_tree,
        lambda owner, path: rename(owner, path / "file", path / "other"),
        lambda owner, path: make_file(owner, path / "file"),
        lambda owner, path: replace_file(owner, path / "file", b"mine"),
        lambda owner, path: change_names(owner, (path / "file").unlink),
    ],
)
def test_deed_when_the_owner_is_fenced_then_nothing_changes(
    tmp_path: Path, deed: Callable[[Owner, Path], None]
) -> None:
    """The check comes before each of them."""
    folder = tmp_path / "folder"
    (folder / "empty").mkdir(parents=True)
    (folder / "file").write_bytes(b"the successor's")

    with pytest.raises(WriterFencedError):
        deed(CheckedBy(_lost), folder)

    assert contents(tmp_path) == {"folder/file": b"the successor's"}
    assert (folder / "empty").is_dir()


def test_replace_file_puts_content_under_the_name_and_leaves_nothing_else(tmp_path: Path) -> None:
    """An older temporary file, left by a crash, is no obstacle."""
    (tmp_path / "file").write_bytes(b"a longer old content")
    (tmp_path / "file.tmp").write_bytes(b"left by a crash, and longer than what comes")

    replace_file(UNSHARED, tmp_path / "file", b"new")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"new"}


def test_replace_file_when_the_store_is_lost_after_the_file_was_made_then_writes_into_no_file_of_the_successor(
    tmp_path: Path,
) -> None:
    """Both make the same temporary file: truncated, it would be one that the successor renames."""
    calls = iter(range(2))

    def lose() -> None:
        if next(calls):
            replace_file(UNSHARED, tmp_path / "file", b"the successor's")
            raise WriterFencedError("lost")

    with pytest.raises(WriterFencedError):
        replace_file(CheckedBy(lose), tmp_path / "file", b"old")

    assert (tmp_path / "file").read_bytes() == b"the successor's"


def test_make_file_when_one_is_there_then_makes_another(tmp_path: Path) -> None:
    """Who has the old one open keeps what he has."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as old:
        os.close(make_file(UNSHARED, path))

        assert old.read() == b"old"
    assert path.read_bytes() == b""


def test_remove_tree_when_an_earlier_one_was_killed_then_removes_what_it_left(tmp_path: Path) -> None:
    """Also where the tree itself is gone by then; another tree stays."""
    (tmp_path / f"tree.{'a' * 32}-delete" / "deep").mkdir(parents=True)
    (tmp_path / "other").mkdir()

    remove_tree(UNSHARED, tmp_path / "tree")

    assert os.listdir(tmp_path) == ["other"]


@pytest.mark.parametrize(
    "name", ["0badcafe", "0.log.0badcafe.cleaned", f"0-{'a' * 32}.batches", "t-0.x-delete", "1.deleted"]
)
def test_remove_unique_when_a_name_is_nobodys_then_removes_it(tmp_path: Path, name: str) -> None:
    """A file or a tree; once more it does nothing."""
    (tmp_path / name).mkdir()

    for _ in range(2):
        remove_unique(tmp_path / name)

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", [f"{0:020}.log", "deadbeef-0", "staging", "00000000000000000000.timeindex"])
def test_remove_unique_when_a_successor_may_have_a_name_then_refuses(tmp_path: Path, name: str) -> None:
    """A segment, a log, whose topic looks like a token, a folder of the store."""
    (tmp_path / name).mkdir()

    with pytest.raises(ValueError, match="a successor may have a file of that name"):
        remove_unique(tmp_path / name)

    assert os.listdir(tmp_path) == [name]
