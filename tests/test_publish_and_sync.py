"""From ``hearsay publish --to`` over a web server to ``hearsay-edge sync``, and back into a store."""

from __future__ import annotations

import json

from click.testing import CliRunner
from support.servers import tree_server

from aggregator.cli.app import hearsay
from edge_sdk.cli.main import main

SCHEMA = """
name = "odd/name ü"
[label]
name = "label"
classes = ["e", "p"]
[[features]]
name = "odor"
kind = "categorical"
values = ["a", "n", "f"]
missing = "a"
"""


def run(*arguments):
    result = CliRunner().invoke(hearsay, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def edge(capsys, *arguments):
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    return json.loads(printed.out)


def test_there_and_back(tmp_path, capsys):
    work, tree, state = tmp_path / "work", tmp_path / "tree", tmp_path / "state"
    (tmp_path / "s.toml").write_text(SCHEMA, "utf-8")
    run("init", work, "--no-passphrase")
    campaign = tmp_path / "c.hsc"
    terms = ("--epsilon", "2", "--mechanism", "direct")
    run("campaign", tmp_path / "s.toml", "--workspace", work, *terms, "-o", campaign)
    edge(capsys, "--state", state, "provision", work / "root.hst", "--json")
    run("trust", "rotate", "model", "--workspace", work)
    run("publish", "--to", tree, "--workspace", work)
    (tmp_path / "record.json").write_text('{"odor": "n", "label": "e"}')
    with tree_server(tree) as (url, _):
        begun = edge(capsys, "--state", state, "sync", url, "--campaign", "odd/name ü", "--json")
        assert (begun["root_version"], begun["campaigns"]) == (2, [{"name": "odd/name ü", "version": 1}])
        edge(capsys, "--state", state, "report", "--campaign", "odd/name ü", tmp_path / "record.json", "--json")
        assert edge(capsys, "--state", state, "sync", url, "--json")["released"] == 1
    (sent,) = (tree / "reports").glob("*.hsr")
    run("ingest", campaign, sent, "--store", tmp_path / "store")
    assert json.loads(run("estimate", "--store", tmp_path / "store", "--json"))["reports"] == 1
