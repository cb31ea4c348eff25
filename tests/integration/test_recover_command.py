"""The verb `recover`, as a user runs it."""

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties
from tests.build.damaged_store import change, write_store
from tests.build.sink_store import in_process, numbers, open_store
from tests.build.written_log import Batch, write_log
from tests.sparklog_command import Sparklog


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A broker's root with two logs of three segments each, offsets 0, 6 and 12, log end 18; `t-1` ends in zeros."""
    root = tmp_path / "kafka-logs-1"
    for partition in range(2):
        write_log(root / f"t-{partition}", [[Batch([s * 100 + b, 5]) for b in range(3)] for s in range(3)])
    (root / "meta.properties").write_bytes(render_meta_properties("c", 1, "d"))
    change(root / "t-1" / f"{12:020d}.log", lambda data: data.extend(bytes(50)))
    return root


def _tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_recover_when_not_told_to_execute_then_plans(root: Path, sparklog: Sparklog) -> None:
    """Nothing is changed; what would go is named with file, position and bytes, and the exit code says so."""
    before = _tree(root)
    last = f"t-1/{12:020d}.log"

    ran = sparklog("recover", root)

    assert _tree(root) == before
    assert ran.code == 1
    whole = len(before[last]) - 50
    assert f"{last}: cut at position {whole}, 50 bytes: nothing but zeros; the log ends at offset 18 then\n" in ran.out
    assert "50 bytes truncated or deleted; --execute does them" in ran.out


def test_recover_when_executed_then_a_second_one_has_nothing_to_do(root: Path, sparklog: Sparklog) -> None:
    """The log is whole, and nothing is left on its way."""
    assert sparklog("recover", root, "--execute").code == 0

    ran = sparklog("recover", root)

    assert (ran.code, ran.out) == (0, "2 logs, nothing to do\n")


def test_recover_when_json_is_asked_for_then_each_line_is_an_object(root: Path, sparklog: Sparklog) -> None:
    """Steps first, then where each log starts and ends."""
    *steps, summary = sparklog("recover", root, "--json", "--jobs", "1").objects

    assert {each["log"] for each in steps} == {"t-0", "t-1"}
    assert (summary["executed"], summary["lost_bytes"], summary["steps"]) == (False, 50, len(steps))
    [place] = summary["roots"]
    assert [(each["log"], each["log_end_offset"]) for each in place["logs"]] == [("t-0", 18), ("t-1", 18)]


