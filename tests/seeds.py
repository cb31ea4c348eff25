"""Seeds of tests that choose at random.

By default they are fixed: whether a change lands is not a matter of luck. `SPARKLOG_SEED=random`, which `make soak` and
`make kill-test` set, draws new ones; `SPARKLOG_SEED=<n>` repeats one. Each is printed.
"""

import os
import secrets
from collections.abc import Callable

__all__ = ["GIVEN", "IS_RANDOM", "take_seed"]

_WANTED = os.environ.get("SPARKLOG_SEED") or ""
_BITS = 30

IS_RANDOM = _WANTED == "random"
GIVEN: int | None = int(_WANTED) if _WANTED and not IS_RANDOM else None
"""The one seed that is to be repeated."""


def take_seed(number: int = 0, form: Callable[[int], int] = int) -> int:
    """Return the seed of a test's run, and print it: `SPARKLOG_SEED` with it repeats the run.

    Args:
        number: of the run, among those of its test; a fixed seed follows from it.
        form: makes a seed of what was drawn, where not every number will do.
    """
    seed = form(secrets.randbits(_BITS) if IS_RANDOM else number) if GIVEN is None else GIVEN
    print(f"SPARKLOG_SEED={seed}")
    return seed
