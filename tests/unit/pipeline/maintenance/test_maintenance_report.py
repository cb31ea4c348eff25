"""What `maintain` prints can be read on any terminal."""

import re

import pytest

from sparklog.pipeline.maintenance.plan import plan_maintenance
from sparklog.pipeline.maintenance.report import print_plan
from tests.build.maintained_logs import NOW_MS, surveyed

_LONG = "warehouse.inventory.stock-level-changes.by-location-and-article.v2"


def test_plan_when_names_are_long_then_all_columns_are_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a hundred columns: a name is broken into lines, so that decision, figures and reason have their room."""
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", "100"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    logs = [surveyed(_LONG, "dirty", cleanable_bytes=100_000_000), surveyed("x" * 240, deleted_bytes=50)]

    print_plan(plan_maintenance(logs, NOW_MS), with_kept=False)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 100
    assert "log task decision reads frees takes why" in " ".join(lines[0].split())
    (dirty,) = (each for each in lines if "100 MB" in each)
    assert "compact" in dirty
    assert "it is dirty" in dirty
    assert sum(each.count("x") for each in lines) >= 240
