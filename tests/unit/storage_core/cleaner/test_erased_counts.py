"""How many records of keys to erase a cleaning took, and from where."""

from pathlib import Path

from tests.build.cleaned_log import clean, data, write


def test_clean_segments_with_keys_to_erase_counts_them_by_the_segment_that_had_them(tmp_path: Path) -> None:
    """Segments become one: who reports an erasure names those that were there."""
    files = write(tmp_path, [data(0, ("a", "1"), ("b", "1"))], [data(2, ("c", "1"))], [data(3, ("a", "2"), ("a", "3"))])

    done = clean(files, 6, erased=["a"])

    assert done.segment.erased == {0: 1, 3: 2}
