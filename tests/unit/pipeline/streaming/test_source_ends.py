"""Where a mirror's source ends: what Spark's plan tells, and whose records let it count."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.pipeline.settings.stream_settings import Settings, load_settings
from sparklog.pipeline.streaming.source_ends import find_source_ends, parse_ends, parse_starts
from sparklog.storage_core.errors import StorageError

_BEGINNING = '\0v1\n{"orders":{"0":1100,"1":0}}'
_EARLIER = 'v1\n{}\n{"orders":{"0":1190,"1":7}}'
_PLAN = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"orders":{"0":1196,"1":7},"payments":{"0":3}}'


@pytest.fixture
def mirror(tmp_path: Path) -> Settings:
    """A mirror of two topics, whose checkpoint holds the plan of micro-batch 4."""
    path = tmp_path / "mirror.yaml"
    path.write_text(
        f"store: {tmp_path}/store\ncheckpoint: {tmp_path}/checkpoint\noffsets: preserved\n"
        "source: {format: kafka, options: {kafka.bootstrap.servers: 'b:1', subscribe: 'orders,payments'}}\n"
        "topics: {orders: {partitions: 2}, payments: {}}\n"
    )
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "4").write_text(_PLAN)
    (tmp_path / "checkpoint" / "offsets" / "3").write_text(_EARLIER)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text(_EARLIER)
    (tmp_path / "checkpoint" / "sources" / "0").mkdir(parents=True)
    (tmp_path / "checkpoint" / "sources" / "0" / "0").write_text(_BEGINNING)
    return load_settings(path)


@pytest.mark.spark
def test_ends_when_a_micro_batch_was_planned_then_its_plan_tells_them(mirror: Settings, spark: SparkSession) -> None:
    """Each log ends where the plan of its micro-batch ends; a log that the mirror does not have is left out."""
    ends = find_source_ends(mirror)(spark, 4)
    without = replace(mirror, topics={"orders": {"partitions": 1}})

    assert ends == {("orders", 0): 1196, ("orders", 1): 7, ("payments", 0): 3}
    assert ends.starts == {("orders", 0): 1190, ("orders", 1): 7}, "payments came later"
    only = find_source_ends(without)(spark, 4)
    assert (only, only.starts) == ({("orders", 0): 1196}, {("orders", 0): 1190})


@pytest.mark.spark
def test_starts_when_it_is_the_first_micro_batch_then_they_are_where_the_query_began(
    mirror: Settings, spark: SparkSession
) -> None:
    """A log that a later micro-batch begins does not start there: what lies between was read, and is not in it."""
    assert find_source_ends(mirror)(spark, 0).starts == {("orders", 0): 1100, ("orders", 1): 0}


@pytest.mark.spark
def test_ends_when_there_is_no_plan_then_the_micro_batch_fails(mirror: Settings, spark: SparkSession) -> None:
    """A mirror that does not know where its source ends commits nothing."""
    with pytest.raises(StorageError, match="offsets/5"):
        find_source_ends(mirror)(spark, 5)


@pytest.mark.spark
@pytest.mark.parametrize(
    "changed",
    [
        {"offset": "offset + 1"},
        {"partition": "partition % 2"},
        {"partition": None},
        {"topic": "concat(topic, '.copy')"},
    ],
)
def test_ends_when_records_do_not_keep_their_place_then_none_are_known(
    mirror: Settings, spark: SparkSession, caplog: pytest.LogCaptureFixture, changed: dict[str, str | None]
) -> None:
    """Where an expression moves records, the source's end is not the log's; the job's log says so."""
    settings = replace(mirror, records=replace(mirror.records, **changed))  # type: ignore[arg-type]

    assert find_source_ends(settings)(spark, 4) == {}
    assert "may end below their sources" in caplog.text


@pytest.mark.spark
def test_ends_when_the_job_is_no_mirror_then_none_are_known(
    mirror: Settings, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Assigned offsets are dense."""
    assert find_source_ends(replace(mirror, offsets="assigned"))(spark, 4) == {}
    assert caplog.text == ""


def test_parse_ends_when_all_rows_go_to_one_topic_then_it_ends_where_its_only_source_does() -> None:
    """A topic may have another name in the mirror; several sources of one topic tell nothing of its end."""
    assert parse_ends("f", 'v1\n{}\n{"orders":{"0":9}}', "copy") == {("copy", 0): 9}
    assert parse_ends("f", _PLAN, "copy") == {}
    assert parse_starts("f", '\0v1\n{"orders":{"0":4}}', "copy") == {("copy", 0): 4}


@pytest.mark.parametrize(
    "plan",
    [
        "",
        "v1\n{}",
        "v2\n{}\n{}",
        "v1\n{}\n-",
        "v1\n{}\n7",
        'v1\n{}\n{"t":7}',
        'v1\n{}\n{"t":{"0":"x"}}',
        "v1\n{}\n{}\n{}",
    ],
)
def test_parse_ends_when_the_plan_is_another_ones_then_refused(plan: str) -> None:
    """What is not of the form of a Kafka source is no guess's ground."""
    with pytest.raises(StorageError, match=r"does not show where the source ends: file=/c/offsets/4; restore"):
        parse_ends("/c/offsets/4", plan, None)


@pytest.mark.parametrize("beginning", ["", "\0", "\0v1", "\0v2\n{}", "\0v1\n-", "\0v1\n[]", "\0v1\n{}\n{}"])
def test_parse_starts_when_the_beginning_is_another_ones_then_refused(beginning: str) -> None:
    """A torn or foreign file does not move the start of a log."""
    with pytest.raises(StorageError, match=r"does not show where the source starts: file=/c/sources/0/0; restore"):
        parse_starts("/c/sources/0/0", beginning, None)
