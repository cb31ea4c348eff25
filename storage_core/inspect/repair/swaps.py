"""Finishes or undoes a replacement of segments that a crash interrupted, as the loading of a log does.

The passes are `finish_leftovers`'; a repair has names of its own for the steps at which tests kill it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sparklog.storage_core.fault_points import reach
from sparklog.storage_core.log.load.finish_leftovers import finish_leftovers
from sparklog.storage_core.storage.owned_names import Owner

__all__ = ["finish_swaps"]

_POINTS: Final = {
    "load.dropped": "repair.dropped",
    "load.replaced": "repair.dropped",
    "load.renamed": "repair.swapped",
}


def finish_swaps(directory: Path, owner: Owner) -> None:
    """Bring a log's directory to what a broker makes of it: no `.cleaned`, `.swap` or `.deleted` file is left.

    Raises:
        CorruptFileError: a replacement is damaged; nothing was changed.
    """
    finish_leftovers(directory, owner, reached=lambda point: reach(_POINTS[point]))
