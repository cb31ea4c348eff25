"""A small disk of its own, whose power can be cut: what was not yet on it is gone afterwards.

The file system's own shutdown ioctl drops everything that is only in memory; mounting again replays the journal. The
power is cut while the job that writes stands still at a named step: a cut in the middle of an fsync may lose what that
fsync reports as written, which no disk does.
"""

import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path

__all__ = ["FILESYSTEMS", "LoopDisk", "unmount"]

FILESYSTEMS = ("ext4", "xfs")
"""Those that Kafka is mostly run on; the second one makes no disk below 300 MB."""

_IMAGE_BYTES = {"ext4": 96 << 20, "xfs": 320 << 20}
_MAKE = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}

_PATIENCE_S = 10.0
_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING_THE_JOURNAL = 2


class LoopDisk:
    """A file system in a sparse file.

    Args:
        root: a folder for the file, and for the folder it is mounted on.
        filesystem: one of `FILESYSTEMS`.

    Attributes:
        folder: where it is mounted.
    """

    def __init__(self, root: Path, filesystem: str = "ext4") -> None:
        self.folder = root / "disk"
        self._image = root / "disk.img"
        self._filesystem = filesystem

    def make(self) -> str | None:
        """Make and mount it; return why that is not possible here."""
        if os.geteuid() != 0:
            return "mounting a disk image needs root"
        self.folder.mkdir()
        with self._image.open("wb") as image:
            image.truncate(_IMAGE_BYTES[self._filesystem])
        return _run(*_MAKE[self._filesystem], str(self._image)) or self._mount()

    def settle(self) -> None:
        """Bring everything onto the disk."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        subprocess.run(["sync", "-f", str(self.folder)], check=True)
        os.close(descriptor)

    def cut_power(self) -> None:
        """Lose what is not on the disk; whoever has files open there has to be ended before `plug_in`."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_JOURNAL))
        finally:
            os.close(descriptor)

    def plug_in(self) -> None:
        """Mount it again."""
        unmount(self.folder)
        problem = self._mount()
        if problem is not None:
            raise OSError(problem)

    def remove(self) -> None:
        """Unmount it for good."""
        if self.folder.is_mount():
            unmount(self.folder)

    def _mount(self) -> str | None:
        problem = _run("mount", "-o", "loop", str(self._image), str(self.folder))
        if problem is None:
            self._take_pages_one_by_one()
        return problem

    def _take_pages_one_by_one(self) -> None:
        """Let no request be longer than a page, which the file below takes whole or not at all.

        Linux 6.18 reports a longer one as written if only its first pages were, where the file system below is full: an
        fsync then succeeds without what it was for, which is this device's lie and no disk's.
        """
        device = self.folder.stat().st_dev
        limit = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue/max_sectors_kb")
        limit.write_text(str(os.sysconf("SC_PAGE_SIZE") >> 10))


def unmount(folder: Path) -> None:
    """Unmount a file system; files that this process has open there may be closed a moment later."""
    deadline = time.monotonic() + _PATIENCE_S
    while (problem := _run("umount", str(folder))) is not None:
        if time.monotonic() > deadline:
            raise OSError(problem)
        time.sleep(0.02)


def _run(*command: str) -> str | None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    return f"{command[0]}: {done.stderr.strip()}" if done.returncode else None
