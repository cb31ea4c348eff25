r"""Safe text for terminals: control, bidirectional and line characters become escapes.

Keys, values, headers and file names may come from an attacker. An ESC in one of them moves the cursor or sets the
window's title, a U+202E reverses a line, a newline makes two lines of one.

| characters                                              | shown as                      |
|---------------------------------------------------------|-------------------------------|
| tab, newline, carriage return                           | `\t`, `\n`, `\r`              |
| others below U+0020, U+007F; bytes that are no UTF-8    | `\xNN`                        |
| U+0080..9F, U+061C, U+200E, U+200F, U+2028..202E, U+2066..2069 | `\uNNNN`               |

A backslash stays what it is. `line_kernels.escape_texts` does the same to columns.
"""

import re
from typing import Final

__all__ = ["visible", "visible_json"]

_OBEYED: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def visible(text: str) -> str:
    r"""Return a text with escapes; bytes that are not UTF-8, decoded by `surrogateescape`, become `\xNN`."""
    return text if text.isprintable() else _OBEYED.sub(_escape, text)


def visible_json(text: str) -> str:
    """Return JSON with the same characters in JSON's own escapes; they occur only in its strings."""
    return text if text.isprintable() else _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}")
