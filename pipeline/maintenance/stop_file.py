"""How a maintenance run's tasks hear that it is to stop: a file beside its tables, looked for between two logs.

Each process has its own, so that a signal counts from the start of the process on, long before it has the store.
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
    """The wish of one process to stop; travels to tasks.

    Attributes:
        path: of the file.
    """

    path: str

    @classmethod
    def of(cls, store: Path) -> "StopFile":
        """Return this process's, for a store."""
        return cls(str(store.absolute() / "control" / f"{_NAME}.{socket.gethostname()}.{os.getpid()}"))

    def ask(self) -> None:
        """Let the run end behind the logs that are being cleaned."""
        with storage_errors(self.path):
            make_directory(Path(self.path).parent)
            Path(self.path).touch()

    def clear(self) -> None:
        """Forget the wish: at the end, and before a signal can come: an earlier process may have had this number."""
        with storage_errors(self.path):
            Path(self.path).unlink(missing_ok=True)

    def drop_others(self) -> None:
        """Remove those of processes that were killed; the caller has the store, so that no other process's counts."""
        own = Path(self.path)
        with storage_errors(own.parent):
            for path in own.parent.glob(f"{_NAME}*"):
                if path != own:
                    path.unlink(missing_ok=True)

    def is_asked(self) -> bool:
        """Whether the run is to stop."""
        return Path(self.path).exists()
