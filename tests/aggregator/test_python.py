"""What Python is given is what the commands write, byte for byte, from the schema to the model that is evaluated."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from support.commands import mushrooms, run, told
from support.failures import reason_of, refusal
from support.publisher import NOW, Publisher
from support.reports import batch, report

import aggregator
from aggregator.common import sealing
from aggregator.common.files import write_output
from aggregator.common.spreadsheets import csv_text
from aggregator.models.published import published
from aggregator.publishing import keys
from protocol.errors import HearsayError, InputError

SCHEMA = Publisher().schema
TEXT = mushrooms(label="label", bins=2)


@pytest.fixture
def twins(tmp_path, monkeypatch):
    """Two workspaces with the same keys and the same present: one for commands, one for Python."""
    monkeypatch.setattr("time.time", lambda: NOW)
    aggregator.create_workspace(tmp_path / "cli", name="w", now=NOW)
    shutil.copytree(tmp_path / "cli", tmp_path / "api")
    (tmp_path / "s.toml").write_text(TEXT)
    return tmp_path


CAMPAIGNS = [
    (["--epsilon", "1", "--mechanism", "direct"], {"epsilon": 1, "mechanism": "direct"}),
    (
        ["--epsilon", "2.5", "--mechanism", "auto", "--answers", "2", "--name", "m", "--period", "12h", "--days", "7"],
        {"epsilon": 2.5, "mechanism": "auto", "answers": 2, "name": "m", "period": "12h", "days": 7},
    ),
    (
        ["--epsilon", "1", "--mechanism", "the", "--theta", "0.4", "--min-batch-size", "9", "--purpose", "why"],
        {"epsilon": "1", "mechanism": "the", "theta": "0.4", "min_batch_size": 9, "purpose": "why"},
    ),
    (
        ["--epsilon", "1", "--family", "gaussian", "--mechanism", "bits", "--split", "1:2:2"],
        {"epsilon": 1.0, "family": "gaussian", "mechanism": "bits", "split": "1:2:2"},
    ),
    (
        ["--epsilon", "1", "--mechanism", "oue", "--series", "rollout", "--share", "0:0.01"],
        {"epsilon": 1, "mechanism": "oue", "series": "rollout", "share": "0:0.01"},
    ),
]


@pytest.mark.parametrize(("options", "terms"), CAMPAIGNS)
def test_a_campaign_is_that_of_the_command(twins, options, terms):
    run("campaign", twins / "s.toml", "--workspace", twins / "cli", *options, "-o", twins / "c.hsc")
    made = aggregator.make_campaign(twins / "api", twins / "s.toml", **terms)
    assert made.raw == (twins / "c.hsc").read_bytes()
    made.save(twins / "d.hsc")
    assert (twins / "d.hsc").read_bytes() == made.raw
    assert made.standing.complete


def test_a_whole_round_is_that_of_the_commands(twins):
    made = aggregator.make_campaign(twins / "api", twins / "s.toml", epsilon=4, mechanism="direct", now=NOW)
    run("campaign", twins / "s.toml", "--workspace", twins / "cli", "--epsilon", "4", "--mechanism", "direct",
        "-o", twins / "c.hsc")  # fmt: skip
    campaign = made.campaign
    first = campaign.period_at(NOW)
    (twins / "a.hsr").write_bytes(batch(campaign, [report(campaign, n, n % 4, period=first) for n in range(300)]))
    (twins / "b.hsr").write_bytes(batch(campaign, [report(campaign, 7, 3, period=first)])[:-9])
    files = [twins / "a.hsr", twins / "b.hsr"]

    said = run("ingest", twins / "c.hsc", *files, "--store", twins / "s1", "--workspace", twins / "cli", "--json")
    summary = aggregator.ingest("mushrooms", files, twins / "s2", workspace=twins / "api")
    assert json.loads(said.stdout)["accepted"] == summary.accepted
    for name in ("manifest.json", "campaign.hsc"):
        assert (twins / "s1" / name).read_bytes() == (twins / "s2" / name).read_bytes()
    shown = run("estimate", "--store", twins / "s1", "--periods", f"{first}", "--proven-only", "--json")
    counted = aggregator.count(twins / "s2", f"{first}", proven_only=True)
    assert json.loads(shown.stdout) == json.loads(json.dumps(counted.to_json(published(counted))))
    assert run("estimate", "--store", twins / "s1", "--csv").stdout == csv_text(
        aggregator.open_store(twins / "s2").estimates()
    )

    run("publish", "--store", twins / "s1", "--workspace", twins / "cli", "-o", twins / "m.hsm", "--days", "9")
    model = aggregator.make_model(twins / "api", twins / "s2", days=9)
    assert model.raw == (twins / "m.hsm").read_bytes()
    assert model.model.predict(aggregator.read_table(_data(twins))).tolist() == [
        *told("predict", twins / "m.hsm", _data(twins))["predicted"]
    ]
    run("evaluate", "ask", twins / "m.hsm", "--workspace", twins / "cli", "--epsilon", "2", "--series", "quality",
        "-o", twins / "e.hsc")  # fmt: skip
    asked = aggregator.make_evaluation(twins / "api", "mushrooms", epsilon=2, series="quality")
    assert asked.raw == (twins / "e.hsc").read_bytes()
    answers = [report(asked.campaign, n, 0, period=first) for n in range(50)]
    (twins / "o.hsr").write_bytes(batch(asked.campaign, answers))
    aggregator.ingest(asked.raw, [twins / "o.hsr"], twins / "s3", trust=twins / "api" / "root.hst")
    shown = told("evaluate", "show", "--store", twins / "s3")
    found = aggregator.evaluate(twins / "s3")
    assert (shown["reports"], shown["accuracy"]["estimate"]) == (found.reports, found.accuracy.estimate)
    assert [each["share"] for each in shown["confusion"]] == [cell.share for cell in found.confusion]
    printed = run("evaluate", "show", "--store", twins / "s3").stdout
    assert min(each["share"] for each in shown["confusion"]) < 0 < 1 < shown["accuracy"]["estimate"]
    assert all(0 <= float(share) <= 100 for share in re.findall(r"(\S+)%", printed))

    run("campaign", "--end", "mushrooms", "--workspace", twins / "cli", "-o", twins / "end.hsc")
    assert aggregator.end_campaign(twins / "api", "mushrooms").raw == (twins / "end.hsc").read_bytes()
    for workspace, folder in (("cli", "t1"), ("api", "t2")):
        if workspace == "cli":
            run("publish", "--to", twins / folder, "--workspace", twins / workspace)
        else:
            aggregator.publish_tree(aggregator.open_workspace(twins / workspace), twins / folder)
    files = [path.relative_to(twins / "t1") for path in (twins / "t1").rglob("*.hs?")]
    assert len(files) >= 4
    assert all((twins / "t1" / name).read_bytes() == (twins / "t2" / name).read_bytes() for name in files)


def _data(folder):
    path = folder / "d.csv"
    path.write_text("odor,width\nn,3\nf,9\n,?\n")
    return path


def test_refusals_are_those_of_the_commands(twins):
    made = aggregator.make_campaign(twins / "api", twins / "s.toml", epsilon=1, mechanism="direct")
    other = aggregator.create_workspace(twins / "other", name="o", now=NOW)
    for why, function, *arguments, options in (
        ("name_invalid", aggregator.make_campaign, other, SCHEMA, {"epsilon": 1, "mechanism": "direct"}),
        ("trust_ambiguous", aggregator.ingest, made.raw, [], twins / "s", {"workspace": other, "trust": b""}),
        ("campaign_unknown", aggregator.ingest, "absent", [], twins / "s", {"workspace": other}),
        ("unreadable", aggregator.ingest, made.raw, [twins / "absent"], twins / "s", {}),
        ("bad_signature", aggregator.ingest, made.raw, [], twins / "s", {"workspace": other}),
    ):
        assert reason_of(HearsayError, function, *arguments, **options) == why
    assert not (twins / "s").exists()
    named = aggregator.make_campaign(twins / "api", SCHEMA, name="m", epsilon=1, mechanism="direct")
    assert (named.campaign.header.name, "Campaign" in named._repr_html_()) == ("m", True)


def test_a_passphrase_is_given_as_text_as_bytes_by_a_function_or_by_a_file_that_the_environment_names(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(keys, "COST", sealing.Cost(1, 8192))
    monkeypatch.delenv("HEARSAY_PASSPHRASE_FILE", raising=False)
    aggregator.create_workspace(tmp_path / "w", name="w", now=NOW, passphrase="pässword")

    def makes(**options):
        work = aggregator.open_workspace(tmp_path / "w", **options) if options else tmp_path / "w"
        made = aggregator.make_campaign(work, SCHEMA, name="m", epsilon=1, mechanism="direct", now=NOW)
        return made.campaign.header.name

    for given in ("pässword", "pässword".encode(), "pässword".encode):
        assert makes(passphrase=given) == "m"
    with pytest.raises(InputError, match=r"^passphrase_missing: .*HEARSAY_PASSPHRASE_FILE"):
        makes()
    assert reason_of(InputError, makes, passphrase="password") == "passphrase_wrong"
    (tmp_path / "p").write_text("pässword\nmore\n", "utf-8")
    monkeypatch.setenv("HEARSAY_PASSPHRASE_FILE", str(tmp_path / "p"))
    assert makes() == "m"
    (tmp_path / "p").write_text("\n")
    assert reason_of(InputError, makes) == "passphrase_missing"


def test_paths_do_where_open_things_do_and_wrong_arguments_are_named(twins):
    made = aggregator.make_campaign(twins / "api", twins / "s.toml", epsilon=1, mechanism="direct", now=NOW)
    for days in (0, 1.5, -3):
        with pytest.raises(InputError, match=r"^terms_invalid: days is a whole number"):
            aggregator.make_campaign(twins / "api", twins / "s.toml", epsilon=1, mechanism="direct", days=days)
    (twins / "in").mkdir()
    (twins / "in" / "a.hsr").write_bytes(batch(made.campaign, [report(made.campaign, 1, 0)]))
    store = str(twins / "store")
    aggregator.ingest(made.raw, str(twins / "in"), store, now=NOW)
    assert aggregator.status(store).reports == 1
    assert aggregator.export(store, str(twins / "x.parquet"), "parquet").reports == 1
    with pytest.raises(InputError, match=r"^argument_invalid: the format"):
        aggregator.export(store, twins / "y.txt", "txt")
    made.save(twins / "c.hsc")
    with pytest.raises(InputError, match="force=True"):
        made.save(twins / "c.hsc")
    assert repr(made) == f"SignedCampaign('mushrooms', version 1, {len(made.raw)} bytes)"
    assert len(repr(aggregator.count(store))) < 100
    with pytest.raises(InputError, match="argument_invalid: periods are given as text"):
        aggregator.count(store, periods=5)
    model = aggregator.make_model(twins / "api", store)
    with pytest.raises(InputError, match=r"as a pandas DataFrame, not as fractions\.Fraction"):
        model.model.predict(Fraction(1))
    assert "expected accuracy not known yet; largest class 75.0%" in repr(model)
    assert repr(model).endswith("; see expected.warning)")
    assert "it can not be told yet" in model.expected.warning
    assert "it can not be told yet" in model._repr_html_()


def test_what_is_said_about_a_campaign_is_what_the_commands_say(twins):
    made = aggregator.make_campaign(twins / "api", twins / "s.toml", epsilon=1, mechanism="oue", now=NOW)
    made.save(twins / "c.hsc")
    root = twins / "api" / "root.hst"
    sheet = aggregator.guarantee_sheet(twins / "c.hsc", devices=5000, shuffled=True, liars=[0.2])
    said = told("guarantee", twins / "c.hsc", "--devices", "5000", "--shuffled", "--liars", "0.2")
    assert said == json.loads(json.dumps(sheet.to_json()))
    assert aggregator.guarantee_sheet("mushrooms", workspace=twins / "api").campaign.id == made.campaign.id
    for wrong in ({"records": 5}, {"delta": 2}):
        assert reason_of(InputError, aggregator.guarantee_sheet, made.raw, **wrong) == "argument_invalid"
    for file, role, version in ((twins / "c.hsc", "campaign", 1), (root, "root", 1)):
        found = aggregator.verify(file, root, now=NOW)
        said = told("verify", file, "--trust", root)
        assert (found.role, found.header.version, found.root_version) == (role, version, said["root_version"])
        assert (said["name"], said["expires"]) == (found.header.name, found.header.expires)
        assert said["signatures"] == json.loads(json.dumps(found.standing.to_output(as_json=True)))
    other = aggregator.create_workspace(twins / "other", name="o", now=NOW)
    for file, trusted, now, why in (
        (made.raw, root, made.campaign.header.expires, "expired"),
        (made.raw, other.root_bytes, NOW, "bad_signature"),
        (twins / "s.toml", root, NOW, "unknown_file"),
    ):
        assert reason_of(HearsayError, aggregator.verify, file, trusted, now=now) == why


def test_a_root_is_changed_and_followed(twins):
    work = aggregator.open_workspace(twins / "api")
    made = aggregator.make_campaign(work, twins / "s.toml", epsilon=1, mechanism="direct", now=NOW)
    changed = aggregator.change_root(work, aggregator.RootChange("campaign", fresh=1, threshold=2), NOW, 10**7)
    assert changed.in_force
    newer = aggregator.open_workspace(work.path)
    assert refusal(aggregator.verify, made.raw, work.root_bytes, newer=[newer.root_bytes], now=NOW) == "bad_signature"
    ((item, standing),) = aggregator.resign(newer, NOW)
    assert standing.complete
    copy = newer.copy(item)
    assert aggregator.verify(copy, work.root_bytes, newer=[newer.root_bytes], now=NOW).root_version == 2
    assert aggregator.gather_copies(newer, "campaign", [copy]) == (item, standing)


def test_a_closed_fleet_and_a_quarantine_without_commands(twins):
    fleet = aggregator.new_fleet("orchard", ["gate 7", "barn"])
    aggregator.write_fleet(str(twins / "one"), fleet, b"horse", cost=sealing.Cost(1, 8192))
    assert aggregator.read_fleet(str(twins / "one" / "fleet.hsf"), b"horse") == fleet
    made = aggregator.make_campaign(twins / "api", twins / "s.toml", epsilon=1, mechanism="direct", now=NOW)
    period = made.campaign.period_at(NOW)
    early = [report(made.campaign, 1, period=period + 1), report(made.campaign, 2, period=period)]
    (twins / "r.hsr").write_bytes(batch(made.campaign, early))
    aggregator.ingest(made.raw, [twins / "r.hsr"], twins / "store", now=NOW)
    store = aggregator.open_store(twins / "store")
    ((file, piece),) = [(kept.file, piece) for kept in store.quarantined() for piece in kept.pieces]
    listed = told("quarantine", "ls", "--store", twins / "store")["kept"]
    assert [(each["file"], each["reason"], each["offset"]) for each in listed] == [(file, piece.reason, piece.offset)]
    assert store.conflicts([fleet]) == []
    again = aggregator.retry_quarantine(store, now=NOW + made.campaign.time_precision)
    assert (again.tried, again.proven, store.quarantined()) == (1, 1, [])


def test_a_path_with_a_zero_byte_is_refused_with_a_reason(tmp_path):
    bad = str(tmp_path / "a\0b")
    raw, root = Publisher().campaign(), Publisher().root()
    unread = {"file_not_found", "unreadable"}
    for reasons, function, *arguments in (
        (unread, aggregator.load_schema, bad),
        (unread, aggregator.read_table, bad),
        (unread, aggregator.Model.load, bad, root),
        (unread, aggregator.Model.load, "m.hsm", bad),
        (unread, aggregator.ingest, bad, ["a.hsr"], tmp_path / "store"),
        (unread, aggregator.ingest, raw, [bad], tmp_path / "store"),
        (unread, aggregator.merge_files, [bad], tmp_path / "out"),
        (unread, aggregator.guarantee_sheet, bad),
        (unread, aggregator.verify, bad, root),
        (unread, aggregator.verify, raw, bad),
        (unread, aggregator.read_fleet, bad, b""),
        ({"output_invalid"}, aggregator.merge_files, [], Path(bad)),
        ({"output_invalid"}, partial(aggregator.create_workspace, bad, name="w", now=NOW)),
        ({"output_invalid"}, aggregator.write_fleet, bad, aggregator.new_fleet("f", ["a"]), None),
        ({"output_invalid"}, partial(write_output, Path(bad), b"", force=True)),
        ({"not_a_workspace"}, aggregator.open_workspace, bad),
        ({"store_not_folder"}, aggregator.open_store, bad),
        ({"store_not_folder"}, aggregator.count, bad),
    ):
        assert reason_of(HearsayError, function, *arguments) in reasons


# The names that ``import aggregator`` offers


def test_the_package_shows_its_public_names_and_no_more():
    assert dir(aggregator) == sorted(aggregator.__all__)
    names = [name for held in aggregator._HOMES.values() for name in held]
    assert sorted(names) == sorted(aggregator.__all__)
    for name in aggregator.__all__:
        found = getattr(aggregator, name)
        assert found.__doc__, name
        assert found.__module__.startswith("aggregator."), name
    with pytest.raises(AttributeError, match="'pandas'"):
        aggregator.pandas  # noqa: B018


def test_importing_it_loads_no_heavy_library():
    code = "import sys, aggregator; print(sorted({'numpy', 'pandas', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
