"""The stop file of a maintenance run, `control/maintenance.stop.*`: its Spark tasks check it between two logs.

Each process has its own file, so that a signal counts from the process's start on, before it holds the store.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklog.storage_core.storage.local import make_directory, storage_errors

__all__ = ["StopFile"]

_NAME: Final = "maintenance.stop"


@dataclass(frozen=True, slots=True)
class StopFile:
    """The request to stop one process; sent to Spark tasks.

    Attributes:
        path: of the file.
    """

    path: str

    @classmethod
    def of(cls, store: Path) -> "StopFile":
        """Return the stop file of this process, for a store."""
        return cls(str(store.absolute() / "control" / f"{_NAME}.{socket.gethostname()}.{os.getpid()}"))

    def ask(self) -> None:
        """Let the run end after the logs that are being cleaned."""
        with storage_errors(self.path):
            make_directory(Path(self.path).parent)
            Path(self.path).touch()

    def clear(self) -> None:
        """Remove the file: at the end, and before a signal can come, as an earlier process may have had this pid."""
        with storage_errors(self.path):
            Path(self.path).unlink(missing_ok=True)

    def drop_others(self) -> None:
        """Remove files of killed processes; the caller holds the store, so no other process needs its file."""
        own = Path(self.path)
        with storage_errors(own.parent):
            for path in own.parent.glob(f"{_NAME}*"):
                if path != own:
                    path.unlink(missing_ok=True)

    def is_asked(self) -> bool:
        """Whether the run is to stop."""
        return Path(self.path).exists()
