"""What can be typed for a verb is what its module takes: the two meet as keyword arguments, which mypy can't check."""

import ast
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from sparklog.pipeline.command import cli as command

_NOT_BY_KEYWORD = {"check", "dump-log"}
"""They pass their arguments one by one, which mypy checks."""


def _module(callback: Callable[..., Any]) -> str:
    """Return the module that a verb's function imports `run` from."""
    file = inspect.getsourcefile(callback)
    assert file is not None
    functions = {
        node.name: node for node in ast.parse(Path(file).read_text()).body if isinstance(node, ast.FunctionDef)
    }
    (found,) = (
        node.module
        for node in ast.walk(functions[callback.__name__])
        if isinstance(node, ast.ImportFrom) and [each.name for each in node.names] == ["run"]
    )
    assert found is not None
    return found


@pytest.mark.parametrize("verb", sorted(set(command.cli.commands) - _NOT_BY_KEYWORD))
def test_verb_when_it_is_carried_out_then_takes_each_option_and_needs_no_other(verb: str) -> None:
    """Every option of the command line has a parameter of its name, and every parameter without default an option."""
    typed = command.cli.commands[verb]
    assert typed.callback is not None
    options = {each.name for each in typed.params if not isinstance(each, click.Option) or each.name != "help"}
    run = importlib.import_module(_module(typed.callback)).run
    parameters = inspect.signature(run).parameters.values()
    named = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
    takes_more = any(each.kind is each.VAR_KEYWORD for each in parameters)

    needed = {each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD}

    assert needed <= options
    assert takes_more or options <= named
