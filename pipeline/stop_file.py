"""How a maintenance run's tasks hear that it is to stop: a file beside its tables, looked for between two logs."""

from dataclasses import dataclass
from pathlib import Path

from storage_core.storage.local import make_directory, storage_errors

__all__ = ["StopFile"]


@dataclass(frozen=True, slots=True)
class StopFile:
    """The wish to stop, of the run that holds the store; travels to tasks.

    Attributes:
        path: of the file.
    """

    path: str

    @classmethod
    def of(cls, store: Path) -> "StopFile":
        """Return the one of a store."""
        return cls(str(store.absolute() / "control" / "maintenance.stop"))

    def ask(self) -> None:
        """Let the run end behind the logs that are being cleaned."""
        with storage_errors(self.path):
            make_directory(Path(self.path).parent)
            Path(self.path).touch()

    def clear(self) -> None:
        """Forget a wish: the run that it was meant for has ended."""
        with storage_errors(self.path):
            Path(self.path).unlink(missing_ok=True)

    def is_asked(self) -> bool:
        """Whether the run is to stop."""
        return Path(self.path).exists()
