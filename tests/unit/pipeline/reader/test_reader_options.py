"""Options of `kafka-log`: the connector's names and forms, all problems at once."""

from pathlib import Path

import pytest

from sparklog.pipeline.reader.offset_limits import EARLIEST, LATEST_OFFSETS, OffsetLimit
from sparklog.pipeline.reader.options import parse_options
from sparklog.sink.ledger.versions import AsOf
from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.topic_partition import TopicPartition

_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_options_when_only_the_path_is_given_then_defaults_are_the_connectors() -> None:
    """A frame reads everything, a stream what comes; both fail on data loss and read uncommitted records."""
    frame, stream = parse_options({"path": "/a"}, "batch"), parse_options({"path": "/a"}, "stream")

    assert frame.path == Path("/a")
    assert (frame.starting, frame.ending) == (OffsetLimit(common=EARLIEST), LATEST_OFFSETS)
    assert stream.starting == LATEST_OFFSETS
    assert frame.fail_on_data_loss
    assert not frame.include_headers
    assert frame.isolation == "read_uncommitted"
    assert frame.max_trigger_delay_ms == 15 * 60_000


def test_options_when_names_differ_in_case_then_they_are_the_same() -> None:
    """Spark hands names over in lower case, users write them as they like."""
    parsed = parse_options({"PATH": "/a", "includeheaders": "TRUE", "KAFKA.Isolation.Level": "READ_COMMITTED"})

    assert parsed.include_headers
    assert parsed.isolation == "read_committed"


def test_options_when_several_are_wrong_then_all_are_named() -> None:
    """One error names every problem, with its option."""
    with pytest.raises(InvalidConfigError) as caught:
        parse_options(
            {
                "subscribe": " , ",
                "assign": "[]",
                "startingOffsets": '{"t": {"x": 1}}',
                "endingOffsets": "earliest",
                "failOnDataLoss": "maybe",
                "minPartitions": "0",
                "kafka.bootstrap.servers": "localhost:9092",
                "kafka.fetch.min.bytes": "1",
                "startingOfsets": "latest",
            }
        )

    problems = str(caught.value).split("; ")
    assert [each.split(":")[0] for each in problems if ": " in each][:3] == [
        "assign",
        "endingOffsets",
        "failOnDataLoss",
    ]
    for text in (
        "path: is missing",
        "subscribe and assign: only one",
        "subscribe: ' , ' names no topic",
        "assign: '[]' is not of the form",
        "startingOffsets: 't' has 'x' for a partition number",
        "endingOffsets: reading can't end at the earliest",
        "failOnDataLoss: 'maybe' is none of true, false",
        "minPartitions: '0' is not a number above 0",
        "kafka.bootstrap.servers: not supported: there is no broker",
        "kafka.fetch.min.bytes: not supported",
        "startingofsets: unknown option",
        "did you mean startingOffsets?",
    ):
        assert text in str(caught.value)


def test_options_when_offsets_are_json_then_they_are_read_by_log() -> None:
    """-2 and -1 mean earliest and latest, as in the connector."""
    parsed = parse_options({"path": "/a", "startingOffsets": '{"t": {"0": 23, "1": -2}}'}, "batch")

    assert parsed.starting == OffsetLimit(by_log={_T0: 23, _T1: -2})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingTimestamp": "5"}, OffsetLimit(is_time=True, common=5)),
        ({"startingTimestamp": "5", "startingOffsets": "latest"}, OffsetLimit(is_time=True, common=5)),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 7}}', "startingOffsets": "latest"},
            OffsetLimit(is_time=True, by_log={_T0: 7}),
        ),
    ],
)
def test_options_when_starts_compete_then_the_connectors_order_decides(
    options: dict[str, str], expected: OffsetLimit
) -> None:
    """One time for all goes before times by partition, these before offsets."""
    assert parse_options({"path": "/a", **options}).starting == expected


