"""A search for a term of the field in the module headers finds the module that has the rule."""

import ast
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("storage_core", "sink", "pipeline")


@cache
def _headers() -> list[tuple[str, str]]:
    """Return the file name of each module, and the first paragraph of its docstring in lower case."""
    paths = [path for package in _PACKAGES for path in (_ROOT / package).rglob("*.py")]
    docs = [(path.name, ast.get_docstring(ast.parse(path.read_text())) or "") for path in paths]
    return [(name, doc.partition("\n\n")[0].lower()) for name, doc in docs]


@pytest.mark.parametrize(
    ("query", "module"),
    [
        ("reopen after crash", "open_store.py"),
        ("crash recovery", "recover_segment.py"),
        ("partial write", "cut_back.py"),
        ("torn", "recover_segment.py"),
        ("lease", "leases.py"),
        ("fencing", "owner_check.py"),
        ("fsync order", "local.py"),
    ],
)
def test_headers_when_searched_for_a_term_of_the_field_then_the_module_of_the_rule_is_found(
    query: str, module: str
) -> None:
    """The header of the module has every word of the query."""
    assert module in {name for name, header in _headers() if all(word in header for word in query.split())}
