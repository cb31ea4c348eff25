"""The `meta.properties` of a root: which cluster and node it belongs to. Java properties text, version 1.

Source: Kafka MetaProperties, MetaPropertiesVersion.V1; java.util.Properties.
"""

import re

from storage_core.errors import CorruptFileError

__all__ = ["parse_meta_properties", "render_meta_properties"]

_SPECIAL = re.compile(r"[\\=:#! ]")
_LINE = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def render_meta_properties(cluster_id: str, node_id: int, directory_id: str) -> bytes:
    """Return the file's bytes, without the date that a broker puts in a comment."""
    values = {"node.id": str(node_id), "directory.id": directory_id, "version": "1", "cluster.id": cluster_id}
    return "".join(f"{key}={_escape(value)}\n" for key, value in values.items()).encode("ascii")


def parse_meta_properties(data: bytes) -> dict[str, str]:
    """Return every property.

    Raises:
        CorruptFileError: not version 1, or without `cluster.id` or `node.id`.
    """
    lines = (line.lstrip() for line in re.split(r"\r\n|\r|\n", data.decode("latin-1")))
    matches = (_LINE.fullmatch(line) for line in lines if line and line[0] not in "#!")
    values = {_unescape(match[1]): _unescape(match[2]) for match in matches if match}
    if values.get("version") != "1":
        raise CorruptFileError(f"meta.properties has version {values.get('version')!r}, not '1'")
    missing = [key for key in ("cluster.id", "node.id") if not values.get(key)]
    if missing:
        raise CorruptFileError(f"meta.properties lacks {', '.join(missing)}")
    if not re.fullmatch(r"[0-9]+", values["node.id"]):
        raise CorruptFileError(f"meta.properties has node.id={values['node.id'][:40]!r}, not a number")
    return values


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
