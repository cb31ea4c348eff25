"""Whatever happened to a log directory: a loading does what its plan says, and leaves nothing to do."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.storage_core.errors import LogStorageError
from sparklog.storage_core.log.files.segments import SegmentFiles
from sparklog.storage_core.log.load.load_log import LoadedLog
from sparklog.storage_core.log.load.split_segment import SplitPart, plan_split
from sparklog.storage_core.log_config import INT32_MAX
from sparklog.storage_core.record.batch_scan import check_crcs, scan_batches
from tests.build.loaded_log import execute_load, plan_load
from tests.build.sink_store import contents
from tests.build.written_log import Batch, encode_batch, write_log

_BASES = (0, 6, 12, 18)
_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four segments of three batches of two records."""
    segments = [[Batch([s * 100 + b, s * 100 + b + 1]) for b in range(3)] for s in range(4)]
    return write_log(tmp_path_factory.mktemp("sound") / "t-0", segments, index_interval_bytes=100).directory


_FILES = st.builds(lambda base, suffix: f"{base:020d}{suffix}", st.sampled_from(_BASES), st.sampled_from(_SUFFIXES))
_CHANGES = st.one_of(
    st.tuples(st.just("flip"), _FILES, st.integers(0, 400), st.integers(0, 7)),
    st.tuples(st.just("cut"), _FILES, st.integers(0, 400), st.just(0)),
    st.tuples(st.just("extend"), _FILES, st.integers(1, 90), st.sampled_from([0, 7, 255])),
    st.tuples(st.just("remove"), _FILES, st.just(0), st.just(0)),
    st.tuples(st.sampled_from([".swap", ".cleaned", ".deleted"]), _FILES, st.booleans(), st.just(0)),
)


def _damage(directory: Path, change: tuple[str, str, int, int]) -> None:
    kind, name, position, detail = change
    path = directory / name
    data = bytearray(path.read_bytes() if path.exists() else b"")
    if kind == "remove":
        path.unlink(missing_ok=True)
    elif kind.startswith("."):
        path.with_name(name + kind).write_bytes(data)
        if position:
            path.unlink(missing_ok=True)
    else:
        if kind == "flip" and position < len(data):
            data[position] ^= 1 << detail
        elif kind == "cut":
            del data[position:]
        elif kind == "extend":
            data += bytes([detail]) * position
        path.write_bytes(data)


def _outcome(load: object, directory: Path, **options: object) -> LoadedLog | type[LogStorageError]:
    try:
        loaded: LoadedLog = load(directory, **options)  # type: ignore[operator]
    except LogStorageError as error:
        return type(error)
    return loaded


def _facts(loaded: LoadedLog) -> list[object]:
    steps = [(step.file.removesuffix(".swap"), step.what) for step in loaded.steps if ".snapshot" not in step.file]
    names = ("log_start_offset", "log_end_offset", "recovery_point", "base_offsets", "leader_epochs", "lost_bytes")
    return [steps, *(getattr(loaded, name) for name in names)]


@settings(deadline=None, max_examples=80)
@given(
    st.lists(_CHANGES, max_size=4),
    st.booleans(),
    st.sampled_from([0, 0, 7, 12, 24, 99]),
    st.sampled_from([0, 0, 3, 24, 50]),
)
def test_load_when_anything_happened_then_does_what_its_plan_says(
    sound: Path,
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[str, str, int, int]],
    is_clean: bool,
    recovery_point: int,
    log_start_offset: int,
) -> None:
    """A plan changes nothing; the loading gives what the plan gave, error or log; another one finds nothing to do."""
    directory = Path(shutil.copytree(sound, tmp_path_factory.mktemp("damaged") / "t-0"))
    for change in changes:
        _damage(directory, change)
    options = {"recovery_point": recovery_point, "log_start_offset": log_start_offset}
    before = contents(directory)

    planned = _outcome(plan_load, directory, is_clean=is_clean, **options)

    assert contents(directory) == before
    done = _outcome(execute_load, directory, is_clean=is_clean, **options)
    if isinstance(planned, type) or isinstance(done, type):
        assert planned == done
        return
    assert _facts(planned) == _facts(done)
    assert done.log_start_offset <= done.log_end_offset
    again = execute_load(directory, is_clean=is_clean, **options)
    # where a log starts, neither its epoch nor a snapshot there is of use, and a broker writes them all the same
    unstable = ("leader-epoch-checkpoint", ".snapshot") if done.log_start_offset else ()
    assert [step for step in again.steps if not step.file.endswith((".deleted", *unstable))] == []
    if not is_clean and recovery_point == 0:
        _check_batches(directory)


def _check_batches(directory: Path) -> None:
    """Every batch is whole, and offsets rise."""
    following = 0
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        scan = scan_batches(data)
        assert scan.valid_bytes == len(data)
        assert not len(check_crcs(data, scan))
        bounds = np.column_stack([scan.base_offset, scan.last_offset]).ravel()
        assert (np.diff(bounds, prepend=following - 1) >= 0).all()
        following = int(scan.next_offset[-1]) if len(scan) else following


def _plain_split(base: int, batches: list[tuple[int, int, int, int]]) -> list[SplitPart]:
    """Split one batch after the other; each is (first offset, last offset, position, size)."""
    parts = [SplitPart(base, 0, 0, base)]
    for first, last, position, size in batches:
        if last - parts[-1].base_offset > INT32_MAX:
            parts.append(SplitPart(first, position, 0, first))
        open_part = parts.pop()
        parts.append(SplitPart(open_part.base_offset, open_part.position, open_part.size_bytes + size, last + 1))
    return parts


def _batches(steps: list[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    offset = 0
    for gap, count in steps:
        offset += gap
        yield offset, encode_batch(Batch([0] * count), offset)
        offset += count


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2**30, 2**31 - 2, 2**31]), st.integers(1, 3)), min_size=1, max_size=8))
def test_plan_split_when_compared_with_a_plain_one_then_gives_the_same_parts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    """As many batches a part as fit, one after the other."""
    path = tmp_path_factory.mktemp("split") / f"{0:020d}.log"
    batches, data = [], b""
    for (offset, encoded), (_, count) in zip(_batches(steps), steps, strict=True):
        batches.append((offset, offset + count - 1, len(data), len(encoded)))
        data += encoded
    path.write_bytes(data)
    wanted = _plain_split(0, batches)

    if len(wanted) == 1:
        with pytest.raises(LogStorageError):
            plan_split(SegmentFiles(0, path))
    else:
        assert plan_split(SegmentFiles(0, path)) == wanted
