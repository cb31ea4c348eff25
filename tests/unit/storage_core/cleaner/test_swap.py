"""A new segment takes the place of others, name by name."""

from pathlib import Path

import pytest

from sparklog.storage_core.cleaner.rewrite.clean_segments import CleanedSegment
from sparklog.storage_core.cleaner.swap import finish_swaps, has_swaps, swap_in
from sparklog.storage_core.errors import WriterFencedError
from sparklog.storage_core.log.files.names import DELETED, INDEX, LOG, SNAPSHOT, TIMEINDEX, TXNINDEX
from sparklog.storage_core.storage.owned_names import UNSHARED
from tests.build.owners import CheckedBy
from tests.build.written_log import Batch, encode_batch

_SUFFIXES = (LOG, INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT)


def _names(base: int, *suffixes: str, further: str = "") -> set[str]:
    return {f"{base:020}{suffix}{further}" for suffix in suffixes}


def _write(folder: Path, *bases: int) -> CleanedSegment:
    """Write old segments, and one that stands for all of them but the last."""
    for base in bases:
        for name in _names(base, *_SUFFIXES):
            (folder / name).write_bytes(b"old")
    paths = tuple(folder / f"{bases[0]:020}{suffix}.cleaned" for suffix in (LOG, INDEX, TIMEINDEX))
    for path in paths:
        path.write_bytes(b"")
    content = encode_batch(Batch([1, 2]), bases[-1] - 2)
    paths[0].write_bytes(content)
    return CleanedSegment(
        base_offset=bases[0], paths=paths, size_bytes=len(content), next_offset=bases[-1], is_unchanged=False
    )


def _listed(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_swap_when_done_then_the_old_names_wait_and_the_new_segment_has_its_own(tmp_path: Path) -> None:
    """All files of what is replaced are renamed, but the snapshot of the base offset that stays."""
    cleaned = _write(tmp_path, 0, 5, 10)
    swap_in(cleaned, [0, 5], UNSHARED)

    new = _names(0, LOG, INDEX, TIMEINDEX, SNAPSHOT)
    old = _names(0, *_SUFFIXES[:-1], further=DELETED) | _names(5, *_SUFFIXES, further=DELETED)
    assert _listed(tmp_path) == new | old | _names(10, *_SUFFIXES)
    assert (tmp_path / f"{0:020}.log").stat().st_size == cleaned.size_bytes


@pytest.mark.parametrize("limit", range(17))
def test_swap_when_it_ends_before_any_rename_then_finished_or_undone(tmp_path: Path, limit: int) -> None:
    """From the last `.swap` on the new segment counts, before it the old ones do; nothing is left on its way."""
    cleaned, calls = _write(tmp_path, 0, 5, 10), list[int]()

    def check_owner() -> None:
        calls.append(len(calls))
        if len(calls) > limit:
            raise WriterFencedError("lost")

    try:
        swap_in(cleaned, [0, 5], CheckedBy(check_owner))
    except WriterFencedError:
        assert has_swaps(tmp_path, 10)
    finish_swaps(tmp_path, 10, UNSHARED)

    is_new = (tmp_path / f"{0:020}.log").read_bytes() != b"old"
    assert is_new == (limit >= 3)
    assert not has_swaps(tmp_path, 2**62)
    segments = {name for name in _listed(tmp_path) if not name.endswith((DELETED, SNAPSHOT))}
    expected = _names(0, *_SUFFIXES[:3]) if is_new else _names(0, *_SUFFIXES[:4]) | _names(5, *_SUFFIXES[:4])
    assert segments == expected | _names(10, *_SUFFIXES[:4])


def test_finish_when_a_log_file_was_lost_then_its_indexes_stay(tmp_path: Path) -> None:
    """They alone tell that it was there."""
    cleaned = _write(tmp_path, 0, 5, 10)
    (tmp_path / f"{5:020}.log").unlink()
    finish_swaps(tmp_path, 10, UNSHARED)

    assert not any(path.exists() for path in cleaned.paths)
    assert _listed(tmp_path) == _names(0, *_SUFFIXES) | _names(5, *_SUFFIXES[1:]) | _names(10, *_SUFFIXES)


def test_finish_when_killed_at_any_step_then_the_next_one_comes_to_the_same_end(tmp_path: Path) -> None:
    """What was renamed in part and lies behind the new segment's end goes while there is a sign of the cleaning."""
    for limit in range(3):
        folder = tmp_path / str(limit)
        folder.mkdir()
        cleaned, calls = _write(folder, 0, 1, 10), list[int]()
        cleaned.paths[0].write_bytes(encode_batch(Batch([1]), 0))
        for path in cleaned.paths:
            path.rename(path.with_suffix(".swap"))
        for name in _names(0, *_SUFFIXES[:-1]) | _names(1, LOG):  # and their delay is over
            (folder / name).unlink()

        def check_owner(calls: list[int] = calls, limit: int = limit) -> None:
            calls.append(1)
            if len(calls) > limit:
                raise WriterFencedError("lost")

        try:
            finish_swaps(folder, 10, CheckedBy(check_owner))
        except WriterFencedError:
            assert has_swaps(folder, 10)
        finish_swaps(folder, 10, UNSHARED)

        left = _names(0, LOG, INDEX, TIMEINDEX) | _names(1, SNAPSHOT) | _names(10, *_SUFFIXES)
        assert _listed(folder) == left


def test_finish_when_files_wait_to_be_removed_then_they_go_on_waiting(tmp_path: Path) -> None:
    """Readers that listed them have until `file.delete.delay.ms` to open them."""
    waiting = tmp_path / f"{0:020}.log{DELETED}"
    waiting.write_bytes(b"x")
    finish_swaps(tmp_path, 10, UNSHARED)

    assert waiting.exists()


def test_finish_when_a_power_cut_kept_a_later_rename_alone_then_no_index_is_left(tmp_path: Path) -> None:
    """Names that were not synced may be on the disk in any order: the first segment has its old one, the second not."""
    cleaned = _write(tmp_path, 0, 1, 10)
    cleaned.paths[0].write_bytes(encode_batch(Batch([1]), 0))
    for path in cleaned.paths:
        path.rename(path.with_suffix(".swap"))
    (tmp_path / f"{1:020}.log").unlink()
    finish_swaps(tmp_path, 10, UNSHARED)

    assert _listed(tmp_path) == _names(0, LOG, INDEX, TIMEINDEX) | _names(1, SNAPSHOT) | _names(10, *_SUFFIXES)
