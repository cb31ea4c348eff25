"""The page of guarantees: each row of its tables names tests, and each test that it names is there."""

import ast
import re
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = (_ROOT / "docs" / "guarantees.md").read_text()
_LISTED = re.findall(r"^- ([A-Z]\d+): `([^`]+)`$", _PAGE, re.MULTILINE)
_NAMED = dict(_LISTED)
_KEY = re.compile(r"\b[A-Z]\d+\b")


def _rows() -> list[str]:
    """Return the rows of all tables, without their heads."""
    lines = [line for line in _PAGE.splitlines() if line.startswith("|")]
    heads = {number + offset for number, line in enumerate(lines) if line.startswith("|---") for offset in (-1, 0)}
    return [line for number, line in enumerate(lines) if number not in heads]


def test_guarantees_when_a_row_says_something_then_it_names_tests_that_are_listed() -> None:
    """The last column of each row holds nothing but keys of the list at the end."""
    rows = _rows()

    assert rows
    for row in rows:
        keys = row.rstrip("| ").rpartition("|")[2].split()
        assert keys, row
        assert set(keys) <= _NAMED.keys(), row


def test_guarantees_when_tests_are_listed_then_each_has_a_key_of_its_own() -> None:
    """A row's key points at one test."""
    keys = [key for key, _ in _LISTED]

    assert [key for key in _NAMED if keys.count(key) > 1] == []


def test_guarantees_when_a_test_is_listed_then_a_row_names_it() -> None:
    """A test that shows nothing on the page is not listed."""
    used = {key for row in _rows() for key in _KEY.findall(row.rpartition("|")[0].rpartition("|")[2])}

    assert used == _NAMED.keys()


def test_guarantees_when_a_test_is_named_then_it_exists() -> None:
    """A renamed test is renamed on the page, too."""
    missing = []
    for named in _NAMED.values():
        path, _, name = named.partition("::")
        file = _ROOT / path
        tree = ast.parse(file.read_text()) if file.is_file() else ast.parse("")
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(named)

    assert missing == []
