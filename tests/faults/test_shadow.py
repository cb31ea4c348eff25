"""The disk in memory against what ext4 and XFS were seen to leave of each protocol, and what it must not leave."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.storage_core.storage.local import sync_directory, sync_files
from sparklog.storage_core.storage.owned_names import UNSHARED, replace_file
from tests.faults.shadow import Shadow, images, write_image
from tests.faults.system_calls import watched

_OLD, _NEW = b"oldold", b"newest"
_ZEROS = bytes(6)
_Files = dict[str, bytes]


@pytest.fixture
def disk(memory_path: Path) -> Path:
    """A folder that is on the disk, with one file."""
    folder = memory_path / "disk"
    folder.mkdir()
    (folder / "old").write_bytes(_OLD)
    return folder


def _outcomes(disk: Path, protocol: Callable[[Path], object]) -> list[_Files]:
    """Return every image of a power cut right behind a protocol."""
    shadow = Shadow(disk)
    with watched(disk, shadow):
        protocol(disk)
        moment = shadow.moment()
    found: list[_Files] = []
    for number, choose in enumerate(images(moment)):
        image = disk.with_name(f"image-{number}")
        write_image(moment, image, choose)
        files = {str(path.relative_to(image)): path.read_bytes() for path in image.rglob("*") if path.is_file()}
        if files not in found:
            found.append(files)
    return found


def _write(path: Path, data: bytes, *, flags: int = os.O_CREAT) -> None:
    with _opened(path, os.O_WRONLY | flags) as descriptor:
        os.pwrite(descriptor, data, 0)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_new_file_when_synced_without_its_folder_then_may_be_there_or_not(disk: Path) -> None:
    """Seen: there. Not promised: its name is its folder's."""

    def protocol(folder: Path) -> None:
        _write(folder / "new", _NEW)
        sync_files([folder / "new"])

    assert _outcomes(disk, protocol) == [{"old": _OLD}, {"old": _OLD, "new": _NEW}]


def test_new_folder_when_its_file_is_synced_then_may_be_there(disk: Path) -> None:
    """Seen: there, though nobody synced the folder above."""

    def protocol(folder: Path) -> None:
        (folder / "sub").mkdir()
        _write(folder / "sub" / "new", _NEW)
        sync_files([folder / "sub" / "new"])
        sync_directory(folder / "sub")

    assert {"old": _OLD, "sub/new": _NEW} in _outcomes(disk, protocol)


def test_rename_when_its_folder_is_not_synced_then_may_be_undone(disk: Path) -> None:
    """Seen: the old name, the old content. Never: anything but one of the two under the name."""

    def protocol(folder: Path) -> None:
        _write(folder / "old.tmp", _NEW)
        sync_files([folder / "old.tmp"])
        sync_directory(folder)
        (folder / "old.tmp").replace(folder / "old")

    assert _outcomes(disk, protocol) == [{"old": _OLD, "old.tmp": _NEW}, {"old": _NEW}]


def test_replace_file_when_the_power_goes_behind_it_then_has_replaced(disk: Path) -> None:
    """Every sync of it is there for this: one image only."""
    assert _outcomes(disk, lambda folder: replace_file(UNSHARED, folder / "old", _NEW)) == [{"old": _NEW}]


def test_replace_file_when_the_power_goes_within_it_then_holds_the_old_or_the_new(disk: Path) -> None:
    """At no moment is anything else under the name."""
    shadow = Shadow(disk)
    with watched(disk, shadow):
        replace_file(UNSHARED, disk / "old", _NEW)
    assert len(shadow.moments) > 4

    for number, moment in enumerate(shadow.moments):
        for other, choose in enumerate(images(moment)):
            image = disk.with_name(f"image-{number}-{other}")
            write_image(moment, image, choose)

            assert (image / "old").read_bytes() in (_OLD, _NEW)


def test_rename_when_the_content_was_not_synced_then_the_name_may_hold_zeros(disk: Path) -> None:
    """Seen: 0 bytes under a new name; right size and zeros, or 0 bytes, in place of an old file, which is gone."""

    def protocol(folder: Path) -> None:
        _write(folder / "old.tmp", _NEW)
        (folder / "old.tmp").replace(folder / "old")
        sync_directory(folder)

    found = [files["old"] for files in _outcomes(disk, protocol)]

    assert {b"", _ZEROS, _NEW} <= set(found)
    assert _OLD not in found


def test_link_when_its_folder_is_not_synced_then_may_be_absent(disk: Path) -> None:
    """Seen: absent."""

    def protocol(folder: Path) -> None:
        os.link(folder / "old", folder / "link")

    assert {"old": _OLD} in _outcomes(disk, protocol)


@pytest.mark.parametrize("is_synced", [False, True])
def test_unlink_when_its_folder_is_not_synced_then_may_be_undone(disk: Path, is_synced: bool) -> None:
    """Seen: the file comes back."""

    def protocol(folder: Path) -> None:
        (folder / "old").unlink()
        if is_synced:
            sync_directory(folder)

    assert ({"old": _OLD} in _outcomes(disk, protocol)) is not is_synced


@pytest.mark.parametrize("is_synced", [False, True])
def test_truncation_when_not_synced_then_may_be_undone_under_what_is_appended(disk: Path, is_synced: bool) -> None:
    """Seen: the cut tail comes back."""

    def protocol(folder: Path) -> None:
        with _opened(folder / "old", os.O_RDWR) as descriptor:
            os.ftruncate(descriptor, 2)
            if is_synced:
                os.fsync(descriptor)
            os.pwrite(descriptor, b"X", 2)

    found = [files["old"] for files in _outcomes(disk, protocol)]

    assert (_OLD in found) is not is_synced
    assert (b"olXold" in found) is not is_synced
    assert b"olX" in found
    assert all(content.startswith(b"ol") for content in found)


def test_index_when_synced_before_its_log_then_may_be_ahead_of_it(disk: Path) -> None:
    """Seen: an index with entries beside an empty log."""

    def protocol(folder: Path) -> None:
        _write(folder / "log", _NEW)
        _write(folder / "index", b"entry")
        sync_files([folder / "index"])
        sync_directory(folder)

    assert {"old": _OLD, "log": b"", "index": b"entry"} in _outcomes(disk, protocol)


def test_allocated_file_when_its_content_is_not_synced_then_may_be_all_zeros(disk: Path) -> None:
    """Seen: the full size, all zeros."""

    def protocol(folder: Path) -> None:
        with _opened(folder / "old", os.O_RDWR) as descriptor:
            os.ftruncate(descriptor, 0)
            os.ftruncate(descriptor, 6)
            os.fsync(descriptor)
            os.pwrite(descriptor, _NEW, 0)

    assert _ZEROS in [files["old"] for files in _outcomes(disk, protocol)]


def test_appends_when_synced_now_and_then_then_keep_at_least_what_was_synced(disk: Path) -> None:
    """Seen: always a clean prefix, at least the synced length, often beyond it."""

    def protocol(folder: Path) -> None:
        with _opened(folder / "old", os.O_RDWR) as descriptor:
            os.pwrite(descriptor, b"AB", 6)
            os.fdatasync(descriptor)
            os.pwrite(descriptor, b"CD", 8)

    found = [files["old"] for files in _outcomes(disk, protocol)]

    assert {b"oldoldAB", b"oldoldABC", b"oldoldABCD"} <= set(found)
    assert all(content.startswith(b"oldoldAB") for content in found)
