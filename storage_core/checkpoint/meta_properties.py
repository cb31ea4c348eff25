"""The `meta.properties` of a root: its cluster and node. Java properties text, version 1.

A store's roots have one more property, the store's path: a broker skips unknown names.

Source: Kafka MetaProperties, MetaPropertiesVersion.V1; java.util.Properties.
"""

import re
from collections.abc import Mapping
from typing import Final

from sparklog.storage_core.errors import CorruptFileError

__all__ = [
    "STORE_PROPERTY",
    "parse_meta_properties",
    "render_meta_properties",
    "render_properties",
    "store_of",
    "with_store",
]

STORE_PROPERTY: Final = "sparklog.store"

_END = re.compile(r"\r\n|\r|\n")
_SPECIAL = re.compile(r"[\\=:#! ]")
_LINE = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def render_meta_properties(cluster_id: str, node_id: int, directory_id: str) -> bytes:
    """Return the file's bytes, without the date that a broker puts in a comment."""
    return render_properties(
        {"node.id": str(node_id), "directory.id": directory_id, "version": "1", "cluster.id": cluster_id}
    )


def render_properties(values: Mapping[str, str]) -> bytes:
    """Return the bytes of a Java properties file, a line a property."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in values.items()).encode("ascii")


def parse_meta_properties(data: bytes) -> dict[str, str]:
    """Return every property.

    Raises:
        CorruptFileError: not version 1, or without `cluster.id` or `node.id`.
    """
    values = dict(filter(None, map(_property, re.split(_END, data.decode("latin-1")))))
    if values.get("version") != "1":
        raise CorruptFileError(f"meta.properties has version {values.get('version')!r}, not '1'")
    missing = [key for key in ("cluster.id", "node.id") if not values.get(key)]
    if missing:
        raise CorruptFileError(f"meta.properties lacks {', '.join(missing)}")
    if not re.fullmatch(r"[0-9]+", values["node.id"]):
        raise CorruptFileError(f"meta.properties has node.id={values['node.id'][:40]!r}, not a number")
    return values


def store_of(data: bytes) -> str | None:
    """Return the path of the root's store, also from an otherwise damaged file; None without one."""
    values = dict(filter(None, map(_property, re.split(_END, data.decode("latin-1")))))
    return values.get(STORE_PROPERTY) or None


def with_store(data: bytes, store: str) -> bytes:
    """Return the file's bytes with a store's path instead of the present one; other lines stay."""
    lines = re.split(_END, data.decode("latin-1").rstrip("\r\n"))
    kept = [line for line in lines if (_property(line) or ("",))[0] != STORE_PROPERTY]
    return "".join(f"{line}\n" for line in [*kept, f"{STORE_PROPERTY}={_escape(store)}"]).encode("latin-1")


def _property(line: str) -> tuple[str, str] | None:
    """Return a line's name and value; None for a comment or an empty line."""
    text = line.lstrip()
    match = _LINE.fullmatch(text) if text and text[0] not in "#!" else None
    return (_unescape(match[1]), _unescape(match[2])) if match else None


def _escape(text: str) -> str:
    plain = _SPECIAL.sub(lambda match: "\\" + match[0], text)
    return "".join(c if " " <= c <= "~" else "".join(f"\\u{unit:04X}" for unit in _utf16(c)) for c in plain)


def _utf16(character: str) -> list[int]:
    data = character.encode("utf-16-be")
    return [int.from_bytes(data[i : i + 2]) for i in range(0, len(data), 2)]


def _unescape(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _LETTERS.get(code, code)

    return _ESCAPE.sub(value, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
