"""Which store a maintenance run works on, and how."""

from pathlib import Path

import pytest

from sparklog.pipeline.maintenance.run import find_place
from tests.build.compacted_store import write_keyed


def test_find_place_when_the_path_is_relative_then_executors_elsewhere_find_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their working directory is another one than the driver's."""
    write_keyed(tmp_path / "store")
    (tmp_path / "stream.yaml").write_text(
        "store: ./store\ncheckpoint: ./checkpoint\nsource: {format: rate}\n"
        "records: {topic: \"'keyed'\", value: value}\ntopics: {keyed: {partitions: 2}}\n"
    )
    monkeypatch.chdir(tmp_path)

    assert find_place(Path("store"), None, {}).root == tmp_path / "store"
    assert find_place(None, "stream.yaml", {}).root == tmp_path / "store"
