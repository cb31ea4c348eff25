"""What a power cut may leave of Spark's checkpoint, and what of that a start may drop."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.pipeline.streaming.checkpoint_sync import CheckpointSync, drop_torn
from sparklog.storage_core.storage import local
from sparklog.storage_core.storage.write_back import sync_path
from tests.build.sink_store import contents

_TORN: tuple[bytes, ...] = (b"", bytes(30), b"v1", b'v1\n{"batchWatermarkMs":0,')


def _checkpoint(folder: Path, *, planned: int, committed: int) -> Path:
    (folder / "metadata").write_text(json.dumps({"id": "q"}))
    for name, newest in (("offsets", planned), ("commits", committed), ("sources/0", planned)):
        (folder / name).mkdir(parents=True)
        for number in range(newest + 1):
            (folder / name / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{number}}}')
            (folder / name / f".{number}.crc").write_bytes(b"crc")
    return folder


def _held(batch_id: int | None) -> Callable[[str], int | None]:
    return {"q": batch_id}.get


@pytest.mark.parametrize("torn", _TORN)
def test_drop_torn_when_the_last_note_is_torn_then_it_goes(tmp_path: Path, torn: bytes) -> None:
    """Spark runs that micro-batch again, and the ledger knows whether it was committed."""
    root = _checkpoint(tmp_path, planned=2, committed=2)
    (root / "commits" / "2").write_bytes(torn)
    before = contents(root)

    drop_torn(str(root), _held(2))

    assert before.keys() - contents(root).keys() == {"commits/2", "commits/.2.crc"}


@pytest.mark.parametrize("torn", _TORN)
@pytest.mark.parametrize("folder", ["offsets", "sources/0"])
def test_drop_torn_when_the_last_plan_is_torn_and_not_committed_then_it_goes(
    tmp_path: Path, folder: str, torn: bytes
) -> None:
    """It is made anew; the store holds nothing of it."""
    root = _checkpoint(tmp_path, planned=2, committed=1)
    (root / folder / "2").write_bytes(torn)

    drop_torn(f"file:{root}", _held(1))

    assert not (root / "offsets" / "2").exists()
    assert (root / "sources" / "0" / "2").exists() == (folder == "offsets")
    assert (root / "offsets" / "1").exists()


@pytest.mark.parametrize("folder", ["offsets", "sources/0"])
def test_drop_torn_when_the_plan_was_committed_then_nothing_goes(tmp_path: Path, folder: str) -> None:
    """A new plan could hold more rows, and the store would take it for the one it has."""
    root = _checkpoint(tmp_path, planned=2, committed=1)
    (root / folder / "2").write_bytes(b"")
    before = contents(root)

    drop_torn(str(root), _held(2))

    assert contents(root) == before


@pytest.mark.parametrize("torn", [*_TORN, b"\0", b"\0v1", b'\0v1\n{"t":{"0":5'])
@pytest.mark.parametrize(("planned", "name"), [(-1, "0"), (2, "3"), (8, "9.compact")])
def test_drop_torn_when_a_sources_file_is_torn_that_no_plan_names_then_it_goes(
    tmp_path: Path, planned: int, name: str, torn: bytes
) -> None:
    """Spark writes it in front of the plan: nothing was read of it yet."""
    root = _checkpoint(tmp_path, planned=planned, committed=planned)
    before = contents(root)
    (root / "sources" / "0" / name).write_bytes(torn)
    (root / "sources" / "0" / f".{name}.crc").write_bytes(b"crc")

    drop_torn(str(root), _held(planned if planned >= 0 else None))

    assert contents(root) == before


@pytest.mark.parametrize("held", [None, 0])
def test_drop_torn_when_plans_are_gone_that_were_there_then_nothing_goes(tmp_path: Path, held: int | None) -> None:
    """They are durable before their commit, so no power cut took them."""
    root = _checkpoint(tmp_path, planned=0, committed=0 if held is None else -1)
    (root / "offsets" / "0").unlink()
    (root / "sources" / "0" / "0").write_bytes(b"")
    before = contents(root)

    drop_torn(str(root), _held(held))

    assert contents(root) == before


@pytest.mark.parametrize("plan", ['{"t":{"0":9}}', '{"logOffset":0}', '{"logOffset":[]}', "7"])
def test_drop_torn_when_the_plan_may_name_the_sources_file_then_it_stays(tmp_path: Path, plan: str) -> None:
    """A Kafka source's plans name offsets, and its only file says where the first of them began."""
    root = _checkpoint(tmp_path, planned=0, committed=0)
    (root / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{plan}')
    (root / "sources" / "0" / "0").write_bytes(b"")
    before = contents(root)

    drop_torn(str(root), _held(0))

    assert contents(root) == before


def test_drop_torn_when_older_files_are_torn_or_nothing_is_then_nothing_goes(tmp_path: Path) -> None:
    """That is no power cut of the last micro-batch: Spark says what is wrong."""
    root = _checkpoint(tmp_path, planned=2, committed=1)
    (root / "offsets" / "1").write_bytes(b"")
    (root / "offsets" / "2").write_text('v1\n{"batchWatermarkMs":0}\n-')
    (root / "sources" / "0" / "2").write_bytes(b'\0v1\n{"t":{"0":5}}')
    before = contents(root)

    drop_torn(str(root), _held(1))
    drop_torn("hdfs://host/checkpoint", _held(1))
    drop_torn(str(root / "absent"), _held(1))

    assert contents(root) == before


@pytest.mark.parametrize(("committed", "is_there"), [(-1, False), (0, True)])
def test_drop_torn_when_the_querys_id_is_torn_then_it_goes_before_the_first_commit_only(
    tmp_path: Path, committed: int, is_there: bool
) -> None:
    """Behind it the store knows the query by that id."""
    root = _checkpoint(tmp_path, planned=0, committed=committed)
    (root / "metadata").write_bytes(b"")

    drop_torn(str(root), _held(None))

    assert (root / "metadata").exists() == is_there


def test_sync_when_files_are_new_then_each_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a micro-batch before are on the disk already; a file that has no name yet is Spark's own business."""
    root = _checkpoint(tmp_path, planned=1, committed=0)
    (root / "offsets" / ".2.0a1b.tmp").write_text("v1")
    synced: list[str] = []

    def noted(path: Path, opened: Callable[[Path], int], sync: Callable[[int], None]) -> None:
        synced.append(str(path.relative_to(tmp_path.parent)))
        sync_path(path, opened, sync)

    monkeypatch.setattr(local, "sync_path", noted)
    checkpoint, top = CheckpointSync(str(root)), tmp_path.name
    checkpoint.sync()
    assert {
        f"{top}/metadata",
        f"{top}/offsets/1",
        f"{top}/offsets/.1.crc",
        f"{top}/sources/0",
        f"{top}/sources",
    } <= set(synced)
    assert not [name for name in synced if name.endswith(".tmp")]
    synced.clear()
    (root / "offsets" / "2").write_text("v1")

    checkpoint.sync()

    assert synced == [f"{top}/offsets/2", top, f"{top}/offsets"]
