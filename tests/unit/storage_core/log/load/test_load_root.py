"""Loading of whole roots: the marker, the checkpoints, many logs."""

from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties
from sparklog.storage_core.checkpoint.offset_checkpoint import parse_offset_checkpoint, render_offset_checkpoint
from sparklog.storage_core.errors import CorruptFileError
from sparklog.storage_core.log.load.load_root import (
    LoadedRoot,
    RootOptions,
    close_root,
    load_one_log,
    load_roots,
    plan_roots,
)
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.damaged_store import change
from tests.build.loaded_log import NOW_MS
from tests.build.sink_store import contents
from tests.build.written_log import Batch, write_log

_OPTIONS = RootOptions(now_ms=NOW_MS, jobs=2, index_interval_bytes=200)
_MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A broker's root with three logs of three segments each, offsets 0, 6 and 12, log end 18; no marker."""
    root = tmp_path / "logs"
    for partition in range(3):
        write_log(root / f"t-{partition}", [[Batch([s * 100 + b, 5]) for b in range(3)] for s in range(3)])
    (root / "meta.properties").write_bytes(render_meta_properties("c", 1, "d"))
    return root


def _checkpoint(root: Path, name: str) -> dict[str, int]:
    return {str(log): offset for log, offset in parse_offset_checkpoint((root / name).read_bytes()).items()}


def _write(root: Path, name: str, **offsets: int) -> None:
    logs = {TopicPartition("t", int(partition[1:])): offset for partition, offset in offsets.items()}
    (root / name).write_bytes(render_offset_checkpoint(logs))


def _tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _ends(loaded: LoadedRoot) -> dict[str, tuple[int, int, int]]:
    return {str(each.log): (each.log_start_offset, each.log_end_offset, each.recovery_point) for each in loaded.logs}


def test_load_roots_when_the_shutdown_was_not_clean_then_recovers_and_writes_checkpoints(root: Path) -> None:
    """Each log from its recovery point; its checkpointed start counts; a log without entry from offset 0."""
    _write(root, "recovery-point-offset-checkpoint", p0=18, p1=7)
    _write(root, "log-start-offset-checkpoint", p1=3, p2=0)
    change(root / "t-0" / f"{12:020d}.log", lambda data: data.__delitem__(slice(-1, None)))

    [loaded] = load_roots([root], _OPTIONS)

    assert _ends(loaded) == {"t-0": (0, 16, 16), "t-1": (3, 18, 7), "t-2": (0, 18, 0)}
    assert _checkpoint(root, "recovery-point-offset-checkpoint") == {"t-0": 16, "t-1": 7, "t-2": 0}
    assert _checkpoint(root, "log-start-offset-checkpoint") == {"t-1": 3}
    assert not (root / _MARKER).exists()


def test_load_roots_when_the_marker_is_there_then_it_goes_and_nothing_is_recovered(root: Path) -> None:
    """Damage inside of a segment is not even looked for; the next start would have to."""
    (root / _MARKER).touch()
    change(root / "t-1" / f"{6:020d}.log", lambda data: data.__setitem__(70, data[70] ^ 1))

    [loaded] = load_roots([root], _OPTIONS)

    assert set(_ends(loaded).values()) == {(0, 18, 18)}
    assert not (root / _MARKER).exists()


def test_load_roots_when_a_clean_log_can_not_be_loaded_then_changes_nothing(root: Path) -> None:
    """Not in the other logs, and the marker stays."""
    (root / _MARKER).touch()
    change(root / "t-1" / f"{12:020d}.log", lambda data: data.extend(bytes(50)))
    before = _tree(root)

    with pytest.raises(CorruptFileError, match="t-1"):
        load_roots([root], _OPTIONS)

    assert _tree(root) == before


def test_load_roots_when_a_file_of_one_log_is_damaged_then_changes_nothing(root: Path) -> None:
    """What is read of all logs is read before anything of one is changed."""
    (root / "t-0" / f"{6:020d}.log.deleted").touch()
    (root / "t-2" / "leader-epoch-checkpoint").write_bytes(b"1\n")
    before = _tree(root)

    with pytest.raises(CorruptFileError, match=r"t-2/leader-epoch-checkpoint"):
        load_roots([root], _OPTIONS)

    assert _tree(root) == before


def test_plan_roots_when_there_is_much_to_do_then_changes_nothing(root: Path) -> None:
    """The plan has the steps, the folder has all it had, the marker too."""
    (root / "t-0" / f"{6:020d}.log.deleted").touch()
    (root / "t-1" / f"{6:020d}.index").unlink()
    (root / _MARKER).touch()
    before = _tree(root)

    [planned] = plan_roots([root], _OPTIONS)

    assert _tree(root) == before
    assert [bool(each.steps) for each in planned.logs] == [True, True, True]


def test_close_root_when_loaded_then_the_next_start_trusts_it(root: Path) -> None:
    """The recovery points are the ends, and the marker is there; a load of it has nothing to do."""
    [loaded] = load_roots([root], _OPTIONS)

    close_root(loaded)

    assert set(_checkpoint(root, "recovery-point-offset-checkpoint").values()) == {18}
    [again] = load_roots([root], _OPTIONS)
    assert again.survey.is_clean
    assert not [step for each in again.logs for step in each.steps]


def test_load_one_log_when_it_lies_in_a_root_then_the_roots_files_count_and_stay(root: Path) -> None:
    """Its recovery point and start are read; other logs and the marker are somebody else's business."""
    _write(root, "recovery-point-offset-checkpoint", p1=14)
    _write(root, "log-start-offset-checkpoint", p1=3)
    (root / "no log at all").mkdir()
    before = _tree(root)

    loaded = load_one_log(root / "t-1", _OPTIONS)

    assert _ends(loaded) == {"t-1": (3, 18, 14)}
    assert {name for name, content in _tree(root).items() if before.get(name) != content} == {
        f"t-1/{6:020d}.snapshot",
        f"t-1/{12:020d}.snapshot",
        f"t-1/{18:020d}.snapshot",
        "t-1/leader-epoch-checkpoint",
    }


def test_load_roots_when_directories_are_set_aside_then_they_stay(root: Path) -> None:
    """What is being deleted, moved or was found astray is nobody's log."""
    for kind in ("delete", "future", "stray"):
        directory = root / f"t-0.{'0123456789abcdef' * 2}-{kind}"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(b"damaged")

    [loaded] = load_roots([root], _OPTIONS)

    assert len(loaded.survey.set_aside) == 3
    assert len(loaded.logs) == 3
    assert [contents(root / name) for name in loaded.survey.set_aside] == [{f"{0:020d}.log": b"damaged"}] * 3


def test_load_roots_when_it_is_no_brokers_root_then_writes_nothing_beside_the_logs(root: Path) -> None:
    """A plain folder of logs has no checkpoints to keep."""
    (root / "meta.properties").unlink()

    load_roots([root], _OPTIONS)

    assert [path.name for path in root.iterdir() if path.is_file()] == []
