"""Killed at a named step and started again, a loading leaves what an undisturbed one does."""

import shutil
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties
from sparklog.storage_core.checkpoint.producer_snapshot import parse_producer_snapshot
from sparklog.storage_core.fault_points import CHECKPOINT_FAULT_POINTS
from sparklog.storage_core.operation_fault_points import LOAD_FAULT_POINTS
from tests.build.damaged_store import change
from tests.build.golden import golden_root
from tests.build.written_log import Batch, encode_batch, write_log
from tests.kill.load_job import finish_load, load_and_close

pytestmark = pytest.mark.kill

_FAR = 2**31
_KINDS = (".log", ".index", ".timeindex")


def _path(log: Path, base: int, suffix: str) -> Path:
    return log / f"{base:020d}{suffix}"


def _swapped(log: Path) -> None:
    """A complete replacement of segments 3 and 6 beside them, and parts of one that was not complete."""
    merged = b"".join(_path(log, base, ".log").read_bytes() for base in (3, 6))
    for kind in _KINDS:
        _path(log, 3, kind + ".swap").write_bytes(merged if kind == ".log" else b"")
    _path(log, 9, ".log.swap").write_bytes(_path(log, 9, ".log").read_bytes())
    _path(log, 9, ".index.cleaned").write_bytes(b"half")
    _path(log, 0, ".log").rename(_path(log, 0, ".log.deleted"))


def _damaged(log: Path) -> None:
    """A wrong CRC in the second segment, and snapshots of segments that have to go."""
    change(_path(log, 3, ".log"), lambda data: data.__setitem__(150, data[150] ^ 1))
    for offset in (2, 3, 6, 12):
        _path(log, offset, ".snapshot").write_bytes(b"damaged")


def _unindexed(log: Path) -> None:
    """No indexes, one orphan, damage without which nobody would look."""
    for base in (0, 3, 6, 9):
        _path(log, base, ".index").unlink()
        _path(log, base, ".timeindex").unlink()
    _path(log, 7, ".timeindex").write_bytes(b"")
    change(_path(log, 3, ".log"), lambda data: data.__setitem__(150, data[150] ^ 1))


def _overflowed(log: Path) -> None:
    """Three batches too far apart for one segment."""
    for base in (3, 6, 9):
        for kind in _KINDS:
            _path(log, base, kind).unlink()
    batches = [encode_batch(Batch([1, 2]), offset) for offset in (0, _FAR, 2 * _FAR)]
    _path(log, 0, ".log").write_bytes(b"".join(batches))


_DAMAGES: tuple[Callable[[Path], object], ...] = (_swapped, _damaged, _unindexed, _overflowed)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's root with a log for each kind of damage, and a transactional one without indexes."""
    root = tmp_path_factory.mktemp("damaged") / "logs"
    for number, damage in enumerate(_DAMAGES):
        directory = root / f"t-{number}"
        write_log(directory, [[Batch([s * 10 + b]) for b in range(3)] for s in range(4)])
        damage(directory)
    directory = Path(shutil.copytree(golden_root().parent / "v2-transactional" / "v2-transactional-0", root / "x-0"))
    for suffix in (".index", ".timeindex", ".txnindex"):
        _path(directory, 0, suffix).unlink()
    (root / "meta.properties").write_bytes(render_meta_properties("c", 1, "d"))
    (root / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 1 1\n")
    return root


@pytest.fixture(scope="module")
def undisturbed(damaged: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a loading that nobody kills leaves."""
    root = Path(shutil.copytree(damaged, tmp_path_factory.mktemp("undisturbed") / "logs"))
    load_and_close(root)
    return _left(root)


def _left(root: Path) -> dict[str, object]:
    """Return the files of a root, but for those that wait to be removed; snapshots as what they say."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".deleted"]
    return {
        str(path.relative_to(root)): parse_producer_snapshot(path.read_bytes())
        if path.suffix == ".snapshot"
        else path.read_bytes()
        for path in files
    }


_VISITS = {
    "load.dropped": range(1, 7),
    "load.replaced": range(1, 10),
    "load.renamed": range(1, 7),
    "split.written": [1],
    "split.swapped": [1],
    "recover.cut": range(1, 12),
    "recover.indexed": range(1, 12),
    "recover.deleted": [1],
    "recover.snapshot": [1, 2, 5, 8, 11, 14],
}
_FILES = [f"{point}:{visit}" for point in CHECKPOINT_FAULT_POINTS for visit in (1, 2, 4, 8, 12)]
_STEPS = [*(f"{point}:{visit}" for point in LOAD_FAULT_POINTS for visit in _VISITS[point]), *_FILES]


@pytest.mark.parametrize("step", _STEPS)
def test_load_when_killed_at_a_step_then_the_second_one_ends_alike(
    context: ForkServerContext, memory_path: Path, damaged: Path, undisturbed: dict[str, object], step: str
) -> None:
    """Whatever step is the last one: the next loading comes to the same files."""
    root = Path(shutil.copytree(damaged, memory_path / "logs"))
    assert finish_load(context, root, SPARKLOG_FAULT_POINT=step) == -9

    load_and_close(root)

    assert _left(root) == undisturbed
