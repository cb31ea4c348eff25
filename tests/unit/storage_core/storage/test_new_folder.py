"""A folder that is there as a whole or not at all."""

import fcntl
import os
from pathlib import Path

import pytest

from sparklog.storage_core.errors import InvalidConfigError, StoreLockedError
from sparklog.storage_core.storage.new_folder import new_folder


def test_new_folder_when_block_ends_well_then_all_of_it_is_there(tmp_path: Path) -> None:
    """Files and folders appear under the name asked for, and nothing else stays."""
    with new_folder(tmp_path / "a" / "out") as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_bytes(b"x")
        assert not (tmp_path / "a" / "out").exists()

    assert (tmp_path / "a" / "out" / "sub" / "file").read_bytes() == b"x"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["out"]


def test_new_folder_when_block_fails_then_nothing_stays(tmp_path: Path) -> None:
    """Whatever ends the block early, an interrupt too, leaves neither the folder nor a part of it."""

    def interrupted() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "file").write_bytes(b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert list(tmp_path.iterdir()) == []


def test_new_folder_when_empty_folder_exists_then_takes_its_place(tmp_path: Path) -> None:
    """An empty folder is as good as none."""
    (tmp_path / "out").mkdir()
    with new_folder(tmp_path / "out") as folder:
        (folder / "file").touch()

    assert (tmp_path / "out" / "file").exists()


@pytest.mark.parametrize("name", ["full", "file"])
def test_new_folder_when_something_is_there_then_refuses(tmp_path: Path, name: str) -> None:
    """Nothing that exists is ever overwritten."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()

    with pytest.raises(InvalidConfigError, match="exists"), new_folder(tmp_path / name):
        pass
    assert (tmp_path / "full" / "x").exists()


def test_new_folder_when_process_died_then_next_one_starts_again(tmp_path: Path) -> None:
    """What a killed process left under the unfinished name is cleared."""
    (tmp_path / "out.unfinished" / "old").mkdir(parents=True)
    (tmp_path / "out.unfinished" / "part").write_bytes(b"half")
    with new_folder(tmp_path / "out") as folder:
        assert list(folder.iterdir()) == []

    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_new_folder_when_another_process_fills_it_then_refuses(tmp_path: Path) -> None:
    """Two cannot fill one folder: the second is told, and does no harm to the first."""
    (tmp_path / "out.unfinished").mkdir()
    (tmp_path / "out.unfinished" / "part").touch()
    descriptor = os.open(tmp_path / "out.unfinished", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(StoreLockedError), new_folder(tmp_path / "out"):
            pass
    finally:
        os.close(descriptor)

    assert (tmp_path / "out.unfinished" / "part").exists()
