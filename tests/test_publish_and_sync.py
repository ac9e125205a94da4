"""From ``hearsay publish --to`` over a web server to ``hearsay-edge sync``, and back into a store."""

from __future__ import annotations

import json

from support.commands import edge, mushrooms, run
from support.servers import tree_server

SCHEMA = mushrooms(name="odd/name ü", label="label", missing="a")


def told(*arguments):
    status, out, errors = edge(*arguments)
    assert (status, errors) == (0, "")
    return json.loads(out)


def test_there_and_back(tmp_path):
    work, tree, state = tmp_path / "work", tmp_path / "tree", tmp_path / "state"
    (tmp_path / "s.toml").write_text(SCHEMA, "utf-8")
    run("init", work, "--no-passphrase")
    campaign = tmp_path / "c.hsc"
    terms = ("--epsilon", "2", "--mechanism", "direct")
    run("campaign", tmp_path / "s.toml", "--workspace", work, *terms, "-o", campaign)
    told("--state", state, "provision", work / "root.hst", "--json")
    run("trust", "rotate", "model", "--workspace", work)
    run("publish", "--to", tree, "--workspace", work)
    (tmp_path / "record.json").write_text('{"odor": "n", "label": "e"}')
    with tree_server(tree) as (url, _):
        begun = told("--state", state, "sync", url, "--campaign", "odd/name ü", "--json")
        assert (begun["root_version"], begun["campaigns"]) == (2, [{"name": "odd/name ü", "version": 1}])
        told("--state", state, "report", "--campaign", "odd/name ü", tmp_path / "record.json", "--json")
        assert told("--state", state, "sync", url, "--json")["released"] == 1
    (sent,) = (tree / "reports").glob("*.hsr")
    run("ingest", campaign, sent, "--store", tmp_path / "store")
    assert json.loads(run("estimate", "--store", tmp_path / "store", "--json").stdout)["reports"] == 1
