"""The files of a cleaned segment while it is written.

They belong to the log only after a rename. After a crash the next cleaning or the next load of the log removes the
`.cleaned` files.

Kept batches were read for their CRCs and keys, so they are written from memory: a copy inside the kernel would read
them again (2.4 GB/s against 2.1 by `copy_file_range`, the first read included).

Source: Kafka UnifiedLog.createNewCleanedSegment, LogSegment.append.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np

from sparklog.storage_core.cleaner.rewrite.filter_batches import FilteredBatches
from sparklog.storage_core.errors import OffsetOutOfRangeError, StoreLockedError
from sparklog.storage_core.index.index_builder import IndexBuilder
from sparklog.storage_core.log.files.names import CLEANED, INDEX, LOG, TIMEINDEX, TXNINDEX, segment_file_name
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.storage.local import storage_errors, sync_directory, sync_file, write_all, write_file
from sparklog.storage_core.storage.open_regular import open_to_change
from sparklog.storage_core.storage.owned_names import remove_unique

__all__ = ["CleanedOutput"]

_BUFFER_BYTES: Final = 1 << 20
_LARGE_BYTES: Final = 1 << 16


class CleanedOutput:
    """A new segment.

    Attributes:
        size_bytes: of its `.log` so far.
        next_offset: above its last batch; its base offset without one.
    """

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        names = (segment_file_name(base_offset, suffix + CLEANED) for suffix in (LOG, INDEX, TIMEINDEX, TXNINDEX))
        self._paths = tuple(directory / name for name in names)
        self._base_offset = base_offset
        self._indexes = IndexBuilder(base_offset, index_interval_bytes)
        self._waiting = bytearray()
        self.size_bytes = 0
        self.next_offset = base_offset
        self._descriptor = -1
        with storage_errors(self._paths[0]):
            for path in self._paths:
                remove_unique(path)
            self._descriptor = open_to_change(self._paths[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def append(self, filtered: FilteredBatches, data: bytes | memoryview) -> None:
        """Append batches.

        Args:
            data: the bytes of its parts that were not rebuilt.

        Raises:
            OffsetOutOfRangeError: an offset is too far above the base for an index.
        """
        if not len(filtered.size):
            return
        last_offset = int(filtered.last_offset[-1])
        if last_offset - self._base_offset > INT32_MAX:
            raise OffsetOutOfRangeError(
                f"an index can't hold an offset so far above its segment's base: offset={last_offset} "
                f"base_offset={self._base_offset}"
            )
        positions = self.size_bytes + np.cumsum(filtered.size) - filtered.size
        self._indexes.add(positions, filtered.last_offset, filtered.max_timestamp)
        view = memoryview(data)
        for part in filtered.parts:
            piece = part if isinstance(part, memoryview) else view[part[0] : part[0] + part[1]]
            self._add(piece)
        self.next_offset = last_offset + 1

    def finish(self, transaction_entries: bytes, modified_ns: int) -> tuple[Path, ...]:
        """Sync the files; return their paths.

        Raises:
            StoreLockedError: another task has put its own file there.
        """
        self._write()
        built = self._indexes.finish()
        contents = [None, built.offset_index, built.time_index, transaction_entries or None]
        paths = tuple(path for path, content in zip(self._paths, contents, strict=True) if content is not None)
        with storage_errors(self._paths[0]):
            if not self._is_own():
                raise StoreLockedError(f"another task writes this segment: path={self._paths[0]}")
            for path, content in zip(self._paths, contents, strict=True):
                if content is not None:
                    write_file(path, content)
            self._close()
            for path in (self._paths[0], *paths):
                os.utime(path, ns=(modified_ns, modified_ns))
                sync_file(path)
            sync_directory(self._paths[0].parent)
        return (self._paths[0], *paths)

    def discard(self) -> None:
        """Remove the files, unless another task has put its own there."""
        self._waiting.clear()
        with storage_errors(self._paths[0]):
            is_own = self._is_own()
            self._close()
            for path in self._paths if is_own else ():
                remove_unique(path)

    def _is_own(self) -> bool:
        """Whether the `.log` is the file that was made here; unknown after its close."""
        try:
            return self._descriptor < 0 or os.path.samestat(os.fstat(self._descriptor), self._paths[0].stat())
        except FileNotFoundError:
            return False

    def _add(self, piece: memoryview) -> None:
        """Write a large piece; copy a small one for later, so that its chunk can be freed."""
        if len(piece) < _LARGE_BYTES:
            self._waiting += piece
        else:
            self._write()
            with storage_errors(self._paths[0]):
                write_all(self._descriptor, piece, self.size_bytes)
        self.size_bytes += len(piece)
        if len(self._waiting) >= _BUFFER_BYTES:
            self._write()

    def _write(self) -> None:
        with storage_errors(self._paths[0]):
            write_all(self._descriptor, bytes(self._waiting), self.size_bytes - len(self._waiting))
        self._waiting.clear()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
