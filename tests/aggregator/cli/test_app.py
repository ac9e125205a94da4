"""How commands end, how other packages add some, and closed standard streams."""

import io
import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.commands import HEARSAY, REFUSED, invoke, told
from support.fleets import honest, sealed
from support.publisher import DAY, NOW, Publisher
from support.reports import opened

from aggregator import cli, entry
from aggregator.cli import output
from aggregator.cli.app import PLUGINS, Commands, hearsay
from aggregator.cli.table import COMMANDS
from protocol.errors import PolicyError


def group(function):
    """A group like ours with one command that does what is given."""
    made = Commands("hearsay")
    made.add_command(click.Command("go", callback=function))
    return made


def ending(function, **environment):
    return CliRunner(env=environment).invoke(group(function), ["go"])


def fail(error):
    raise error


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (PolicyError("policy_refused", "not\nnow\x1b[2J"), 4, r"policy_refused: not now\ufffd\[2J"),
        (KeyError("SECRET"), 1, r"internal_error: KeyError at cli/test_app\.py:\d+; HEARSAY_DEBUG=1 shows more"),
        (KeyboardInterrupt(), 130, r"\n?interrupted: nothing more was written"),
        (MemoryError("SECRET"), 5, "memory_short: give fewer records, .*"),
        (OSError(28, "No space left on device", "/somewhere"), 5, "disk_full: there is no space left"),
    ],
)
def test_a_failure_is_one_line_and_the_status_of_its_class(error, status, said):
    result = ending(lambda: fail(error))
    assert (result.exit_code, result.stdout) == (status, "")
    assert re.fullmatch(f"{said}\n", result.stderr)


def test_a_bug_with_debugging_shows_the_traceback():
    result = ending(lambda: fail(KeyError("key")), HEARSAY_DEBUG="1")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


def test_a_reader_that_has_gone_is_no_error(tmp_path):
    """``hearsay … | head`` on real pipes."""
    code = "import sys; from aggregator.cli.app import hearsay; sys.argv[0] = 'hearsay'; hearsay(['--help'])"
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as gone:
        done = subprocess.run([sys.executable, "-c", code], stdout=gone, stderr=subprocess.PIPE, check=False)
    assert done.stderr == b""
    assert done.returncode == 1


def test_a_plugin_joins_and_a_broken_one_leaves_the_others_alone():
    offered = {
        "greet": "support.plugins:greet",
        "absent": "support.no_such_module:x",
        "number": "support.plugins:NUMBER",
        "show": "support.plugins:greet",
    }
    points = [EntryPoint(name, place, PLUGINS) for name, place in offered.items()]
    hearsay = Commands("hearsay", table=COMMANDS, plugins=lambda: points)
    run = CliRunner().invoke
    assert run(hearsay, ["greet"]).stdout == "hello\n"
    help_text = run(hearsay, ["--help"]).stdout
    assert "greet" in help_text
    assert "absent (can not be loaded)" in " ".join(help_text.split())
    for name, why in (("absent", "ModuleNotFoundError"), ("number", "it is not a command")):
        result = run(hearsay, [name, "--any", "option"])
        assert result.exit_code in REFUSED
        assert result.stderr.startswith("plugin_broken: ")
        assert why in result.stderr
    assert "Example:\n    hearsay show c.hsc" in run(hearsay, ["show", "--help"]).stdout


def all_commands():
    """Every command, those of groups included, as typed."""
    for name in COMMANDS:
        inner = getattr(hearsay.get_command(None, name), "commands", {})
        yield from ([name, sub] for sub in sorted(inner)) if inner else [[name]]


