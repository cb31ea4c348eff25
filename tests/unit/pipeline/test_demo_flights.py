import csv
from pathlib import Path

from sparklog.pipeline.demo_flights import prepare_flights


def test_prepare_flights_when_called_twice_then_a_file_per_month_written_once(tmp_path: Path) -> None:
    """Every flight is in the file of its month, files are as old as their order, and a second call changes nothing."""
    prepare_flights(tmp_path / "flights")
    files = sorted((tmp_path / "flights").iterdir())
    stats = [file.stat() for file in files]
    prepare_flights(tmp_path / "flights")

    assert [file.name for file in files] == [f"flights-2013-{month:02}.csv" for month in range(1, 13)]
    assert [each.st_mtime for each in stats] == sorted({each.st_mtime for each in stats})
    assert [file.stat().st_ino for file in files] == [each.st_ino for each in stats]
    with files[1].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (len(rows), {row["month"] for row in rows}) == (24_951, {"2"})
    assert rows[0]["time_hour"] == "2013-02-01T10:00:00Z"
