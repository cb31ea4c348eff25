"""Decodes text as Java reads UTF-8: illegal bytes become U+FFFD.

One difference to Python: an encoded surrogate, whole or cut short, is one U+FFFD in Java and up to three in Python.

Source: java.lang.String, which Kafka's consumer and tools use.
"""

import re
from typing import Final

__all__ = ["java_text"]

_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()


def java_text(data: bytes) -> str:
    """Return the text that Java makes of these bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")
