"""Reads one mapping of the settings file key by key, and collects every problem."""

import difflib
from collections.abc import Mapping, Sequence

__all__ = ["SettingsSection"]


class SettingsSection:
    """Typed access to one mapping; adds problems under their full keys and continues.

    A key whose value is null counts as absent. Call `finish` after the last key: it adds unknown keys as problems.

    Args:
        values: the mapping in the file.
        path: full key of the mapping, empty for the whole file.
        problems: list of problems, `<key>: <what>`; shared by all sections of a file.
    """

    def __init__(self, values: Mapping[object, object], path: str, problems: list[str]) -> None:
        self._values = values
        self._path = path
        self._problems = problems
        self._known: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._values

    @property
    def names(self) -> list[object]:
        """The keys of the mapping, in the order of the file."""
        return list(self._values)

    def key(self, name: object) -> str:
        """Return the full key of a name of this mapping."""
        return f"{self._path}.{name}" if self._path else str(name)

    def note(self, name: object, what: str) -> None:
        """Add a problem of one key."""
        self._problems.append(f"{self.key(name)}: {what}")

    def text(self, name: str, *, required: bool = False) -> str | None:
        """Return a non-empty text, or None if it is absent or wrong."""
        value = self._take(name, required=required)
        if value is None:
            return None
        if not isinstance(value, str):
            self.note(name, f"{value!r} is not text; put it in quotes")
            return None
        if not value.strip():
            self.note(name, "is empty")
            return None
        return value

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str | None:
        """Return one of the choices, or the default if the key is absent or wrong; without a default, add a problem."""
        value = self._take(name, required=default is None)
        if value is None:
            return default
        if value not in choices:
            self.note(name, f"{value!r} is none of {', '.join(choices)}")
            return default
        return str(value)

    def flag(self, name: str) -> bool | None:
        """Return true or false, or None if it is absent or wrong."""
        value = self._take(name)
        if value is not None and not isinstance(value, bool):
            self.note(name, f"{value!r} is not true or false")
            return None
        return value

    def scalar(self, name: str, *, required: bool = False) -> str | None:
        """Return a text, number or boolean as text, in Spark's spelling."""
        value = self._take(name, required=required)
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, (str, int, float)):
            self.note(name, f"is a {type(value).__name__}, not a text, a number, true or false; put it in quotes")
            return None
        return str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of non-empty texts; empty if it is absent or wrong."""
        value = self._take(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            self.note(name, f"{value!r} is not a list of texts")
            return ()
        return tuple(value)

    def section(self, name: str, *, required: bool = False) -> "SettingsSection":
        """Return the mapping below a key; an empty one if it is absent or wrong."""
        value = self._take(name, required=required)
        if value is not None and not isinstance(value, Mapping):
            self.note(name, "is not a mapping")
            value = None
        elif value is not None and required and not value:
            self.note(name, "is empty")
        return SettingsSection(value or {}, self.key(name), self._problems)

    def raw(self, name: str) -> object:
        """Return the value in the file, or None if it is absent."""
        return self._take(name)

    def finish(self) -> None:
        """Add every key that was never read as a problem."""
        for name in self._values:
            if name in self._known:
                continue
            close = difflib.get_close_matches(str(name), self._known, n=1)
            self.note(name, "unknown key" + (f"; did you mean {close[0]!r}?" if close else ""))

    def _take(self, name: str, *, required: bool = False) -> object:
        self._known.append(name)
        value = self._values.get(name)
        if value is None and required:
            self.note(name, "is missing")
        return value
