"""Files are opened where it is checked what they are, `storage_core/storage/open_regular.py`, and nowhere else."""

import ast
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("pipeline", "sink", "storage_core", "sparklog")
_METHODS = ("read_bytes", "read_text", "write_bytes", "write_text")
_ALLOWED = {
    "storage_core/storage/open_regular.py",
    "sink/store/log_dirs.py",  # a file without a name
    "pipeline/settings/stream_settings.py",  # what a user names may be a pipe
    "pipeline/maintenance/given_plan.py",
    "pipeline/maintenance/forget.py",
    "pipeline/spark/jars.py",  # files of the package
    "pipeline/control/leases.py",  # of the kernel
}


def _opens(path: Path) -> Iterator[int]:
    """Yield the lines of a module that open files by themselves."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name("open"):
                yield node.lineno
            case ast.Attribute(ast.Name("os" | "io" | "np" | "pa"), "open" | "fromfile" | "memmap" | "memory_map"):
                yield node.lineno
            case ast.Attribute(_, name) if name in _METHODS:
                yield node.lineno
            case ast.Attribute(_, "open") if any(_is_mode(each) for each in node.args):
                yield node.lineno


def _is_mode(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Constant) and isinstance(argument.value, str)


def test_modules_when_they_open_files_then_by_the_functions_that_check_what_these_are() -> None:
    """A FIFO or a link in the place of a file is found there."""
    modules = [path for package in _PACKAGES for path in sorted((_ROOT / package).rglob("*.py"))]
    names = [f"{path.relative_to(_ROOT)}:{line}" for path in modules for line in _opens(path)]

    assert [name for name in names if name.rpartition(":")[0] not in _ALLOWED] == []
