"""What users import: exactly these names."""

import importlib
import pkgutil

import sparklog
from sparklog.storage_core import errors


def test_sparklog_when_imported_then_exports_exactly_the_public_names() -> None:
    """A name that appears or goes is a decision, and this test has to be changed with it."""
    assert sorted(sparklog.__all__) == ["LogSink", "MicroBatchMetrics", "errors", "register"]
    assert all(hasattr(sparklog, name) for name in sparklog.__all__)


def test_errors_when_listed_then_the_docstring_names_every_class() -> None:
    """The tree in the module's docstring is complete."""
    assert [name for name in errors.__all__ if name not in (errors.__doc__ or "")] == []


def test_modules_when_they_name_members_then_those_exist() -> None:
    """`__all__` of every module names what the module has, eight names at most."""
    problems = []
    for module in pkgutil.walk_packages(sparklog.__path__, "sparklog."):
        if module.name.endswith(".__main__"):
            continue
        loaded = importlib.import_module(module.name)
        names = getattr(loaded, "__all__", [])
        problems += [f"{module.name}.{name}" for name in names if not hasattr(loaded, name)]
    assert problems == []
