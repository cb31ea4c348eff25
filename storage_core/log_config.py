"""Settings of a topic's logs, under Kafka's names, with Kafka's defaults and ranges.

Differences: `message.timestamp.after.max.ms` is unlimited here, one hour in a broker, so that logs from elsewhere keep
their timestamps; `segment.bytes` may be small; `segment.index.bytes` holds at least one time entry; `flush.messages` is
1, not unlimited, unless a flush property is given: no replica has the records that a power cut takes.

Source: Kafka LogConfig 4.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.property_names import resolve_properties

__all__ = ["CODECS", "INT32_MAX", "INT64_MAX", "LogConfig"]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_NEVER = "never"
_FLUSH = ("flush_messages", "flush_ms")

_COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


def _setting(name: str, default: object, low: float | None = None, high: float | None = None) -> object:
    return field(default=default, metadata={"name": name, "low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one topic's logs; each field is Kafka's property of the same name with `_` for `.`.

    `batch_size` and `compression_type` are a producer's: `batch.size` is the size that closes a batch, and `producer`
    means uncompressed, as there is no producer.

    Attributes:
        segment_bytes: size a segment may not pass.
        segment_ms: record time after which the next append rolls.
        segment_jitter_ms: upper bound of a random time that is subtracted from `segment_ms`, per segment.
        segment_index_bytes: size an index file may not pass.
        index_interval_bytes: bytes between two index entries.
        max_message_bytes: size of the largest batch, header and compression included.
        batch_size: uncompressed bytes at which a batch is closed.
        flush_messages: offsets above the recovery point at which a commit syncs the log; 1 is every commit.
        flush_ms: time since its last sync at which a commit syncs the log.
    """

    segment_bytes: int = _setting("segment.bytes", 1 << 30, 14, INT32_MAX)  # type: ignore[assignment]
    segment_ms: int = _setting("segment.ms", 604_800_000, 1, INT64_MAX)  # type: ignore[assignment]
    segment_jitter_ms: int = _setting("segment.jitter.ms", 0, 0, INT64_MAX)  # type: ignore[assignment]
    segment_index_bytes: int = _setting("segment.index.bytes", 10_485_760, 12, INT32_MAX)  # type: ignore[assignment]
    index_interval_bytes: int = _setting("index.interval.bytes", 4096, 0, INT32_MAX)  # type: ignore[assignment]
    max_message_bytes: int = _setting("max.message.bytes", 1_048_588, 0, INT32_MAX)  # type: ignore[assignment]
    retention_bytes: int = _setting("retention.bytes", -1, -(2**63), INT64_MAX)  # type: ignore[assignment]
    retention_ms: int = _setting("retention.ms", 604_800_000, -1, INT64_MAX)  # type: ignore[assignment]
    cleanup_policy: str = _setting("cleanup.policy", "delete")  # type: ignore[assignment]
    delete_retention_ms: int = _setting("delete.retention.ms", 86_400_000, 0, INT64_MAX)  # type: ignore[assignment]
    min_compaction_lag_ms: int = _setting("min.compaction.lag.ms", 0, 0, INT64_MAX)  # type: ignore[assignment]
    max_compaction_lag_ms: int = _setting("max.compaction.lag.ms", INT64_MAX, 1, INT64_MAX)  # type: ignore[assignment]
    min_cleanable_dirty_ratio: float = _setting("min.cleanable.dirty.ratio", 0.5, 0.0, 1.0)  # type: ignore[assignment]
    file_delete_delay_ms: int = _setting("file.delete.delay.ms", 60_000, 0, INT64_MAX)  # type: ignore[assignment]
    compression_type: str = _setting("compression.type", "producer")  # type: ignore[assignment]
    compression_gzip_level: int = _setting("compression.gzip.level", -1, -1, 9)  # type: ignore[assignment]
    compression_lz4_level: int = _setting("compression.lz4.level", 9, 1, 17)  # type: ignore[assignment]
    compression_zstd_level: int = _setting("compression.zstd.level", 3, -131_072, 22)  # type: ignore[assignment]
    message_timestamp_type: str = _setting("message.timestamp.type", "CreateTime")  # type: ignore[assignment]
    message_timestamp_before_max_ms: int = _setting("message.timestamp.before.max.ms", INT64_MAX, 0, INT64_MAX)  # type: ignore[assignment]
    message_timestamp_after_max_ms: int = _setting("message.timestamp.after.max.ms", INT64_MAX, 0, INT64_MAX)  # type: ignore[assignment]
    batch_size: int = _setting("batch.size", 16_384, 1, INT32_MAX)  # type: ignore[assignment]
    flush_messages: int = _setting("flush.messages", 1, 1, INT64_MAX)  # type: ignore[assignment]
    flush_ms: int = _setting("flush.ms", INT64_MAX, 0, INT64_MAX)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        problems = [problem for each in fields(self) if (problem := self._range_problem(each.name, each.metadata))]
        problems += self._choice_problems()
        if problems:
            raise InvalidConfigError(*problems)

    def _range_problem(self, name: str, metadata: Mapping[str, object]) -> str | None:
        value, low, high = getattr(self, name), metadata["low"], metadata["high"]
        if low is None or high is None:
            return None
        kinds = (int, float) if isinstance(high, float) else (int,)
        if isinstance(value, bool) or not isinstance(value, kinds):
            return f"{metadata['name']}={value!r} is not {'a number' if isinstance(high, float) else 'an integer'}"
        if not low <= value <= high:  # type: ignore[operator]
            return f"{metadata['name']}={value} is outside {low}..{high}"
        return None

    def _choice_problems(self) -> list[str]:
        problems = []
        policies = self.cleanup_policies if isinstance(self.cleanup_policy, str) else frozenset({"?"})
        if not policies or policies - {"delete", "compact"}:
            problems.append(f"cleanup.policy={self.cleanup_policy!r} is not 'delete', 'compact' or both with a comma")
        if self.compression_type not in _COMPRESSION_TYPES:
            problems.append(f"compression.type={self.compression_type!r} is none of {', '.join(_COMPRESSION_TYPES)}")
        if self.compression_gzip_level == 0:
            problems.append("compression.gzip.level=0 is outside 1..9 and not -1")
        if self.message_timestamp_type not in ("CreateTime", "LogAppendTime"):
            problems.append(
                f"message.timestamp.type={self.message_timestamp_type!r} is not CreateTime or LogAppendTime"
            )
        lags = self.min_compaction_lag_ms, self.max_compaction_lag_ms
        if all(isinstance(lag, int) for lag in lags) and lags[0] > lags[1]:
            problems.append(f"min.compaction.lag.ms={lags[0]} is above max.compaction.lag.ms={lags[1]}")
        return problems

    @property
    def cleanup_policies(self) -> frozenset[str]:
        """The policies, lower case."""
        return frozenset(token.strip().lower() for token in self.cleanup_policy.split(",") if token.strip())

    @property
    def is_compacted(self) -> bool:
        """Whether records need a key."""
        return "compact" in self.cleanup_policies

    @property
    def max_segment_ms(self) -> int:
        """Record time after which the next append rolls: dirty records are cleanable by `max.compaction.lag.ms`."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def codec(self) -> str:
        """The codec of new batches, one of `CODECS`."""
        return self.compression_type if self.compression_type in CODECS else "none"

    @property
    def compression_level(self) -> int:
        """The level of `codec`; 0 if it has none."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.codec, 0)

    @classmethod
    def property_names(cls) -> dict[str, str]:
        """Return Kafka's property name of each field, as `{property: field}`."""
        return {each.metadata["name"]: each.name for each in fields(cls)}

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> "LogConfig":
        """Build a config from Kafka's property names; numbers may be given as text, as Kafka's tools take them.

        A broker-level name counts if the topic's own is not given. Names without a meaning here are skipped, see
        `property_names.ignored_properties`.

        `flush.messages` and `flush.ms` may be `never`. If only one is given, the other one is `never`, as in Kafka.

        Raises:
            InvalidConfigError: a name is unknown or a value ill-typed or out of range; every problem is listed.
        """
        names = cls.property_names()
        resolved = resolve_properties(properties, names)
        problems = list(resolved.problems)
        values = {names[name]: _parse(value, cls, names[name]) for name, value in resolved.values.items()}
        if "flush_ms" in values:
            values.setdefault("flush_messages", INT64_MAX)
        try:
            config = cls(**values)  # type: ignore[arg-type]
        except InvalidConfigError as error:
            problems += [_under_given_name(problem, resolved.given_as, properties) for problem in error.problems]
        if problems:
            raise InvalidConfigError(*problems)
        return config


def _under_given_name(problem: str, given_as: Mapping[str, str], properties: Mapping[str, object]) -> str:
    """Begin a problem with the broker-level name that the settings have."""
    given = given_as.get(problem.partition("=")[0])
    return f"{given}={properties[given]!r}: {problem}" if given else problem


def _parse(value: object, config: type[LogConfig], name: str) -> object:
    kind = next(type(each.default) for each in fields(config) if each.name == name)
    number: type[int] | type[float] = float if kind is float else int
    if kind is str and isinstance(value, list):
        return ",".join(str(item) for item in value)
    if value == _NEVER and name in _FLUSH:
        return INT64_MAX
    if not isinstance(value, str) or kind is str:
        return value
    try:
        return number(value)
    except ValueError:
        return value
