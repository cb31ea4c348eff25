"""Where each setting stands: `flights.yaml:12`, or the `--set` that gave it, in front of what is wrong about it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import yaml

from storage_core.errors import InvalidConfigError

__all__ = ["SettingsPlaces"]


class SettingsPlaces:
    """The places of a settings file's keys.

    Args:
        path: of the file.
        root: its content as YAML's nodes, anchors and merges resolved; None for an empty one.
    """

    def __init__(self, path: str, root: yaml.Node | None) -> None:
        self._path = path
        self._places = {key: f"{path}:{line}" for key, line in _lines(root, ())}

    def override(self, key: str, override: str) -> None:
        """Note that a full key was given by `--set`, and with it all that stood below it."""
        below = [each for each in self._places if each == key or each.startswith(f"{key}.")]
        for each in below:
            del self._places[each]
        self._places[key] = f"--set {override}"

    def located(self, problem: str) -> str:
        """Return a problem, `<full key>: <what>`, with the place of that key, or of the nearest one around it."""
        key = problem.partition(": ")[0]
        while key and key not in self._places:
            key = key.rpartition(".")[0]
        return f"{self._places.get(key, self._path)}: {problem}"

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Let what is raised while the settings are used name the places of those it is about."""
        try:
            yield
        except InvalidConfigError as error:
            keys = {each.partition(".")[0] for each in self._places}
            is_ours = [each.partition(": ")[0].partition(".")[0] in keys for each in error.problems]
            found = [self.located(each) if mine else each for each, mine in zip(error.problems, is_ours, strict=True)]
            raise InvalidConfigError(*found) from error


def _lines(node: yaml.Node | None, above: Sequence[yaml.Node]) -> Iterator[tuple[str, int]]:
    """Yield every full key below a node, and its line; `above` are the nodes that it stands in."""
    if not isinstance(node, yaml.MappingNode) or node in above:
        return
    for key, value in node.value:
        name = str(key.value)
        yield name, key.start_mark.line + 1
        for below, line in _lines(value, (*above, node)):
            yield f"{name}.{below}", line
