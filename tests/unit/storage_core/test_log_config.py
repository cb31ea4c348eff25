"""Settings of a log under Kafka's names, with Kafka's defaults and ranges."""

import pickle

import pytest

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.log_config import INT32_MAX, INT64_MAX, LogConfig


def test_from_properties_when_empty_then_has_kafkas_defaults() -> None:
    """Those of a topic of Kafka 4.3."""
    config = LogConfig.from_properties({})

    assert config == LogConfig()
    assert (config.segment_bytes, config.segment_ms, config.segment_index_bytes) == (1 << 30, 604_800_000, 10_485_760)
    assert (config.index_interval_bytes, config.max_message_bytes, config.cleanup_policy) == (4096, 1_048_588, "delete")
    assert (config.codec, config.compression_level, config.is_compacted) == ("none", 0, False)


def test_from_properties_takes_numbers_as_text() -> None:
    """Kafka's tools hand everything over as text."""
    config = LogConfig.from_properties(
        {"segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.25", "cleanup.policy": ["compact", "delete"]}
    )

    assert (config.segment_bytes, config.min_cleanable_dirty_ratio) == (1000, 0.25)
    assert config.cleanup_policies == {"compact", "delete"}
    assert config.is_compacted


def test_from_properties_when_several_are_wrong_then_names_them_all() -> None:
    """One try shows every problem, each with its property."""
    wrong = {
        "segment.byte": 1,
        "segment.bytes": 13,
        "segment.ms": "soon",
        "retention.ms": -2,
        "cleanup.policy": "keep",
        "compression.type": "brotli",
        "message.timestamp.type": "Never",
        "max.message.bytes": True,
        "min.cleanable.dirty.ratio": 1.5,
        "compression.gzip.level": 0,
    }

    with pytest.raises(InvalidConfigError) as error:
        LogConfig.from_properties(wrong)

    problems = str(error.value).split("; ")
    assert all(any(f"{name}=" in problem or f"'{name}'" in problem for problem in problems) for name in wrong)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("segment.bytes", 14, INT32_MAX),
        ("segment.ms", 1, INT64_MAX),
        ("segment.jitter.ms", 0, INT64_MAX),
        ("segment.index.bytes", 12, INT32_MAX),
        ("index.interval.bytes", 0, INT32_MAX),
        ("max.message.bytes", 0, INT32_MAX),
        ("retention.ms", -1, INT64_MAX),
        ("compression.lz4.level", 1, 17),
        ("compression.zstd.level", -131_072, 22),
        ("batch.size", 1, INT32_MAX),
    ],
)
def test_range_of_a_setting_includes_its_ends(name: str, low: int, high: int) -> None:
    """And nothing beyond them."""
    for value in (low, high):
        LogConfig.from_properties({name: value})
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidConfigError, match=f"{name}={value} is outside"):
            LogConfig.from_properties({name: value})


@pytest.mark.parametrize(
    ("properties", "codec", "level"),
    [
        ({"compression.type": "producer"}, "none", 0),
        ({"compression.type": "uncompressed"}, "none", 0),
        ({"compression.type": "gzip"}, "gzip", -1),
        ({"compression.type": "gzip", "compression.gzip.level": 9}, "gzip", 9),
        ({"compression.type": "snappy"}, "snappy", 0),
        ({"compression.type": "lz4"}, "lz4", 9),
        ({"compression.type": "zstd", "compression.zstd.level": "-5"}, "zstd", -5),
    ],
)
def test_codec_and_level_follow_the_type(properties: dict[str, object], codec: str, level: int) -> None:
    """There is no producer to follow, so `producer` means uncompressed."""
    config = LogConfig.from_properties(properties)

    assert (config.codec, config.compression_level) == (codec, level)


def test_config_when_lags_contradict_then_refused() -> None:
    """A record can't have to wait longer than it may."""
    with pytest.raises(InvalidConfigError, match=r"min.compaction.lag.ms=10 is above max.compaction.lag.ms=9"):
        LogConfig(min_compaction_lag_ms=10, max_compaction_lag_ms=9)


def test_config_can_be_pickled() -> None:
    """It travels to executors."""
    assert pickle.loads(pickle.dumps(LogConfig(segment_bytes=99))) == LogConfig(segment_bytes=99)


@pytest.mark.parametrize(
    ("properties", "limits"),
    [
        ({}, (1, INT64_MAX)),
        ({"flush.messages": 1000}, (1000, INT64_MAX)),
        ({"flush.messages": "1000", "flush.ms": "50"}, (1000, 50)),
        ({"flush.ms": 50}, (INT64_MAX, 50)),
        ({"flush.ms": 0}, (INT64_MAX, 0)),
        ({"flush.messages": "never"}, (INT64_MAX, INT64_MAX)),
        ({"flush.ms": "never"}, (INT64_MAX, INT64_MAX)),
        ({"flush.messages": 1, "flush.ms": "never"}, (1, INT64_MAX)),
    ],
)
def test_flush_policy_when_one_property_is_given_then_the_other_is_never(
    properties: dict[str, object], limits: tuple[int, int]
) -> None:
    """Without either, every commit syncs; `never` is Kafka's largest number."""
    config = LogConfig.from_properties(properties)

    assert (config.flush_messages, config.flush_ms) == limits


def test_from_properties_when_never_is_no_flush_property_then_refused() -> None:
    """The word means something for a flush policy alone."""
    with pytest.raises(InvalidConfigError, match=r"segment\.ms='never' is not an integer"):
        LogConfig.from_properties({"segment.ms": "never"})
