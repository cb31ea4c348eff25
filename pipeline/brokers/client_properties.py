"""Properties of Kafka clients: a file as `--command-config` of Kafka's tools takes it, and the address of the brokers.

The file is in the format of Java's properties. Its values may be secrets: nothing here prints them, or a line of it.

Source: java.util.Properties.load, Kafka CommandLineUtils.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparklog.storage_core.errors import InvalidConfigError
from sparklog.storage_core.storage.local import storage_errors
from sparklog.storage_core.storage.open_regular import read_file

__all__ = ["ClientProperties"]

_BOOTSTRAP: Final = "bootstrap.servers"
_TIMEOUTS_MS: Final = {"request.timeout.ms": "20000", "default.api.timeout.ms": "30000"}
_SEPARATOR: Final = re.compile(r"((?:[^\\=:\s]|\\.)+)\s*(?:[=:]\s*|\s)(.*)", re.DOTALL | re.ASCII)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SECRET: Final = re.compile(r"password|passphrase|jaas|secret|token|credential|keystore\.key|certificate\.chain")
_NO_SECRET: Final = re.compile(
    r"(^|\.)(algorithm|class|group\.id|client\.id|location|lookup|mechanism|protocols?|provider|rack|reset|service\.name"
    r"|strategy|suites|type)$"
)
_PLAIN: Final = re.compile(r".{0,3}|-?\d+|true|false", re.DOTALL)
"""Values that would be found in any text."""
_QUOTED: Final = re.compile(r'"([^"]*)"')
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPARKS_OWN: Final = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "group.id",
        "interceptor.classes",
        "isolation.level",
        "key.deserializer",
        "value.deserializer",
    }
)
"""Spark's source sets these properties of its consumers itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProperties:
    """Properties of the clients of one cluster.

    Attributes:
        bootstrap_server: addresses of brokers, with commas.
        values: further properties.
        file: that they are from.
    """

    bootstrap_server: str
    values: dict[str, str] = field(default_factory=dict, repr=False)
    file: Path | None = None

    @classmethod
    def read(cls, bootstrap_server: str, file: Path | None) -> "ClientProperties":
        """Return the properties of a file; none without one.

        Raises:
            InvalidConfigError: a line is no property; the message names its number.
            StorageError: the file can't be read.
        """
        if file is None:
            return cls(bootstrap_server=bootstrap_server)
        with storage_errors(file):
            text = read_file(file).decode("latin-1")  # as Java does, whatever the locale
        values = {}
        for number, line in _logical_lines(text):
            found = _SEPARATOR.fullmatch(line)
            if found is None:
                raise InvalidConfigError(f"not a line NAME=VALUE: file={file} line={number}")
            values[_unescape(found[1])] = _unescape(found[2])
        values.pop(_BOOTSTRAP, None)
        return cls(bootstrap_server=bootstrap_server, values=values, file=file)

    def of_admin(self) -> dict[str, str]:
        """Return the properties of an admin client."""
        timeouts = {} if self.values.keys() & _TIMEOUTS_MS.keys() else _TIMEOUTS_MS
        return {**timeouts, **self.values, _BOOTSTRAP: self.bootstrap_server}

    def of_source(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source."""
        given = {f"kafka.{name}": value for name, value in self.values.items() if name not in _SPARKS_OWN}
        return {**given, f"kafka.{_BOOTSTRAP}": self.bootstrap_server}

    def without_secrets(self, text: str) -> str:
        """Return a text of Kafka's clients with *** for each value that may be a secret, and what it has in quotes."""
        secrets = [value for name, value in self.values.items() if _may_be_secret(name, value)]
        quoted = [part for value in secrets for part in _QUOTED.findall(value)]
        for each in sorted(filter(None, [*secrets, *quoted]), key=len, reverse=True):
            text = text.replace(each, "***")
        return text


def _may_be_secret(name: str, value: str) -> bool:
    """Whether a value must not be printed; of an unknown property it may be."""
    return bool(_SECRET.search(name)) or not (_NO_SECRET.search(name) or _PLAIN.fullmatch(value))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and content of each line with a property; one that ends in a backslash goes on in the next one."""
    first, held = 0, ""
    for number, line in enumerate(_LINE_END.split(text), 1):
        part = line.lstrip(_BLANKS)
        if not held and (not part or part[0] in "#!"):
            continue
        first = first if held else number
        held += part
        if (len(held) - len(held.rstrip("\\"))) % 2:
            held = held[:-1]
            continue
        yield first, held
        held = ""
    if held:
        yield first, held


def _unescape(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        escaped = found[1]
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _LETTERS.get(escaped, escaped)

    return _ESCAPE.sub(plain, text)
