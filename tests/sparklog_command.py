"""What the command `sparklog` left when a test ran it; the fixture `sparklog` of `conftest.py` runs it."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Ran", "Sparklog"]


class Ran(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Its output, a JSON object a line."""
        return [json.loads(line) for line in self.out.splitlines()]


Sparklog = Callable[..., Ran]
