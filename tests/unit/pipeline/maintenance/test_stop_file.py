"""The wish of one process to stop, as its tasks see it."""

from pathlib import Path

from sparklog.pipeline.maintenance.stop_file import StopFile


def test_stop_file_when_asked_then_this_process_is_to_stop_until_it_is_cleared(memory_path: Path) -> None:
    """Asked before anything is there, seen by whoever asks for the file of this process."""
    stop = StopFile.of(memory_path)
    stop.clear()
    assert not stop.is_asked()
    stop.ask()

    assert StopFile.of(memory_path).is_asked()
    stop.clear()
    assert not stop.is_asked()


def test_stop_file_when_others_left_theirs_then_only_these_are_dropped(memory_path: Path) -> None:
    """A wish of this process may be older than its run; one of a process that was killed is nobody's."""
    stop, other = StopFile.of(memory_path), StopFile(f"{StopFile.of(memory_path).path}1")
    stop.drop_others()
    for each in (stop, other):
        each.ask()
    assert stop.path != other.path
    stop.drop_others()

    assert stop.is_asked()
    assert not other.is_asked()
