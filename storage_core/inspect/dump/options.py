"""What a dump shows.

Source: Kafka DumpLogSegments' options; 4.3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.record.java_text import java_text
from sparklog.storage_core.visible_text import visible

__all__ = ["NO_LIMIT", "DumpOptions"]

NO_LIMIT: Final = 2**31 - 1


def _number(size_bytes: int) -> Callable[[bytes], str]:
    def decode(data: bytes) -> str:
        if len(data) < size_bytes:
            raise ValueError(f"{len(data)} bytes where a number has {size_bytes}")
        return str(int.from_bytes(data[:size_bytes], signed=True))

    return decode


_PACKAGE: Final = "org.apache.kafka.tools.api."
_DECODERS: Final[dict[str, Callable[[bytes], str]]] = {
    f"{_PACKAGE}StringDecoder": java_text,
    f"{_PACKAGE}IntegerDecoder": _number(4),
    f"{_PACKAGE}LongDecoder": _number(8),
    f"{_PACKAGE}DefaultDecoder": bytes.hex,  # Kafka prints where Java's array lies in memory
    "kafka.serializer.StringDecoder": java_text,
}
_NOT_OFFERED: Final = (
    "offsets_decoder",
    "transaction_log_decoder",
    "cluster_metadata_decoder",
    "remote_log_metadata_decoder",
    "share_group_state_decoder",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The options of Kafka's tool, under its names, and two more.

    Attributes:
        max_message_size: bytes read at each index entry.
        max_bytes: of each `.log` file; what lies past them is neither shown nor judged.
        key_decoder_class: None, or the name of one of Kafka's decoders; given, it implies `print_data_log`.
        value_decoder_class: the same for values.
        offsets_decoder: this and the other four decoders of Kafka's own topics are not offered.
        json: print one JSON object a line, keys and values in base64.
        raw: print control characters as they are, as Kafka does.
    """

    deep_iteration: bool = False
    print_data_log: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_message_size: int = 5 * 1024 * 1024
    max_bytes: int = NO_LIMIT
    skip_record_metadata: bool = False
    key_decoder_class: str | None = None
    value_decoder_class: str | None = None
    offsets_decoder: bool = False
    transaction_log_decoder: bool = False
    cluster_metadata_decoder: bool = False
    remote_log_metadata_decoder: bool = False
    share_group_state_decoder: bool = False
    json: bool = False
    raw: bool = False

    def __post_init__(self) -> None:
        problems = []
        for name in ("max_message_size", "max_bytes"):
            if not 0 <= getattr(self, name) <= NO_LIMIT:
                problems.append(f"--{name.replace('_', '-')}={getattr(self, name)} is outside 0..{NO_LIMIT}")
        for option, decoder in (("key", self.key_decoder_class), ("value", self.value_decoder_class)):
            if decoder is not None and decoder not in _DECODERS:
                problems.append(f"--{option}-decoder-class={decoder} is none of {', '.join(_DECODERS)}")
            if decoder is not None and self.json:
                problems.append(f"--{option}-decoder-class does not go with --json, which shows base64")
        for name in _NOT_OFFERED:
            if getattr(self, name):
                problems.append(f"--{name.replace('_', '-')} is not offered: records of Kafka's own topics stay bytes")
        if self.raw and self.json:
            problems.append("--raw does not go with --json")
        if self.skip_record_metadata and self.json:
            problems.append("--skip-record-metadata does not go with --json")
        if problems:
            raise InvalidConfigError("; ".join(problems))

    @property
    def prints_contents(self) -> bool:
        """Whether keys and values are shown."""
        return self.print_data_log or self.key_decoder_class is not None or self.value_decoder_class is not None

    @property
    def prints_records(self) -> bool:
        """Whether there is a line per record."""
        return self.deep_iteration or self.prints_contents

    @property
    def shown(self) -> Callable[[str], str]:
        """What makes a line of a text."""
        return str if self.raw else visible

    @property
    def decode_key(self) -> Callable[[bytes], str]:
        """What makes text of a key."""
        return _DECODERS[self.key_decoder_class] if self.key_decoder_class else java_text

    @property
    def decode_value(self) -> Callable[[bytes], str]:
        """What makes text of a value."""
        return _DECODERS[self.value_decoder_class] if self.value_decoder_class else java_text
