"""Removals and renames by path are made by `storage_core/storage/owned_names.py` and nowhere else."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("sink", "storage_core/log", "storage_core/retention", "storage_core/cleaner")
_METHODS = {"unlink", "rmdir", "rename", "removedirs", "renames", "rmtree"}
"""Of a `Path`, of `os` or of `shutil`: nothing else has them."""

_OF_MODULES = {"os": {*_METHODS, "remove", "replace", "truncate"}, "shutil": {"rmtree", "move"}}
_ALLOWED = {
    ("sink/locks/writer_lock.py", "unlink"): "the file has the taker's token",
    ("sink/locks/writer_lock.py", "replace"): "this is the taking by force itself; it holds takeover.lock alone",
    ("sink/quarantine/diverted_rows.py", "move"): "from a staging folder to a folder that both have the writer's token",
    ("storage_core/log/files/clean_shutdown.py", "unlink"): "a broker's marker, under the broker's lock",
}


def _found_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of what removes or renames by path.

    `replace` is a `Path`'s where it gets one argument: that of a text takes two, that of dataclasses is no method.
    """
    tree = ast.parse(source)
    modules = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in _OF_MODULES
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            banned = _OF_MODULES.get(node.module or "", set())
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in banned)
        elif isinstance(node, ast.Attribute):
            owner = modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if node.attr in (_OF_MODULES[owner] if owner else _METHODS):
                yield node.lineno, node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "replace":
            is_module = isinstance(node.func.value, ast.Name) and node.func.value.id in modules
            keywords = {each.arg for each in node.keywords}
            if not is_module and ((len(node.args) == 1 and not keywords) or keywords == {"target"}):
                yield node.lineno, "replace"


def test_modules_of_a_writer_when_they_remove_or_rename_then_by_owned_names() -> None:
    """Elsewhere nothing stands between the check of the owner and the kernel's answer."""
    found = {
        (str(path.relative_to(_ROOT)), name): line
        for folder in _FOLDERS
        for path in sorted((_ROOT / folder).rglob("*.py"))
        for line, name in _found_in(path.read_text())
    }

    told = [
        f"{path}:{line}: {name}: call remove_file, remove_tree, rename, replace_file or another function of"
        " storage_core/storage/owned_names.py, with the owner"
        for (path, name), line in found.items()
        if (path, name) not in _ALLOWED
    ]
    assert told == []
    assert sorted(set(_ALLOWED) - set(found)) == [], "allowed, but not there any more"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("path.unlink(missing_ok=True)", "unlink"),
        ("folder.rmdir()", "rmdir"),
        ("import shutil as s; s.rmtree(path)", "rmtree"),
        ("import os; list(map(os.remove, paths))", "remove"),
        ("import os; os.replace(a, b)", "replace"),
        ("from os import rename as other", "rename"),
        ("source.replace(target)", "replace"),
        ("(folder / name).replace(target=folder / other)", "replace"),
    ],
)
def test_search_when_a_call_removes_or_renames_then_finds_it(line: str, name: str) -> None:
    """However the function was imported."""
    assert [found for _, found in _found_in(line)] == [name]


@pytest.mark.parametrize(
    "line",
    [
        "text.replace('a', 'b')",
        "from dataclasses import replace; replace(plan, rows=rows)",
        "moment.replace(tzinfo=UTC)",
        "names.remove(name)",
        "ledger.move(row, name)",
    ],
)
def test_search_when_a_call_has_only_the_name_then_passes_over_it(line: str) -> None:
    """Texts, dataclasses, times and lists have methods of these names."""
    assert list(_found_in(line)) == []
