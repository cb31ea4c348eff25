"""Files on a local disk: no byte is lost on the way, and every refusal names its path."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.storage_core.errors import StorageError
from sparklog.storage_core.storage.copy_range import copy_range
from sparklog.storage_core.storage.local import make_directory, storage_errors, sync_directories, sync_files, write_all


@pytest.fixture
def opened() -> Iterator[Callable[[Path, int], int]]:
    descriptors: list[int] = []

    def open_file(path: Path, flags: int) -> int:
        descriptors.append(os.open(path, flags, 0o644))
        return descriptors[-1]

    yield open_file
    for descriptor in descriptors:
        os.close(descriptor)


def test_write_all_writes_at_its_position(tmp_path: Path, opened: Callable[[Path, int], int]) -> None:
    """What lies before and behind stays."""
    (tmp_path / "file").write_bytes(b"0123456789")

    write_all(opened(tmp_path / "file", os.O_WRONLY), memoryview(b"abc"), 4)

    assert (tmp_path / "file").read_bytes() == b"0123abc789"


def test_write_all_when_the_disk_fills_up_then_raises_after_the_short_write(
    tmp_path: Path, opened: Callable[[Path, int], int]
) -> None:
    """A full disk shows first as a short count, and only the next call fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StorageError, match=rf"File too large: path={tmp_path}"), storage_errors(tmp_path):
            write_all(opened(tmp_path / "file", os.O_WRONLY | os.O_CREAT), bytes(5000), 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "file").stat().st_size == 1000


@pytest.mark.parametrize("other_filesystem", [False, True])
def test_copy_range_copies_between_positions(
    tmp_path: Path, memory_path: Path, opened: Callable[[Path, int], int], other_filesystem: bool
) -> None:
    """Inside the kernel, on one filesystem or across two; what lies around it stays, and so does the source."""
    source, target = tmp_path / "source", (memory_path if other_filesystem else tmp_path) / "target"
    data = os.urandom(3_000_000)
    source.write_bytes(data)
    target.write_bytes(b"x" * 100)

    copy_range(opened(source, os.O_RDONLY), 5, opened(target, os.O_WRONLY), 10, len(data) - 7)

    assert target.read_bytes() == b"x" * 10 + data[5:-2]
    assert source.read_bytes() == data


@pytest.mark.parametrize("other_filesystem", [False, True])
def test_copy_range_when_the_source_is_too_short_then_raises(
    tmp_path: Path, memory_path: Path, opened: Callable[[Path, int], int], other_filesystem: bool
) -> None:
    """It does not wait for bytes that never come."""
    source, target = tmp_path / "source", (memory_path if other_filesystem else tmp_path) / "target"
    source.write_bytes(b"abc")

    with pytest.raises(OSError, match="ends before"):
        copy_range(opened(source, os.O_RDONLY), 0, opened(target, os.O_WRONLY | os.O_CREAT), 0, 4)


def test_make_directory_makes_what_is_missing_above(tmp_path: Path) -> None:
    """And is content with what is there."""
    make_directory(tmp_path / "a" / "b" / "c")
    make_directory(tmp_path / "a" / "b")

    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_make_directory_when_a_file_is_in_the_way_then_raises(tmp_path: Path) -> None:
    """A file can't become a folder."""
    (tmp_path / "a").write_text("")

    with pytest.raises(StorageError, match="path="), storage_errors(tmp_path):
        make_directory(tmp_path / "a" / "b")


@pytest.mark.parametrize("count", [0, 1, 5, 200])
def test_sync_files_takes_any_number(tmp_path: Path, count: int) -> None:
    """One call per file, or one per filesystem where they are many."""
    paths = [tmp_path / str(number) for number in range(count)]
    for path in paths:
        path.write_bytes(b"x")

    sync_files(paths)
    sync_directories([tmp_path, tmp_path])


@pytest.mark.parametrize("count", [1, 2, 200])
def test_sync_files_when_one_is_missing_then_raises(tmp_path: Path, count: int) -> None:
    """A file that can't be synced is not durable, however many others are."""
    for number in range(count - 1):
        (tmp_path / str(number)).write_bytes(b"x")

    with pytest.raises(FileNotFoundError):
        sync_files([*(tmp_path / str(number) for number in range(count - 1)), tmp_path / "gone" / "file"])


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space left on the disk: path=/given"),
        (OSError(errno.ENOSPC, "No space left on device", "/named"), "no space left on the disk: path=/named"),
        (PermissionError(errno.EACCES, "Permission denied", "/named"), "Permission denied: path=/named"),
        (OSError("something else"), "something else: path=/given"),
    ],
)
def test_storage_errors_names_reason_and_path(raised: OSError, message: str) -> None:
    """The path of the error wins over the one of the block; the cause is kept."""
    with pytest.raises(StorageError) as error, storage_errors("/given"):
        raise raised

    assert str(error.value) == message
    assert error.value.__cause__ is raised