@pytest.mark.parametrize("words", list(all_commands()), ids=" ".join)
def test_every_help_has_an_example_and_every_printer_takes_json(words):
    text = invoke(*words, "--help").stdout
    assert f"Example:\n    hearsay {' '.join(words)} " in text
    assert "--json" in text


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        ("hearsay(['show', '--help'])", ["aggregator.cli.publishing.show"]),
        ("hearsay(['--help'])", []),
        ("print(hearsay.shell_complete(click.Context(hearsay), 'd'))", []),
    ],
)
def test_a_command_is_loaded_when_it_is_asked_for_and_help_loads_no_heavy_library(words, loaded):
    code = (
        "import sys, click\nfrom aggregator.cli.app import hearsay\n"
        f"try: {words}\nexcept SystemExit: pass\n"
        "rooms = tuple(f'aggregator.cli.{each}.' for each in ('curator', 'planning', 'publishing', 'reports'))\n"
        "heavy = (*rooms, 'simulation.', 'edge_sdk', 'numpy', 'pandas', 'pyarrow', 'rich')\n"
        "print([name for name, module in sorted(sys.modules.items())\n"
        "       if name.startswith(heavy) and not hasattr(module, '__path__')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == f"{loaded}\n"
    assert "Usage" in done.stdout or "CompletionItem" in done.stdout


def test_a_plugin_that_fails_when_imported_is_listed_and_refused(tmp_path, monkeypatch):
    source = 'import click\nraise RuntimeError("SECRET")\n@click.command()\ndef late():\n    """Fail."""\n'
    (tmp_path / "failing_plugin.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    group = Commands("hearsay", plugins=lambda: [EntryPoint("late", "failing_plugin:late", PLUGINS)])
    assert "late  Fail." in CliRunner().invoke(group, ["--help"]).stdout
    result = CliRunner().invoke(group, ["late"])
    assert (result.exit_code, result.stderr.split(": ")[0], "SECRET" in result.output) == (5, "plugin_broken", False)


def listed(group):
    """The list of commands in a group's help, as lines."""
    formatter = click.HelpFormatter(width=100)
    group.format_commands(click.Context(group, max_content_width=100), formatter)
    return formatter.getvalue().splitlines()


def test_the_list_says_what_the_imported_commands_say():
    names = hearsay.list_commands(None)
    commands = {name: hearsay.get_command(None, name) for name in names}
    loaded = click.Group("hearsay", commands=commands, params=hearsay.params)
    assert listed(hearsay) == listed(loaded)
    for begun in ("", "p", "--v", "nothing"):
        found, wanted = (group.shell_complete(click.Context(group), begun) for group in (hearsay, loaded))
        assert [(item.value, item.help) for item in found] == [(item.value, item.help) for item in wanted]


@pytest.mark.parametrize("name", ["short", "hidden", "made", "bare"])
def test_the_list_imports_a_plugin_whose_line_is_not_its_docstring(name):
    group = Commands("hearsay", plugins=lambda: [EntryPoint(name, f"support.plugins:{name}", PLUGINS)])
    loaded = click.Group("hearsay", commands={name: group.get_command(None, name)})
    assert listed(group) == listed(loaded)


def test_an_unknown_command_is_wrong_usage_and_without_one_the_whole_help_is_shown():
    result = invoke("no-such")
    assert (result.exit_code, result.stderr) == (2, "usage: No such command 'no-such'; see hearsay --help\n")
    result = invoke()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == invoke("--help").stdout
    assert len(result.stderr.splitlines()) > 15


def test_without_its_libraries_the_script_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(entry, "find_spec", lambda name: None if name in ("numpy", "rich") else name)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("missing_extra: numpy, rich not installed: ")
    assert error.endswith("install -e '" + str(Path(entry.__file__).parents[1]) + "[aggregator]'\n")


@pytest.mark.parametrize(
    ("encoding", "lines"),
    [
        ("ascii", ("campaign --help", "show c.hsc", "verify c.hsc --trust t.hst --privacy")),
        ("latin-1", ("campaign --help", "show c.hsc")),
    ],
)
def test_an_old_locale_stops_no_command(tmp_path, encoding, lines):
    """Click writes UTF-8 where it takes ASCII for a mistake; tables and other encodings say ? for ε."""
    (tmp_path / "c.hsc").write_bytes(Publisher(now=int(time.time())).campaign())
    (tmp_path / "t.hst").write_bytes(Publisher(now=int(time.time())).root())
    for line in lines:
        done = subprocess.run([*HEARSAY, *line.split()], check=False, cwd=tmp_path, capture_output=True,
                              env={**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"})  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"?" in done.stdout or (encoding == "ascii" and "ε" in done.stdout.decode())


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


def test_tables_are_aligned_and_take_brackets_as_they_are(monkeypatch, capsys):
    rows = [["[0, 1)", 1.23456789], ["[red]", float("nan")]]
    output.print_table(["bin", "estimate"], rows, ["estimate"])
    assert capsys.readouterr().out == "bin     estimate\n[0, 1)   1.23457\n[red]        nan\n"
    output.print_table(["bin", "text"], [["x", "long " * 100]])
    assert len(capsys.readouterr().out.splitlines()) == 2
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "dumb")  # 80 columns, no escapes
    output.print_table(["bin", "text"], [["x", "long " * 100]])
    assert len(screen.getvalue().splitlines()) > 6
    assert all(len(line) <= 80 for line in screen.getvalue().splitlines())


def test_plain_tables_count_wide_characters_twice_and_json_is_standard(capsys):
    output.print_table(["name", "日本", "n"], [["é", "x", 3], ["e\u0301日"], ["a\tb", "", 10]], ["n"])
    assert capsys.readouterr().out == "name  日本   n\né     x      3\ne\u0301日\na b         10\n"
    output.print_table(["empty"], [])
    assert capsys.readouterr().out == "empty\n"
    output.print_json({"a": b"\x01\xff", "b": float("inf"), "c": (1, None), 2: "é"})
    assert json.loads(capsys.readouterr().out) == {"a": "01ff", "b": None, "c": [1, None], "2": "é"}


def test_progress_is_drawn_on_terminals_only(monkeypatch):
    for draws in (False, True):
        screen = Terminal()
        screen.isatty = lambda draws=draws: draws
        monkeypatch.setattr(sys, "stderr", screen)
        with output.progress("reading", 2) as callback:
            assert (callback is not None) == draws
            if draws:
                callback(1, 2)
        assert ("reading" in screen.getvalue()) == draws
        with output.working("counting"):
            pass
        assert ("counting" in screen.getvalue()) == draws


def test_durations_are_said_in_the_largest_unit_that_fits_and_times_beyond_the_calendar_as_numbers():
    said = {86_400: "1 day", 172_800: "2 days", 3600: "1 hour", 5400: "90 minutes", 61: "61 seconds", 1: "1 second"}
    assert {seconds: output.lasting(seconds) for seconds in said} == said
    assert (output.when(0), output.when(1 << 40)) == ("1970-01-01 00:00:00 UTC", "1099511627776 s after 1970")


def test_the_glossary_has_every_mechanism_post_processing_and_method_and_help_shows_it():
    from aggregator.cli import options
    from aggregator.curator.methods.table import METHODS
    from aggregator.models.postprocess.methods import POSTPROCESSES
    from protocol import mechanisms

    assert set(options.MECHANISMS) == set(mechanisms.names())
    assert set(options.POSTPROCESSINGS) == set(POSTPROCESSES)
    assert set(options.CENTRAL_METHODS) == set(METHODS)
    shown = invoke("simulate", "--help").stdout
    for table in (options.MECHANISMS, options.POSTPROCESSINGS, options.CENTRAL_METHODS):
        assert all(re.search(rf"^ +{name} +\S", shown, re.MULTILINE) for name in table)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_as_the_page_of_commands_says(shell):
    page = (Path(cli.__file__).parents[2] / "docs" / "reference" / "cli.md").read_text("utf-8")
    assert f"_HEARSAY_COMPLETE={shell}_source hearsay" in page
    environment = {**os.environ, "_HEARSAY_COMPLETE": f"{shell}_source"}
    program = [Path(sys.executable).with_name("hearsay")]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "_HEARSAY_COMPLETE" in done.stdout) == (0, True), done.stderr
    asked = {**environment, "_HEARSAY_COMPLETE": "bash_complete", "COMP_WORDS": "hearsay publ", "COMP_CWORD": "1"}
    assert "publish" in subprocess.run(program, env=asked, capture_output=True, text=True, check=True).stdout


# Closed standard streams, and streams that can not be written


RAW = Publisher(now=NOW - 40 * 365 * DAY).campaign(lifetime=60 * 365 * DAY)
REPORTS = 20
NO_SPACE = (
    "output_failed: the output can not be written: No space left on device; what the command did before is not undone\n"
)


@pytest.fixture
def streams(tmp_path):
    """A streams with a campaign and a file of reports."""
    (tmp_path / "c.hsc").write_bytes(RAW)
    (tmp_path / "a.hsr").write_bytes(sealed(opened(RAW), honest(opened(RAW), REPORTS, NOW // DAY - 39 * 365, 0)))
    return tmp_path


def program(streams, line):
    """Run ``hearsay`` with the arguments and redirections of a shell's line."""
    command = f'"{sys.executable}" -m aggregator.entry {line}'
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(
        ["sh", "-c", command], cwd=streams, capture_output=True, text=True, check=False, env=environment
    )


def reports(streams):
    """Number of reports in the store."""
    return told("status", "--store", streams / "s")["reports"]


@pytest.mark.parametrize(
    ("line", "status", "said", "stored"),
    [
        ("show c.hsc >&-", 0, "", None),
        ("show c.hsc 2>&-", 0, "", None),
        ("show c.hsc <&-", 0, "", None),
        ("ingest c.hsc a.hsr --store s <&- >&- 2>&-", 0, "", REPORTS),
        ("ingest c.hsc - --store s <&-", 1, "unreadable: there is no report file; no store was made\n", None),
        ("ingest c.hsc a.hsr --store s > /dev/full", 5, NO_SPACE, REPORTS),
        ("ingest c.hsc a.hsr --store s --json 2> /dev/full", 0, "", REPORTS),
    ],
)  # fmt: skip
def test_a_closed_or_full_stream_is_no_error_of_a_command(streams, line, status, said, stored):
    if "full" in line and not Path("/dev/full").exists():
        pytest.skip("this system has no full device")
    done = program(streams, line)
    assert (done.returncode, done.stderr) == (status, said)
    assert (reports(streams) if stored else None) == stored
    if "--json" in line:
        assert json.loads(done.stdout)["accepted"] == REPORTS


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("show c.hsc", (1, "")),
        ("show c.hsc > /dev/full", (5, "output_failed")),
        ("show c.hsc >&-", (0, "")),
        ("ingest c.hsc - --store s <&- > said", (1, "unreadable")),
    ],
)
def test_output_that_nobody_takes_needs_no_null_device(streams, line, expected):
    """A container may have none that can be opened. Without a redirection the output goes into a closed pipe."""
    if "full" in line and not Path("/dev/full").exists():
        pytest.skip("this system has no full device")
    (streams / "program.py").write_text(
        "import os\nos.devnull = '/absent/null'\nfrom aggregator.entry import main\nmain()\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" program.py {line}'],
        cwd=streams, stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr.split(":")[0]) == expected
    assert done.stderr.count("\n") == bool(expected[1])


def test_no_file_gets_the_number_of_a_closed_stream(streams):
    """What is printed would be written into that file. The closed stream is an open descriptor before any import."""
    line = (
        "import os, sys; from aggregator.cli.streams import prepare_streams; prepare_streams(); "
        "print('printed'); os._exit(os.open('f', os.O_RDWR | os.O_CREAT))"
    )
    done = subprocess.run(["sh", "-c", f'"{sys.executable}" -c "{line}" <&- >&- 2>&-'], cwd=streams, check=False)
    assert done.returncode > 2
    assert (streams / "f").read_bytes() == b""
