"""What tests need that start Spark with Delta's jars."""

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.pipeline.spark.jars import obtain_jars
from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["jars_fixture"]


def jars_fixture(was_not_tested: str) -> Callable[..., Any]:
    """Return the fixture of a module whose tests need the jars; without them it says loudly what nobody judged."""

    @pytest.fixture(scope="module", autouse=True)
    def jars() -> None:
        """The jars are in the cache."""
        try:
            obtain_jars()
        except InvalidConfigError as error:
            pytest.skip(f"{was_not_tested}: {error}")

    return jars