@pytest.mark.parametrize(
    ("kind", "options", "what"),
    [
        ("batch", {"startingOffsets": "latest"}, "startingOffsets: a frame can't start at the latest offset"),
        ("batch", {"startingOffsets": '{"t": {"0": -1}}'}, "a frame can't start at the latest offset"),
        ("batch", {"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger: only a stream has triggers"),
        ("batch", {"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets: reading can't end at the earliest"),
        (
            "batch",
            {"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"0": 3}}'},
            "t:0 starts at 9 and ends at 3",
        ),
        ("stream", {"endingOffsets": "latest"}, "endingOffsets: not an option of a stream"),
        ("stream", {"asOfVersion": "3"}, "asOfVersion: not an option of a stream"),
        ("stream", {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "9 is above maxOffsetsPerTrigger, 3"),
        ("any", {"asOfVersion": "3", "asOfTimestamp": "3"}, "only one of them can be given"),
        ("any", {"subscribePattern": "("}, "is not a regular expression"),
        ("any", {"path": "dbfs:/x"}, "is not a path of a local or mounted disk"),
        ("any", {"path": "ftp://host/x"}, "is no address of a storage"),
        ("any", {"path": "s3://bucket"}, "names no folder"),
        ("any", {"path": "/x", "storage.aws_region": "secret"}, "are only used with an address"),
        ("any", {"maxTriggerDelay": "soon"}, "is not a duration"),
        ("any", {"asOfTimestamp": "yesterday"}, "neither ms since 1970 nor a time"),
        ("any", {"startingTimestamp": '{"t": {"0": 1}}'}, "is not ms since 1970"),
        ("any", {"startingOffsets": "-3"}, "is not of the form"),
        ("any", {"startingOffsets": '{"t": {"0": -3}}'}, "is not a number of -2 or more"),
        ("any", {"startingOffsets": '{"t": {"0": true}}'}, "is not a number"),
        ("any", {"startingOffsets": "{}"}, "names no partition"),
        ("any", {"assign": '{"t": [true]}'}, "has no list of partition numbers"),
    ],
)
def test_options_when_one_is_wrong_then_it_is_named(kind: str, options: dict[str, str], what: str) -> None:
    """An unsupported option is refused, never ignored."""
    with pytest.raises(InvalidConfigError) as caught:
        parse_options({"path": "/a", **options}, kind)  # type: ignore[arg-type]

    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"asOfVersion": "12"}, AsOf(version=12)),
        ({"asOfTimestamp": "1700000000000"}, AsOf(timestamp_ms=1_700_000_000_000)),
        ({"asOfTimestamp": "2023-11-14T22:13:20Z"}, AsOf(timestamp_ms=1_700_000_000_000)),
        ({"asOfTimestamp": "2023-11-14 22:13:20"}, AsOf(timestamp_ms=1_700_000_000_000)),
        ({"asOfTimestamp": "2023-11-15T00:13:20+02:00"}, AsOf(timestamp_ms=1_700_000_000_000)),
    ],
)
def test_options_when_a_past_version_is_asked_for_then_number_and_time_are_understood(
    options: dict[str, str], expected: AsOf
) -> None:
    """A version is a number, a time ms or ISO 8601, in UTC unless it says otherwise."""
    assert parse_options({"path": "/a", **options}, "batch").as_of == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("250ms", 250), ("90", 90), ("30s", 30_000), ("15m", 900_000), ("2 h", 7_200_000)]
)
def test_options_when_a_delay_is_given_then_sparks_units_are_understood(text: str, expected: int) -> None:
    """A duration is a number and a unit; without one it counts ms."""
    assert parse_options({"path": "/a", "maxTriggerDelay": text}).max_trigger_delay_ms == expected


@pytest.mark.parametrize("text", ["file:///a/b%20c", "file:/a/b%20c", "/a/b c"])
def test_options_when_the_path_is_a_uri_of_a_file_then_it_is_its_path(text: str) -> None:
    """Spark programs write paths in both forms."""
    assert parse_options({"path": text}).path == Path("/a/b c")
