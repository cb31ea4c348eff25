"""Whatever happens to the files of a log: behind a repair it is sound, and no record is another one."""

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.pipeline.checks.verify_logs import verify
from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.verbs.repair import RepairOptions, execute_repair
from sparklog.storage_core.clock import SystemClock
from sparklog.storage_core.inspect.verify.findings import HARMLESS_KINDS
from sparklog.storage_core.log.read.log_reader import LogReader
from tests.build.damaged_store import problems_of_repaired, write_store
from tests.build.written_log import Batch, write_log


def _damage(folder: Path, draw: random.Random, count: int) -> None:
    """Change, cut, lengthen, empty or remove some files of a log."""
    for _ in range(count):
        path = draw.choice(sorted(folder.iterdir()) or [folder / "none"])
        data = bytearray(path.read_bytes()) if path.is_file() else bytearray()
        kind = draw.choice(("flip", "flip", "flip", "cut", "garbage", "zeros", "overwrite", "empty", "remove"))
        at = draw.randrange(len(data) + 1)
        if kind == "flip" and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == "cut":
            del data[at:]
        elif kind == "garbage":
            data += draw.randbytes(draw.randrange(1, 200))
        elif kind == "zeros":
            data += bytes(draw.randrange(1, 200))
        elif kind == "overwrite":
            data[at : at + 60] = draw.randbytes(len(data[at : at + 60]))
        elif kind == "empty":
            data.clear()
        if kind == "remove":
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(data)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_repair_of_any_damage_to_a_plain_log_leaves_a_sound_one(seed: int, count: int) -> None:
    """A folder that was damaged anyhow is sound behind a repair, or says what is left; records are what they were."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "logs" / "t-0"
        write_log(directory, [[Batch([s * 100 + b, b]) for b in range(4)] for s in range(3)])
        before = _records(directory)
        _damage(directory, random.Random(seed), count)

        result = execute_repair(directory, RepairOptions(jobs=1), SystemClock(), lambda _step: None)

        left = [
            each
            for each in verify(open_logs(directory), lambda _finding: None).findings
            if each.kind not in HARMLESS_KINDS
        ]
        assert left == [each for each in result.left if each in left]
        if not left:
            assert _records(directory).items() <= before.items()


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_repair_of_any_damage_to_a_stores_log_leaves_nothing_unaccounted_for(seed: int, count: int) -> None:
    """Every offset of a store is there or recorded as lost, and the ends are what they were.

    Otherwise the repair says what it could not repair: a base offset that nothing proves.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = write_store(Path(folder) / "store")
        _damage(store / "logs" / "t-0", random.Random(seed), count)

        result = execute_repair(store, RepairOptions(jobs=1), SystemClock(), lambda _step: None)

        if {"base-offset", "gap"} & {each.rule for each in result.left}:
            assert not result.is_sound
        else:
            assert problems_of_repaired(store) == []


def _records(directory: Path) -> dict[int, tuple[object, ...]]:
    reader = LogReader(directory)
    return {
        row["offset"]: (row["timestamp"], row["key"], row["value"])
        for batch in reader.read(reader.log_start_offset)
        for row in batch.to_pylist()
    }
