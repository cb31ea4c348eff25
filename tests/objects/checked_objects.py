"""What a store of objects must hold once its job has come to its end, however often it was killed on the way."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

from sparklog.sink.objects.object_ledger import ObjectLedger
from tests.kill.directory_job import finish
from tests.kill.object_job import object_place, problems_of_objects, sweep_place, write_objects

__all__ = ["check_objects", "complete_objects", "error_of", "sweep_objects"]

_TRIES = 30


def complete_objects(context: ForkServerContext, store: Path) -> None:
    """Let a writer come to its end; requests may get lost, so it may need several runs."""
    assert any(finish(context, write_objects, store) == 0 for _ in range(_TRIES)), error_of(store)


def check_objects(context: ForkServerContext, store: Path) -> None:
    """Each number is there once, and no object is left that no version names."""
    sweep_objects(context, store)
    assert problems_of_objects(store) == []


def sweep_objects(context: ForkServerContext, store: Path) -> None:
    """Let maintenance remove all objects that no version names; none is left."""
    for _ in range(2):  # the second run removes what the first one let go
        assert finish(context, sweep_place, store) == 0, error_of(store)
    place = object_place(store)
    named = {each.object for extents in ObjectLedger.open(place).extents().values() for each in extents}
    assert {each.name for each in place.open().list("data")} == named


def error_of(store: Path) -> str:
    """Return what the last run said that failed."""
    path = store.parent / "error.txt"
    return path.read_text() if path.exists() else ""
