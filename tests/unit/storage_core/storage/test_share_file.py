"""A second file of the same content."""

import os
from pathlib import Path

import pytest

from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.storage.share_file import share_file, share_only


def test_share_file_when_both_are_on_one_filesystem_then_no_bytes_are_copied(tmp_path: Path) -> None:
    """Blocks or a name are shared, and the time of the last change stays."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"content")
    os.utime(source, ns=(1, 2))

    assert share_file(source, target, may_link=True) in ("reflink", "hard link")

    assert target.read_bytes() == b"content"
    assert target.stat().st_mtime_ns == 2


def test_share_file_when_the_target_is_on_another_filesystem_then_a_copy(tmp_path: Path, memory_path: Path) -> None:
    """Neither blocks nor a name can be shared."""
    if os.stat(tmp_path).st_dev == os.stat(memory_path).st_dev:
        pytest.skip("ONE FILESYSTEM ONLY: there is no /dev/shm to copy to")
    source, target = tmp_path / "source", memory_path / "target"
    source.write_bytes(b"content")
    os.utime(source, ns=(1, 2))

    assert share_file(source, target, may_link=True) == "copy"

    assert target.read_bytes() == b"content"
    assert (target.stat().st_mtime_ns, target.stat().st_nlink, source.stat().st_nlink) == (2, 1, 1)


def test_share_file_when_the_target_is_there_then_refused_and_kept(tmp_path: Path) -> None:
    """Nothing is written over."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"new")
    target.write_bytes(b"old")

    with pytest.raises(StorageError, match="target"):
        share_file(source, target, may_link=True)

    assert target.read_bytes() == b"old"


def test_share_file_when_it_may_not_be_one_file_then_another_inode(tmp_path: Path) -> None:
    """Who truncates one of them leaves the other one whole."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"content")

    share_file(source, target, may_link=False)
    os.truncate(target, 1)

    assert source.read_bytes() == b"content"


def test_share_only_when_bytes_would_be_copied_then_nothing_is_made(tmp_path: Path, memory_path: Path) -> None:
    """What can be shared can be tried before anything is planned."""
    if os.stat(tmp_path).st_dev == os.stat(memory_path).st_dev:
        pytest.skip("ONE FILESYSTEM ONLY: there is no /dev/shm to copy to")
    source = tmp_path / "source"
    source.write_bytes(b"content")

    assert share_only(source, memory_path / "target", may_link=True) is None
    assert share_only(source, tmp_path / "target", may_link=True) in ("reflink", "hard link")

    assert not (memory_path / "target").exists()
    assert (tmp_path / "target").read_bytes() == b"content"
