"""The group of all commands, with plugins of other packages. Failures become one line and an exit status.

The exit status is 0 for success, 2 for wrong usage, 130 for an interruption, else that of the error's class
(docs/reference/output.md). With ``HEARSAY_DEBUG=1`` an internal error prints its traceback.
"""

from __future__ import annotations

import ast
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import CompletionItem

from aggregator.cli.output import RESULT_PRINTED, complain, print_json
from aggregator.cli.streams import discard_output
from aggregator.cli.table import COMMANDS
from aggregator.common.files import failure_of
from protocol import VERSION
from protocol.errors import HearsayError, StorageError

_DECORATORS = ("click.command", "click.group")
_PLAIN = frozenset({"name", "epilog", "context_settings", "no_args_is_help", "invoke_without_command", "chain"})
"""Arguments of ``click.command`` and ``click.group`` that do not change a command's line in the list of commands."""


def summary_command(place: str) -> click.Command | None:
    """Make a substitute for a command, with its help text, without importing it. ``place`` is ``module:attribute``.

    The result is None if the help text can not be read from the source: there is no source, the attribute is no
    function whose first decorator is ``click.command`` or ``click.group``, or its arguments may change the text.
    """
    module, _, attribute = place.partition(":")
    for function in _functions(module):
        if function.name == attribute and function.decorator_list and _is_plain(function.decorator_list[0]):
            return click.Command(attribute, help=ast.get_docstring(function))
    return None


def _functions(module: str) -> Iterator[ast.FunctionDef]:
    """Yield the functions at the top level of a module, or none if its source can not be found or parsed."""
    try:
        spec = find_spec(module)
        source = spec.loader.get_source(module) if spec and spec.loader else ""  # type: ignore[attr-defined]
        statements = ast.parse(source or "").body
    except Exception:  # noqa: BLE001 - find_spec imports parent packages, and their code may raise anything
        return
    yield from (each for each in statements if isinstance(each, ast.FunctionDef))


def _is_plain(decorator: ast.expr) -> bool:
    """Return whether a decorator makes a click command whose help text is the docstring of the function."""
    return (
        isinstance(decorator, ast.Call)
        and ast.unparse(decorator.func) in _DECORATORS
        and len(decorator.args) <= 1  # a second argument would be a class with a help text of its own
        and all(keyword.arg in _PLAIN for keyword in decorator.keywords)
    )


PLUGINS = "hearsay.commands"
"""Entry-point group of commands of other packages: name → click command."""

INTERRUPTED = 130


def installed_plugins() -> Iterable[EntryPoint]:
    """Return the commands that other installed packages add to ``hearsay``, as entry points."""
    return entry_points(group=PLUGINS)


class Commands(click.Group):
    """A group of the commands of this package and of other packages. A plugin that can not be loaded affects no other.

    ``table``: commands of this package, name → ``module:attribute``, imported when they run (for help only if the
    source does not hold the help text); ``plugins`` returns the commands of other packages.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        table: Mapping[str, str] = MappingProxyType({}),
        plugins: Callable[[], Iterable[EntryPoint]] = installed_plugins,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self._table = table
        self._plugins = plugins

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *self._table, *self._offered()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command called ``cmd_name``, or None; commands of this package come before plugins."""
        added = super().get_command(ctx, cmd_name)
        if added is not None:
            return added
        if cmd_name in self._table:
            command = resolve_name(self._table[cmd_name])
            assert isinstance(command, click.Command)
            return command
        plugin = self._offered().get(cmd_name)
        return None if plugin is None else _load(plugin)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in ``hearsay --help``, one line per command."""
        self._listed(ctx).format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Suggest names of commands and options that begin with the text ``incomplete``, for a shell."""
        commands = self._listed(ctx)
        names = commands.shell_complete(click.Context(commands, help_option_names=[]), incomplete)
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def _listed(self, ctx: click.Context) -> click.Group:
        """Return a group with the names and help texts of all commands. The group can not run them."""
        places = {name: plugin.value for name, plugin in self._offered().items()} | dict(self._table)
        listed = click.Group()
        for name in self.list_commands(ctx):
            command = self.commands.get(name) or summary_command(places[name]) or self.get_command(ctx, name)
            assert command is not None  # get_command finds every name of list_commands
            listed.add_command(command, name)
        return listed

    def _offered(self) -> dict[str, EntryPoint]:
        return {plugin.name: plugin for plugin in self._plugins()}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args`` as click does. Without any, print the whole help on standard error and end with status 2."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's own signature
        **extra: Any,
    ) -> Any:
        """Run a command line. By default print failures as one line, and end the process with the exit status.

        With ``standalone_mode`` false, exceptions and results pass to the caller, as in click.
        """
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode, **extra)
        sys.exit(self._guarded(args, prog_name, complete_var, extra))

    def _guarded(
        self, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None, extra: dict[str, Any]
    ) -> int:
        RESULT_PRINTED.set(False)
        try:
            status = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except (click.Abort, KeyboardInterrupt):
            complain("interrupted", "nothing more was written")
            return INTERRUPTED
        except BrokenPipeError:
            discard_output()
            return HearsayError.status
        except Exception as error:  # noqa: BLE001 - any unexpected exception is printed as one line
            as_json = "--json" in (sys.argv[1:] if args is None else args)
            return _told(error, as_json=as_json)
        return status if isinstance(status, int) else 0


