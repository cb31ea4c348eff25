"""The commands of `docs/operations.md` that copy and move a store, run as they stand there."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from sparklog.sink.store_writer import StoreWriter
from tests.build.sink_store import in_process, numbers, open_events, stored_numbers
from tests.programs.own_process import ROOT

_PAGE = (ROOT / "docs" / "operations.md").read_text().partition("## Copy, back up and move a store")[2]
_BLOCKS = re.findall(r"^```\n(.*?)^```$", _PAGE.partition("\n## ")[0], re.DOTALL | re.MULTILINE)
_COPY_CLOSED, _COPY_LIVE, _MOVE, _ = _BLOCKS


def _run(block: str, store: Path, copy: Path) -> None:
    bin_path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": bin_path}
    script = f"STORE={shlex.quote(str(store))}\nCOPY={shlex.quote(str(copy))}\n{block}"
    done = subprocess.run(["sh", "-euc", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _append(sink: StoreWriter, batch: int) -> None:
    sink.append("q", batch, in_process(numbers(20 * batch, 20 * batch + 20)))


@pytest.fixture
def store(memory_path: Path) -> Path:
    """A store of a few micro-batches whose sink is closed."""
    store = memory_path / "store"
    with closing(open_events(store)) as sink:
        for batch in range(5):
            _append(sink, batch)
    return store


def test_copy_of_a_closed_store_then_both_go_on(store: Path) -> None:
    """Each has what was there, and from then on its own."""
    copy = store.with_name("copy")
    _run(_COPY_CLOSED, store, copy)
    with closing(open_events(store)) as one, closing(open_events(copy)) as other:
        _append(one, 5)
        _append(other, 5)
        _append(other, 6)

    assert stored_numbers(store) == list(range(120))
    assert stored_numbers(copy) == list(range(140))


@pytest.mark.parametrize("number", range(3))
def test_copy_while_a_sink_writes_then_whole_and_the_sink_goes_on(store: Path, number: int) -> None:
    """It has what was committed before it began, and nothing that was not committed when it ended."""
    copy, has_ended, batches = store.with_name("copy"), threading.Event(), [5]
    with closing(open_events(store)) as sink:

        def write() -> None:
            while not has_ended.is_set():
                _append(sink, batches[0])
                batches[0] += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            while batches[0] < 10 + 5 * number:
                has_ended.wait(0.001)
            before = batches[0]
            _run(_COPY_LIVE, store, copy)
        finally:
            has_ended.set()
            thread.join()
        open_events(copy).close()

    copied = stored_numbers(copy)
    assert copied == list(range(len(copied)))
    assert 20 * before <= len(copied) <= 20 * batches[0]
    assert stored_numbers(store) == list(range(20 * batches[0]))


def test_copy_when_the_sink_starts_behind_its_lock_file_then_whole(store: Path) -> None:
    """What the sink has written by the time the logs are copied is cut off."""
    copy = store.with_name("copy")
    _run(_COPY_LIVE, store, copy)
    with closing(open_events(store)) as sink:
        _append(sink, 5)
    shutil.copytree(store / "logs", copy / "logs", dirs_exist_ok=True)
    open_events(copy).close()

    assert stored_numbers(copy) == list(range(100))


def test_move_of_a_closed_store_then_it_goes_on(store: Path) -> None:
    """Under its new name."""
    moved = store.with_name("moved")
    _run(_MOVE, store, moved)
    with closing(open_events(moved)) as sink:
        _append(sink, 5)

    assert stored_numbers(moved) == list(range(120))
