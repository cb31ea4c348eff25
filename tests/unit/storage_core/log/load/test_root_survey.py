"""What is found out about roots before anything in them changes."""

import shutil
from pathlib import Path

import pytest

from sparklog.storage_core.checkpoint.meta_properties import render_meta_properties
from sparklog.storage_core.errors import CorruptFileError, InvalidConfigError
from sparklog.storage_core.log.load.survey import survey_log, survey_roots
from sparklog.storage_core.topic_partition import TopicPartition
from tests.build.sink_store import contents
from tests.build.written_log import Batch, write_log

_HEX = "0123456789abcdef" * 2


def _root(path: Path, cluster: str = "c", node: int = 1, directory_id: str = "d1") -> Path:
    path.mkdir()
    (path / "meta.properties").write_bytes(render_meta_properties(cluster, node, directory_id))
    return path


def _three_segments(directory: Path) -> Path:
    return write_log(directory, [[Batch([s * 10 + b]) for b in range(3)] for s in range(3)]).directory


def test_survey_roots_when_a_root_is_in_order_then_tells_what_is_there(tmp_path: Path) -> None:
    """Logs, checkpoints, the marker, and directories that are set aside."""
    root = _root(tmp_path / "logs")
    _three_segments(root / "t-0")
    for name in (f"t-1.{_HEX}-delete", f"t-1.{_HEX}-future", f"t-1.{_HEX}-stray", "remote-log-index-cache"):
        (root / name).mkdir()
    (root / ".kafka_cleanshutdown").touch()
    (root / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nt 0 6\n")
    (root / "log-start-offset-checkpoint").write_bytes(b"")

    [survey] = survey_roots([root], 1)

    log = TopicPartition("t", 0)
    assert [each.log for each in survey.logs] == [log]
    assert survey.logs[0].segments.base_offsets == (0, 3, 6)
    assert survey.is_clean
    assert survey.recovery_points == {log: 6}
    assert survey.log_starts == {}
    assert len(survey.set_aside) == 3


@pytest.mark.parametrize("name", ["anything", "t-x", "t-0.x-deleted", f"t.{_HEX}-delete"])
def test_survey_roots_when_a_folder_is_no_log_then_names_it(tmp_path: Path, name: str) -> None:
    """Nobody can tell what it is, so nothing is loaded."""
    root = _root(tmp_path / "logs")
    (root / name).mkdir()

    with pytest.raises(InvalidConfigError, match=f"is no log: path=.*{name}"):
        survey_roots([root], 1)


def test_survey_roots_when_a_log_has_two_directories_then_names_both(tmp_path: Path) -> None:
    """Across roots as in one: which one counts is for the operator to say."""
    roots = [_root(tmp_path / name, directory_id=name) for name in ("a", "b")]
    for root in roots:
        (root / "t-0").mkdir()

    with pytest.raises(InvalidConfigError, match=r"two directories for one log: log=t-0 paths=.*/a/t-0, .*/b/t-0"):
        survey_roots(roots, 1)


@pytest.mark.parametrize(
    ("other", "what"),
    [(("x", 1, "d2"), "cluster.id"), (("c", 2, "d2"), "node.id"), (("c", 1, "d1"), "directory.id=d1")],
)
def test_survey_roots_when_their_owners_differ_then_says_in_what(
    tmp_path: Path, other: tuple[str, int, str], what: str
) -> None:
    """Roots of another cluster or node, or a copy of a root, are refused."""
    with pytest.raises(InvalidConfigError, match=what):
        survey_roots([_root(tmp_path / "a"), _root(tmp_path / "b", *other)], 1)


def test_survey_roots_when_one_is_named_twice_then_refuses(tmp_path: Path) -> None:
    """Under whatever name: two threads must not load one folder."""
    root = _root(tmp_path / "a")
    (tmp_path / "b").symlink_to(root)

    with pytest.raises(InvalidConfigError, match="two roots are one folder"):
        survey_roots([root, tmp_path / "b"], 1)


def test_survey_roots_when_they_are_of_a_broker_before_kraft_then_compares_its_number(tmp_path: Path) -> None:
    """`broker.id` of version 0 stands for the node's number."""
    for name, number in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(f"#\nversion=0\nbroker.id={number}\n")

    assert len(survey_roots([tmp_path / "a"], 1)) == 1
    with pytest.raises(InvalidConfigError, match=r"node\.id=1"):
        survey_roots([tmp_path / "a", tmp_path / "b"], 1)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("recovery-point-offset-checkpoint", b"1\n0\n"),
        ("recovery-point-offset-checkpoint", b"0\n2\nt 0 5\n"),
        ("log-start-offset-checkpoint", b"0\n1\nt 0\n"),
        ("meta.properties", b"version=2\ncluster.id=c\nnode.id=1\n"),
    ],
)
def test_survey_roots_when_a_small_file_is_damaged_then_names_it(tmp_path: Path, name: str, content: bytes) -> None:
    """An unknown version or a wrong count decides nothing."""
    root = _root(tmp_path / "logs")
    (root / name).write_bytes(content)

    with pytest.raises(CorruptFileError, match=name):
        survey_roots([root], 1)


@pytest.mark.parametrize("name", [2, 5])
def test_survey_log_when_a_name_disagrees_with_its_first_offset_then_names_the_file(tmp_path: Path, name: int) -> None:
    """A segment that starts below its name, or where the next one does, holds another one's records."""
    directory = _three_segments(tmp_path / "t-0")
    for suffix in (".log", ".index", ".timeindex"):
        (directory / f"{3:020d}{suffix}").rename(directory / f"{name:020d}{suffix}")
    if name == 2:
        shutil.copy(directory / f"{6:020d}.log", directory / f"{2:020d}.log")
    before = contents(directory)

    with pytest.raises(CorruptFileError, match=f"disagrees with its first offset: file=.*{name:020d}.log"):
        survey_log(directory)

    assert contents(directory) == before


def test_survey_log_when_the_first_batch_is_damaged_then_leaves_it_to_recovery(tmp_path: Path) -> None:
    """A changed offset in a batch with a wrong CRC proves nothing."""
    directory = _three_segments(tmp_path / "t-0")
    path = directory / f"{3:020d}.log"
    data = bytearray(path.read_bytes())
    data[7], data[70] = 99, data[70] ^ 1
    path.write_bytes(data)

    assert survey_log(directory).segments.base_offsets == (0, 3, 6)


def test_survey_log_when_swaps_are_complete_then_sees_the_segments_behind_them(tmp_path: Path) -> None:
    """What is on its way counts under the name that it will take, and is read where it lies now."""
    directory = _three_segments(tmp_path / "t-0")
    (directory / f"{3:020d}.log").rename(directory / f"{3:020d}.log.swap")
    (directory / f"{6:020d}.log").rename(directory / f"{6:020d}.log.deleted")

    survey = survey_log(directory)

    assert survey.segments.base_offsets == (0, 3)
    assert survey.segments.without_index == {3}
    assert survey.segment(3).log_path.name == f"{3:020d}.log.swap"
