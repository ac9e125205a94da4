"""Help texts of commands without importing the commands, for ``hearsay --help`` and the shell's completion.

The list shows one line per command. Importing all commands for it would load numpy and every module that a command
needs. The source of a command holds the same line, so the source is parsed and not run.
"""

from __future__ import annotations

import ast
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

_DECORATORS = ("click.command", "click.group")
_PLAIN = frozenset({"name", "context_settings", "no_args_is_help", "invoke_without_command", "chain"})
"""Arguments of ``click.command`` and ``click.group`` that leave the line in the list as the docstring has it."""


def summary_command(place: str) -> click.Command | None:
    """A command without options that has the help text of a command which is not imported.

    Args:
        place: ``module:attribute``, as in an entry point.

    Returns:
        None if the source does not decide the text: there is no source, or the attribute is no function whose first
        decorator is ``click.command`` or ``click.group``, or an argument of that decorator may change the text. The
        command must then be imported.
    """
    module, _, attribute = place.partition(":")
    for function in _functions(module):
        if function.name == attribute and function.decorator_list and _is_plain(function.decorator_list[0]):
            return click.Command(attribute, help=ast.get_docstring(function))
    return None


def _functions(module: str) -> Iterator[ast.FunctionDef]:
    """The functions at the top level of a module; none if its source can not be found or parsed."""
    try:
        spec = find_spec(module)
        source = spec.loader.get_source(module) if spec and spec.loader else ""  # type: ignore[attr-defined]
        statements = ast.parse(source or "").body
    except Exception:  # noqa: BLE001 - find_spec imports parent packages, and their code may raise anything
        return
    yield from (each for each in statements if isinstance(each, ast.FunctionDef))


def _is_plain(decorator: ast.expr) -> bool:
    """Whether a decorator makes a click command whose help text is the docstring of the function."""
    return (
        isinstance(decorator, ast.Call)
        and ast.unparse(decorator.func) in _DECORATORS
        and len(decorator.args) <= 1  # the second is a class of commands
        and all(keyword.arg in _PLAIN for keyword in decorator.keywords)
    )
