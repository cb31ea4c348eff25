"""What the product has is used by it: every module is imported, every public function and class is called."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("pipeline", "sink", "storage_core")

_UNIMPORTED = {
    "pipeline.demo_flights": "a program of its own",
    "storage_core.log.read.partition_log": "no verb calls it yet; a benchmark does",
    "storage_core.operation_fault_points": "tests list the points; the product names them one by one",
}
_UNCALLED = {
    "sink.operations.truncate_logs.truncate_fully_and_start_at": "no verb calls it yet",
}
_MOST_MODULES = 16


def _parsed(*folders: str) -> dict[str, ast.Module]:
    """Return the modules below folders, by their dotted names."""
    paths = [path for folder in folders for path in sorted((_ROOT / folder).rglob("*.py"))]
    return {".".join(path.relative_to(_ROOT).with_suffix("").parts): ast.parse(path.read_text()) for path in paths}


_PRODUCT = _parsed(*_PACKAGES)
_SHELL = {name: ast.parse((_ROOT / "sparklog" / f"{name}.py").read_text()) for name in ("__init__", "__main__")}


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the names of modules that a module imports, also of those that it names to have them imported."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)):
                yield module
                yield from (f"{module}.{each.name}" for each in node.names)
            case ast.Import():
                yield from (each.name for each in node.names)
            case ast.Constant(value=str(text)):
                yield text


def _used(tree: ast.Module) -> Iterator[str]:
    """Yield every name that a module uses; a definition and `__all__` are no use."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                yield name


def _public(tree: ast.Module) -> set[str]:
    """Return the functions and classes that `__all__` names."""
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    lists = [node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__"]
    return defined & {name for each in lists for name in ast.literal_eval(each)}


def test_modules_when_listed_then_each_is_imported_by_another_one() -> None:
    """A module that only tests import belongs to the tests."""
    imported = {name: set(_imported(tree)) for name, tree in (_PRODUCT | _SHELL).items()}
    modules = [name for name in _PRODUCT if not name.endswith("__init__")]
    alone = {
        name
        for name in modules
        if not any(f"sparklog.{name}" in names for other, names in imported.items() if other != name)
    }

    assert alone == set(_UNIMPORTED)


def test_public_names_when_listed_then_the_product_or_a_benchmark_uses_each() -> None:
    """A function or class that only tests call belongs to the tests."""
    trees = (_PRODUCT | _SHELL | _parsed("benchmarks")).values()
    used = {name for tree in trees for name in _used(tree)}
    uncalled = {f"{module}.{name}" for module, tree in _PRODUCT.items() for name in _public(tree) - used}

    assert uncalled == set(_UNCALLED)


def test_folders_when_counted_then_none_has_more_modules_than_one_can_survey() -> None:
    """A folder that grows beyond that has a concept of its own in it."""
    counts = Counter(name.rpartition(".")[0] for name in _PRODUCT if not name.endswith("__init__"))

    assert [folder for folder, count in counts.items() if count > _MOST_MODULES] == []
