"""Adds to each settings problem its place: `flights.yaml:12`, or the `--set` of the setting."""

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from sparklog.storage_core.errors import InvalidConfigError

__all__ = ["SettingsPlaces", "repeated_keys"]


class SettingsPlaces:
    """The places of a settings file's keys.

    Args:
        root: its content as YAML nodes, anchors and merges resolved; None for an empty file.
    """

    def __init__(self, path: str, root: yaml.Node | None) -> None:
        self._path = path
        self._root = root
        self._given: set[str] = set()

    def override(self, key: str) -> None:
        """Record that `--set` gave a full key, and so replaced all keys below it."""
        self._given = {each for each in self._given if not each.startswith(f"{key}.")} | {key}

    def located(self, problem: str) -> str:
        """Return a problem, `<full key>: <what>`, with the place of that key, or of the nearest key above it."""
        key = problem.partition(": ")[0]
        while key:
            if key in self._given:
                return f"--set {key}: {problem}"
            line = _line(self._root, key)
            if line is not None and not any(key.startswith(f"{each}.") for each in self._given):
                return f"{self._path}:{line}: {problem}"
            key = key.rpartition(".")[0]
        return f"{self._path}: {problem}"

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Add places to problems that are raised while the settings are used."""
        try:
            yield
        except InvalidConfigError as error:
            keys = {each.partition(".")[0] for each in (*self._given, *(name for name, _, _ in _keys(self._root)))}
            is_ours = [each.partition(": ")[0].partition(".")[0] in keys for each in error.problems]
            found = [self.located(each) if mine else each for each, mine in zip(error.problems, is_ours, strict=True)]
            raise InvalidConfigError(*found) from error


def repeated_keys(root: yaml.Node | None) -> Iterator[str]:
    """Yield a problem for each key that occurs twice in a mapping, under its full key.

    Args:
        root: before merges are resolved, so that a key may override a merged one.
    """
    waiting, visited = [("", root)], set[int]()
    while waiting:
        path, node = waiting.pop()
        if id(node) in visited:  # an alias: an endless loop otherwise
            continue
        visited.add(id(node))
        first: dict[str, int] = {}
        for name, line, value in _keys(node):
            if name in first:
                yield f"{path}{name}: occurs twice, first at line {first[name]}"
            first.setdefault(name, line)
            waiting.append((f"{path}{name}.", value))


def _line(node: yaml.Node | None, key: str) -> int | None:
    """Return the line of a full key below a node; of a repeated key that of the last one, which counts."""
    found = None
    for name, line, value in _keys(node):
        if name == key:
            found = line
        elif key.startswith(f"{name}."):
            found = _line(value, key[len(name) + 1 :]) or found
    return found


def _keys(node: yaml.Node | None) -> Iterator[tuple[str, int, yaml.Node]]:
    """Yield each scalar key of a mapping, its line, and its value."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            yield key.value, key.start_mark.line + 1, value
