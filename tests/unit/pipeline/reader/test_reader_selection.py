"""Which logs are read."""

from pathlib import Path

import pytest

from sparklog.pipeline.places.store_view import open_logs
from sparklog.pipeline.reader.options import parse_options
from sparklog.pipeline.reader.selection import choose_logs
from sparklog.storage_core.errors import UnknownTopicError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A broker's folder."""
    for name in ("orders-0", "orders-1", "orders.eu-0", "returns-0", "__consumer_offsets-3", "orders-2.abc-delete"):
        (tmp_path / name).mkdir()
    return tmp_path


def _chosen(folder: Path, **options: str) -> list[str]:
    parsed = parse_options({"path": str(folder), **options})
    return [str(each.log) for each in choose_logs(open_logs(folder), parsed)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["orders-0", "orders-1", "orders.eu-0", "returns-0"]),
        ({"subscribe": "orders, returns"}, ["orders-0", "orders-1", "returns-0"]),
        ({"subscribe": "__consumer_offsets"}, ["__consumer_offsets-3"]),
        ({"subscribePattern": "orders"}, ["orders-0", "orders-1"]),
        ({"subscribePattern": "orders.*"}, ["orders-0", "orders-1", "orders.eu-0"]),
        ({"subscribePattern": "none"}, []),
        ({"assign": '{"orders": [1], "returns": [0]}'}, ["orders-1", "returns-0"]),
    ],
)
def test_choose_logs_when_options_name_some_then_these_are_read(
    folder: Path, options: dict[str, str], expected: list[str]
) -> None:
    """Topics by name, by a pattern of the whole name, or partitions; Kafka's own topics only by name."""
    assert _chosen(folder, **options) == expected


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (
            {"subscribe": "orders,nope"},
            "subscribe names topics that do not exist: nope topics=__consumer_offsets, ord",
        ),
        ({"assign": '{"orders": [1, 5]}'}, "assign names partitions that do not exist: orders:5"),
    ],
)
def test_choose_logs_when_one_is_missing_then_it_is_named(folder: Path, options: dict[str, str], what: str) -> None:
    """What is asked for by name has to be there."""
    with pytest.raises(UnknownTopicError, match=what):
        _chosen(folder, **options)


def test_choose_logs_when_a_folder_holds_no_log_then_it_is_an_error(tmp_path: Path) -> None:
    """A wrong path is no empty table."""
    (tmp_path / "some").mkdir()

    with pytest.raises(UnknownTopicError, match="neither a store nor log directories"):
        _chosen(tmp_path)
