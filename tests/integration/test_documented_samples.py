"""The samples of `docs/tools.md` and of the README are what a machine prints for the flights of the demo."""

import os
import re
import shutil
from pathlib import Path

import pytest

from sparklog.pipeline.demo_flights import prepare_flights
from tests.documented_samples import Sample, code_blocks, printed, samples

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs" / "tools.md"
_DAMAGE = re.compile(r"^damage: (\S+) position=(\d+) ", re.MULTILINE)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `make run` after its first command, and a link to the folder with the settings beside it."""
    folder = tmp_path_factory.mktemp("project") / "demo"
    prepare_flights(folder / "data" / "flights")
    (folder.parent / "configs").symlink_to(_ROOT / "configs")
    stream = next(each for each in samples(_PAGE) if each.command.startswith("sparklog stream"))
    assert printed(stream.command, folder) == stream.lines
    return folder


def _of_a_sound_store() -> list[Sample]:
    """Return the samples up to the one with a changed byte, and those of dump-log."""
    found = [each for each in samples(_PAGE) if re.match(r"sparklog (describe|offsets|read|verify|dump-log) ", each[0])]
    return [each for each in found if not _DAMAGE.search("\n".join(each.lines))]


@pytest.mark.parametrize("sample", _of_a_sound_store(), ids=lambda sample: sample.command[:60])
def test_tools_page_when_its_command_is_typed_then_prints_what_the_page_shows(demo: Path, sample: Sample) -> None:
    """Offsets, sizes and bytes are the same on each machine; times and rates of a run are left out."""
    assert printed(sample.command, demo) == sample.lines


def test_tools_page_when_a_byte_is_changed_then_damage_and_repair_read_as_shown(demo: Path, tmp_path: Path) -> None:
    """The finding, the plan and what the repair says."""
    shutil.copytree(demo / "store", tmp_path / "store")
    shown = [each for each in samples(_PAGE) if re.match(r"sparklog (verify|repair) ", each.command)][1:]
    place = _DAMAGE.search("\n".join(shown[0].lines))
    assert place is not None
    with (tmp_path / "store" / "logs" / place[1]).open("r+b") as file:
        file.seek(int(place[2]) + 200)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))

    assert [printed(each.command, tmp_path) for each in shown] == [each.lines for each in shown]


def test_readme_when_it_shows_the_demos_output_then_its_lines_are_among_it(demo: Path) -> None:
    """The first lines of the table, the sum below it, and what `verify` says."""
    (block,) = (each for each in code_blocks(_ROOT / "README.md") if "\n...\n" in each)
    there = [line for verb in ("describe", "verify") for line in printed(f"sparklog {verb} store", demo)]

    assert [line for line in block.splitlines() if line != "..." and line.rstrip() not in there] == []
