import json
from pathlib import Path

import pytest

from sparklog.pipeline.streaming.checkpoint_check import check_checkpoint
from sparklog.storage_core.errors import InvalidConfigError


def _checkpoint(folder: Path, *, planned: int, committed: int) -> str:
    (folder / "metadata").write_text(json.dumps({"id": "q"}))
    for name, newest in (("offsets", planned), ("commits", committed)):
        (folder / name).mkdir()
        for number in range(newest + 1):
            (folder / name / str(number)).touch()
            (folder / name / f".{number}.crc").touch()
    return str(folder)


@pytest.mark.parametrize(
    ("planned", "committed", "held"),
    [(11, 11, 11), (11, 10, 11), (11, 10, 10), (0, -1, None), (0, -1, 0), (-1, -1, None)],
)
def test_check_checkpoint_when_at_most_one_apart_then_accepted(
    tmp_path: Path, planned: int, committed: int, held: int | None
) -> None:
    """A crash leaves store and checkpoint at most one micro-batch apart; both ends of that are sound."""
    check_checkpoint(_checkpoint(tmp_path, planned=planned, committed=committed), "s", {"q": held}.get)


@pytest.mark.parametrize("held", [None, 9])
def test_check_checkpoint_when_store_is_behind_then_refused(tmp_path: Path, held: int | None) -> None:
    """A store that lacks what the checkpoint calls committed would never get it."""
    with pytest.raises(InvalidConfigError, match=r"the checkpoint is ahead .* committed_batch=10 .* held_batch="):
        check_checkpoint(_checkpoint(tmp_path, planned=11, committed=10), "s", {"q": held}.get)


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_check_checkpoint_when_named_by_a_local_uri_then_checked(tmp_path: Path, scheme: str) -> None:
    """A local folder is looked at under each of its names."""
    with pytest.raises(InvalidConfigError, match="the checkpoint is ahead"):
        check_checkpoint(scheme + _checkpoint(tmp_path, planned=11, committed=10), "s", {"q": 9}.get)


def test_check_checkpoint_when_store_is_ahead_then_refused(tmp_path: Path) -> None:
    """A checkpoint that has not planned what the store holds would have its next rows skipped as replays."""
    with pytest.raises(InvalidConfigError, match="the store is ahead of the checkpoint"):
        check_checkpoint(_checkpoint(tmp_path, planned=11, committed=10), "s", {"q": 12}.get)


def test_check_checkpoint_when_there_is_none_then_accepted(tmp_path: Path) -> None:
    """A new checkpoint, one with metadata nobody can read, and one that is no local folder are Spark's business."""
    check_checkpoint(str(tmp_path / "new"), "s", {"q": 5}.get)
    check_checkpoint("hdfs://host/checkpoint", "s", {"q": 5}.get)
    (tmp_path / "metadata").write_text("{")
    check_checkpoint(f"file:{tmp_path}", "s", {"q": 5}.get)
