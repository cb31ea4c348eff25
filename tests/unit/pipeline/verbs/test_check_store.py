"""`sparklog check` refuses what opening the store would refuse, before Spark is asked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.pipeline.settings.stream_settings import Settings, load_settings
from sparklog.pipeline.verbs.check import check_store
from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties
from sparklog.storage_core.errors import InvalidConfigError, LedgerDamagedError
from tests.build.sink_store import contents, open_store

_FILE = """
store: {store}
checkpoint: {folder}/checkpoint
source: {{format: rate}}
records: {{topic: "'t'", value: value}}
topics: {{t: {{}}}}
log_dirs: ["{log_dir}"]
"""

Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Settings of a store in a folder."""

    def load(store: Path, log_dir: str = "logs") -> Settings:
        path = tmp_path / "file.yaml"
        path.write_text(_FILE.format(store=store, folder=tmp_path, log_dir=log_dir))
        return load_settings(path)

    return load


@pytest.mark.parametrize("below", ["", "/deeper/store"])
def test_check_store_when_a_file_is_in_the_way_then_refused(tmp_path: Path, load: Load, below: str) -> None:
    """The store's folder could not be made."""
    (tmp_path / "file").write_text("x")

    with pytest.raises(InvalidConfigError, match=f"^store: {tmp_path}/file is not a folder"):
        check_store(load(Path(f"{tmp_path}/file{below}")))


def test_check_store_when_the_folder_holds_something_else_then_refused(tmp_path: Path, load: Load) -> None:
    """A folder of other files does not become a store, and neither does one that was one."""
    (tmp_path / "full" / "other").mkdir(parents=True)
    (tmp_path / "old" / "logs" / "t-0").mkdir(parents=True)

    with pytest.raises(InvalidConfigError, match="holds 'other'"):
        check_store(load(tmp_path / "full"))
    with pytest.raises(LedgerDamagedError, match="holds logs"):
        check_store(load(tmp_path / "old"))


def test_check_store_when_a_log_dir_is_a_brokers_then_refused(tmp_path: Path, load: Load) -> None:
    """Also for a store that is not there yet; nothing is made or changed."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "meta.properties").write_bytes(render_meta_properties("broker", 1, "directory"))
    before = contents(tmp_path / "disk")

    with pytest.raises(InvalidConfigError, match="disk belongs to another store or broker"):
        check_store(load(tmp_path / "new", str(tmp_path / "disk")))
    assert not (tmp_path / "new").exists()

    open_store(tmp_path / "store", {"t": {}}).close()
    check_store(load(tmp_path / "store"))
    with pytest.raises(InvalidConfigError, match="disk belongs to another store or broker"):
        check_store(load(tmp_path / "store", str(tmp_path / "disk")))
    assert contents(tmp_path / "disk") == before
