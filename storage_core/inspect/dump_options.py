"""What a dump shows.

Source: Kafka DumpLogSegments' options; 4.3.
"""

from dataclasses import dataclass
from typing import Final

from storage_core.errors import InvalidConfigError

__all__ = ["NO_LIMIT", "DumpOptions"]

NO_LIMIT: Final = 2**31 - 1

_STRING_DECODERS: Final = ("org.apache.kafka.tools.api.StringDecoder", "kafka.serializer.StringDecoder")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The options of Kafka's tool, under its names.

    Attributes:
        max_message_size: bytes read at each index entry.
        max_bytes: of each `.log` file; what lies behind is neither shown nor judged.
        key_decoder_class: None, or the name of Kafka's string decoder; given, it implies `print_data_log`.
        value_decoder_class: the same for values.
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

    def __post_init__(self) -> None:
        problems = []
        for name in ("max_message_size", "max_bytes"):
            if not 0 <= getattr(self, name) <= NO_LIMIT:
                problems.append(f"--{name.replace('_', '-')}={getattr(self, name)} is outside 0..{NO_LIMIT}")
        for option, decoder in (("key", self.key_decoder_class), ("value", self.value_decoder_class)):
            if decoder is not None and decoder not in _STRING_DECODERS:
                problems.append(f"--{option}-decoder-class={decoder} is not known; there is {_STRING_DECODERS[0]}")
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
