"""A link in the place of a file: what changes files leaves alone what it leads to, what only reads goes through it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.storage_core.errors import LogStorageError
from tests.build.sink_store import in_process, numbers, open_events
from tests.sparklog_command import Sparklog

_SEGMENT = "00000000000000000000"
_NAMES = (
    "writer.lock",
    "maintenance.lock",
    "takeover.lock",
    "store.properties",
    "control/topic-configs.json",
    "logs/.lock",
    "logs/.kafka_cleanshutdown",
    "logs/meta.properties",
    "logs/meta.properties.tmp",
    "logs/recovery-point-offset-checkpoint",
    "logs/recovery-point-offset-checkpoint.tmp",
    "logs/events-0/active.log",
    "logs/events-0/active.index",
    "logs/events-0/active.timeindex",
    f"logs/events-0/{_SEGMENT}.log",
    f"logs/events-0/{_SEGMENT}.index",
    "logs/events-0/leader-epoch-checkpoint",
    "logs/events-0/leader-epoch-checkpoint.tmp",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose active segment of one log ends in bytes that nobody committed, and in index entries of those."""
    store = tmp_path_factory.mktemp("linked") / "store"
    sink = open_events(store)
    sink.append("q", 0, in_process(numbers(0, 100)))
    sink.close()
    for suffix in (".log", ".index", ".timeindex"):
        with max((store / "logs" / "events-0").glob(f"*{suffix}")).open("ab") as file:
            file.write(bytes(range(1, 121)))
    (store / "writer.lock").write_text("somebody died\n")
    return store


def _linked(written: Path, folder: Path, name: str) -> tuple[Path, Path, bytes]:
    """Return a copy of the store with a link in the place of a file; and what it leads to, with its bytes."""
    store = Path(shutil.copytree(written, folder / "store"))
    place = store / name
    if place.name.startswith("active."):
        place = max(place.parent.glob(f"*{place.suffix}"))
    target = folder / "elsewhere"
    if place.exists():
        place.rename(target)
    else:
        target.write_bytes(b"of somebody else\n")
    place.symlink_to(target)
    return store, target, target.read_bytes()


def _open_and_append(store: Path) -> None:
    sink = open_events(store)
    try:
        sink.append("q", 1, in_process(numbers(100, 200)))
    finally:
        sink.close()


@pytest.mark.parametrize("name", _NAMES)
def test_sink_when_a_link_lies_in_its_store_then_what_it_leads_to_stays(
    written: Path, memory_path: Path, name: str
) -> None:
    """Neither a lock's signature, nor a cut, nor an append goes through a link."""
    store, target, before = _linked(written, memory_path, name)

    try:
        _open_and_append(store)
    except LogStorageError as error:
        assert "is a link, and no regular file" in str(error)  # noqa: PT017 - it may as well do without the file

    assert target.read_bytes() == before


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("verb", ["repair", "retain"])
def test_verb_when_a_link_lies_in_a_store_then_what_it_leads_to_stays(
    written: Path, memory_path: Path, sparklog: Sparklog, verb: str, name: str
) -> None:
    """The same for commands that change a store."""
    store, target, before = _linked(written, memory_path, name)

    sparklog(verb, store, "--execute")

    assert target.read_bytes() == before


@pytest.mark.parametrize("name", [name for name in _NAMES if name.startswith("logs/")])
@pytest.mark.parametrize("verb", ["repair", "recover"])
def test_verb_when_a_link_lies_among_logs_then_what_it_leads_to_stays(
    written: Path, memory_path: Path, sparklog: Sparklog, verb: str, name: str
) -> None:
    """The same for commands that change a folder of logs which is no store."""
    folder = Path(shutil.copytree(written, memory_path / "folder"))
    (folder / "store.properties").unlink()
    meta = folder / "logs" / "meta.properties"
    meta.write_text("".join(line for line in meta.read_text().splitlines(True) if "sparklog" not in line))
    store, target, before = _linked(folder, memory_path, name)

    sparklog(verb, store / "logs", "--execute")

    assert target.read_bytes() == before


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_read_when_a_file_is_a_link_then_is_read_through_it(
    written: Path, memory_path: Path, sparklog: Sparklog, suffix: str
) -> None:
    """A broker reads segments that lie elsewhere, and so does Sparklog."""
    store, _, _ = _linked(written, memory_path, f"logs/events-0/{_SEGMENT}{suffix}")
    lines: Callable[[Path], str] = lambda place: sparklog("read", place, "events:0", "--from", 7).out  # noqa: E731

    assert lines(store) == lines(written) != ""
