"""Maintenance of a store of objects that is killed while it erases keys: the next run completes it."""

import json
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from sparklog.storage_core.objects.address import parse_address
from sparklog.storage_core.objects.open_storage import StoragePlace
from sparklog.storage_core.operation_fault_points import FORGET_FAULT_POINTS
from tests.build.keyed_objects import append_keyed, forget, latest_records, maintain, request_names, without
from tests.kill.directory_job import finish

pytestmark = pytest.mark.kill


@pytest.mark.parametrize("step", ["clean.checkpoint", "commit.data", "commit.written", *FORGET_FAULT_POINTS])
def test_erasure_when_maintenance_is_killed_at_a_step_then_the_next_run_completes_it(
    context: ForkServerContext, tmp_path: Path, step: str
) -> None:
    """No form of the request with its keys is left, no other record is lost."""
    local = _place(tmp_path / "store")
    append_keyed(local, 0, 3)
    before = latest_records(local, tmp_path / "before")
    forget(local, "k3", "k6")

    assert finish(context, _maintain_store, tmp_path / "store", SPARKLOG_FAULT_POINT=step) == -9

    between = latest_records(local, tmp_path / "between")
    assert without(between, b"k3", b"k6") == without(before, b"k3", b"k6")
    assert finish(context, _maintain_store, tmp_path / "store") == 0
    assert latest_records(local, tmp_path / "after") == without(before, b"k3", b"k6")
    (name,) = request_names(local)
    assert json.loads(local.open().read(name))["keys"] is None


def _maintain_store(root: Path) -> None:
    for task in maintain(_place(root)):
        assert task.error is None, task


def _place(root: Path) -> StoragePlace:
    return StoragePlace(parse_address(f"file://{root}"))
