"""Control files: what was written is read, and what nobody wrote is refused with a remedy."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.sink.store.control_file import ControlFile, check_name, check_topic
from sparklog.sink.store.store_folder import Store
from sparklog.storage_core.errors import CorruptFileError, InvalidConfigError
from sparklog.storage_core.storage.owned_names import UNSHARED

_FILE = ControlFile(name="things.json", what="the list of things is", remedy="delete it")


def _things(content: dict[str, Any]) -> list[str]:
    return [check_name(each) for each in content["things"]]


def test_control_file_when_replaced_then_its_version_comes_first(tmp_path: Path) -> None:
    """Where there is none it says nothing, and the folder is made with the first one."""
    store = Store(tmp_path, "id")
    assert _FILE.read(store, _things) is None

    _FILE.replace(store, {"things": ["a", "b"]}, UNSHARED)

    written = b'{\n "version": 0,\n "things": [\n  "a",\n  "b"\n ]\n}\n'
    assert (tmp_path / "control" / "things.json").read_bytes() == written == _FILE.render({"things": ["a", "b"]})
    assert _FILE.read(store, _things) == ["a", "b"]


@given(st.binary(max_size=60) | st.sampled_from([b'{"version": 1, "things": []}', b'{"version": 0, "things": [-1]}']))
def test_control_file_when_nobody_wrote_it_then_file_and_remedy_are_named(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """Another version is none that this release can read."""
    root = tmp_path_factory.mktemp("store")
    path = root / "control" / "things.json"
    path.parent.mkdir()
    path.write_bytes(data)

    with pytest.raises(CorruptFileError, match=rf"the list of things is damaged: path={path} .*; delete it"):
        _FILE.read(Store(root, "id"), _things)


@pytest.mark.parametrize("value", ["", "a\0b", 1, None, b"a"])
def test_check_name_when_no_file_can_have_it_then_refused(value: object) -> None:
    """Names become paths."""
    with pytest.raises(ValueError, match="not a name"):
        check_name(value)


@pytest.mark.parametrize("value", ["..", "a/b"])
def test_check_topic_when_it_leads_elsewhere_then_refused(value: str) -> None:
    """A directory has this name."""
    with pytest.raises(InvalidConfigError):
        check_topic(value)
