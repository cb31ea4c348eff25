"""What the verbs of the command share: exit codes, and the options that several have."""

from pathlib import Path
from typing import Final

import click

__all__ = ["DONE", "EXECUTE", "FAILED", "JSON", "PLACE", "WRONG_USE"]

DONE: Final = 0
FAILED: Final = 1
WRONG_USE: Final = 2

PLACE: Final = click.Path(exists=True, file_okay=False, path_type=Path)
EXECUTE: Final = click.option("--execute", is_flag=True, help="Do it; without, only say what would be done.")
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