def _told(error: Exception, *, as_json: bool) -> int:
    """Print why a command has failed, ``as_json`` also as one object, and return the exit status."""
    failure = _failure(error)
    if failure.reason == "internal_error" and os.environ.get("HEARSAY_DEBUG") == "1":
        traceback.print_exception(error)
        return failure.status
    complain(failure.reason, failure.detail)
    if as_json and not RESULT_PRINTED.get() and failure.reason not in ("usage", "output_failed"):
        with suppress(OSError, HearsayError):  # the reason is on standard error already
            print_json({"reason": failure.reason, "detail": failure.detail, "status": failure.status})
            sys.stdout.flush()
    return failure.status


def _failure(error: Exception) -> HearsayError:
    """Return an error as one of ours. The message of an internal error is left out: it may hold a value of a record."""
    if isinstance(error, HearsayError):
        return error
    if isinstance(error, click.UsageError):
        where = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
        wrong = HearsayError("usage", f"{error.format_message().rstrip('.')}{where}")
        wrong.status = error.exit_code
        return wrong
    if isinstance(error, click.ClickException):
        return StorageError("io_failed", error.format_message())
    if isinstance(error, MemoryError):
        advice = "give fewer records, a smaller --memory where there is one, or a larger machine"
        return StorageError("memory_short", advice)
    if isinstance(error, OSError):
        reason, problem = failure_of(error)
        return StorageError(reason, problem)
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{'/'.join(frames[-1].filename.split('/')[-2:])}:{frames[-1].lineno}" if frames else "unknown"
    return HearsayError("internal_error", f"{type(error).__name__} at {place}; HEARSAY_DEBUG=1 shows more")


def _load(plugin: EntryPoint) -> click.Command:
    """Import and return the command of a plugin. If that fails, return a command that refuses to run."""
    problem = "it is not a command"
    try:
        command = plugin.load()
        if isinstance(command, click.Command):
            return command
    except Exception as error:  # noqa: BLE001 - a plugin's import may raise anything
        problem = f"{type(error).__name__} when it was loaded"
    return _broken(plugin, problem)


def _broken(plugin: EntryPoint, problem: str) -> click.Command:
    """Return a command that replaces a plugin which can not be loaded. Running it raises ``plugin_broken``."""

    def refuse(arguments: tuple[str, ...]) -> None:
        del arguments
        raise StorageError("plugin_broken", f"command '{plugin.name}' of {plugin.value}: {problem}")

    anything = click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)
    return click.Command(
        plugin.name,
        callback=refuse,
        params=[anything],
        short_help="(can not be loaded)",
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
    )


@click.group(
    cls=Commands, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, message="hearsay %(version)s")
def hearsay() -> None:
    """Naive Bayes classifiers from locally private reports of devices.

    \b
    A first round:
      hearsay init work
      hearsay schema pilot.csv --label class -o schema.toml
      hearsay campaign schema.toml --workspace work --epsilon 1 --mechanism direct -o c.hsc
      hearsay ingest c.hsc reports/*.hsr --store store --workspace work
      hearsay publish --store store --workspace work -o m.hsm
    """  # noqa: D301 - click's mark for lines that it must not wrap
