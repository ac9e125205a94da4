"""Read help texts of commands without importing the commands, for ``hearsay --help`` and the shell's completion.

The list shows one line per command. Importing all commands for it would load numpy and every module that a command
needs. The source of a command holds the same line, so the source is parsed and not run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec

import click

_DECORATORS = ("click.command", "click.group")
_PLAIN = frozenset({"name", "epilog", "context_settings", "no_args_is_help", "invoke_without_command", "chain"})
"""Arguments of ``click.command`` and ``click.group`` that do not change a command's line in the list of commands."""


def summary_command(place: str) -> click.Command | None:
    """Make a substitute for a command that is not imported: it has the same help text and no options.

    Args:
        place: ``module:attribute`` of the command's function.

    Returns:
        The substitute; None if the help text can not be read from the source. The command must then be imported. This
        is so if there is no source, if the attribute is no function whose first decorator is ``click.command`` or
        ``click.group``, or if an argument of that decorator may change the text.
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
        and len(decorator.args) <= 1  # a second argument would be a class with a help text of its own
        and all(keyword.arg in _PLAIN for keyword in decorator.keywords)
    )