def test_recover_when_told_to_shut_down_cleanly_then_the_next_start_trusts_the_root(
    root: Path, sparklog: Sparklog
) -> None:
    """The marker is there, and the recovery points are the ends."""
    assert sparklog("recover", root, "--execute", "--clean-shutdown").code == 0

    assert (root / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    assert (root / "recovery-point-offset-checkpoint").read_bytes() == b"0\n2\nt 0 18\nt 1 18\n"
    assert sparklog("recover", root).out == f"shut down cleanly, nothing is recovered: {root}\n2 logs, nothing to do\n"


def test_recover_when_given_one_log_then_leaves_the_others_alone(root: Path, sparklog: Sparklog) -> None:
    """Its root's files are read and stay as they are."""
    before = _tree(root)

    assert sparklog("recover", root / "t-1", "--execute").code == 0

    changed = {name for name, content in _tree(root).items() if before.get(name) != content}
    assert {name.partition("/")[0] for name in changed} == {".lock", "t-1"}


def test_recover_when_a_broker_runs_on_the_root_then_refuses(root: Path, sparklog: Sparklog) -> None:
    """Two must not work on one folder."""
    (root / ".lock").touch()
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print(); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(root / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        ran = sparklog("recover", root, "--execute")
        assert holder.stdin is not None
        holder.stdin.close()

    assert ran.code == 3
    assert "a broker runs on this folder" in ran.err


@pytest.mark.parametrize("below", ["", "logs", "logs/t-0"])
def test_recover_when_given_a_store_then_says_who_recovers_it(tmp_path: Path, sparklog: Sparklog, below: str) -> None:
    """Its ledger knows what is committed: wrong use."""
    store = write_store(tmp_path / "store")

    ran = sparklog("recover", store / below, "--execute")

    assert ran.code == 2
    assert f"logs of a store can't be recovered or repaired without it: path={store / below} store={store};" in ran.err


@pytest.mark.parametrize("verb", ["recover", "repair"])
@pytest.mark.parametrize("way", ["root", "log", "link to the root", "link to the log", "deep"])
def test_recover_when_a_store_has_a_log_directory_elsewhere_then_refuses_beside_a_running_sink(
    tmp_path: Path, sparklog: Sparklog, verb: str, way: str
) -> None:
    """Neither ledger nor lock lie there, and what a sink has not committed yet would be cut off."""
    disk = tmp_path / "a" / "b" / "disk2"
    settings = {"t": {"partitions": 1, "segment.bytes": 600, "batch.size": 200}}
    store = tmp_path / "store"
    log_dir = "some/way/down" if way == "deep" else str(disk)
    place = store / log_dir
    with closing(open_store(store, settings, topic="t", log_dirs=[log_dir])) as writer:
        writer.append("q", 0, in_process(numbers(0, 100)))
        change(sorted((place / "t-0").glob("*.log"))[1], lambda data: data.__setitem__(-5, data[-5] ^ 1))
        (tmp_path / "links-1").mkdir()
        (tmp_path / "links-1" / "t-0").symlink_to(place / "t-0")
        (tmp_path / "link").symlink_to(place)
        folders = {
            "root": place,
            "log": place / "t-0",
            "link to the root": tmp_path / "link",
            "link to the log": tmp_path / "links-1",
            "deep": place,
        }
        before = _tree(place)
        for execute in ([], ["--execute"]):
            ran = sparklog(verb, folders[way], *execute)
            assert (ran.code, f"store={store}; " in ran.err) == (2, True)
        assert _tree(place) == before
        writer.append("q", 1, in_process(numbers(100, 120)))


def test_recover_when_the_copy_of_a_stores_directory_names_it_no_more_then_recovers_it(
    tmp_path: Path, sparklog: Sparklog
) -> None:
    """The error says how to tell a copy from what a store lives on."""
    store = write_store(tmp_path / "store")
    copy = Path(shutil.copytree(store / "logs", tmp_path / "copy"))
    meta = copy / "meta.properties"
    assert f"remove sparklog.store from {meta}" in sparklog("recover", copy).err

    meta.write_text("".join(line for line in meta.read_text().splitlines(True) if "sparklog.store" not in line))

    assert sparklog("recover", copy, "--execute").code == 0


@pytest.mark.parametrize("place", ["root", "one log"])
@pytest.mark.parametrize("verb", ["recover", "repair"])
def test_recover_when_another_command_is_at_it_then_refuses(
    root: Path, sparklog: Sparklog, verb: str, place: str
) -> None:
    """Also where no broker ever made a lock file."""
    folder = root if place == "root" else root / "t-1"
    program = (
        "import sys; from pathlib import Path; from sparklog.sink.locks.broker_lock import lock_roots\n"
        "with lock_roots([Path(sys.argv[1])]): print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        before = _tree(root)
        ran = sparklog(verb, folder, "--execute")
        assert holder.stdin is not None
        holder.stdin.close()

    assert (ran.code, f"another command changes it: lock={root / '.lock'}" in ran.err) == (3, True)
    assert _tree(root) == before
    assert sparklog(verb, folder, "--execute").code == 0
    assert [str(path.relative_to(root)) for path in root.rglob(".lock")] == [".lock"]


def test_recover_when_planned_or_given_no_root_then_no_lock_file_is_made(root: Path, sparklog: Sparklog) -> None:
    """A plan changes nothing, and what is no root is no place for one."""
    assert sparklog("recover", root).code == 1
    (root.parent / "empty").mkdir()
    assert sparklog("recover", root.parent / "empty", "--execute").code == 0

    assert list(root.parent.rglob(".lock")) == []


def test_recover_when_wrongly_used_then_says_so(root: Path, sparklog: Sparklog) -> None:
    """A clean shutdown without a start, or of one log; a log among roots; a folder that is no log."""
    assert sparklog("recover", root, "--clean-shutdown").code == 2
    assert sparklog("recover", root / "t-0", "--execute", "--clean-shutdown").code == 2
    assert sparklog("recover", root, root / "t-0").code == 2
    (root / "other").mkdir()
    ran = sparklog("recover", root, "--execute")
    assert (ran.code, "is no log: path=" in ran.err) == (2, True)
