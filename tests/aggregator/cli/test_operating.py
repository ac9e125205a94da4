"""``hearsay status``, ``export``, ``quarantine`` and closed fleets on the command line: one operator's week."""

from __future__ import annotations

import csv
import json
import shutil

import pandas as pd
import pytest
from nacl.pwhash import argon2id
from support.commands import run, told
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, opened, report

from aggregator.common import sealing
from aggregator.common.periods import begins
from aggregator.reports import fleet as rosters
from aggregator.reports.storage.manifest import read_manifest
from protocol.documents.provisioning import parse_provisioning

PUBLISHER = Publisher()
RAW = PUBLISHER.campaign(min_batch_size=20)
CAMPAIGN = opened(RAW)
PERIOD = CAMPAIGN.period_at(NOW)


@pytest.fixture(autouse=True)
def _now(monkeypatch):
    at(monkeypatch, NOW)
    cheap = sealing.Cost(1, argon2id.MEMLIMIT_MIN)
    monkeypatch.setattr(rosters.write_roster, "__kwdefaults__", {**rosters.write_roster.__kwdefaults__, "cost": cheap})
    monkeypatch.delenv("HEARSAY_PASSPHRASE_FILE", raising=False)


def at(monkeypatch, seconds):
    monkeypatch.setattr("time.time", lambda: seconds)


@pytest.fixture
def work(tmp_path):
    """A store with good, early, wrong and foreign pieces."""
    (tmp_path / "c.hsc").write_bytes(RAW)
    records = [report(CAMPAIGN, device, device, period=PERIOD + (device % 5 == 0)) for device in range(50)]
    bad = report(CAMPAIGN, 1)[:14] + b"\xff\xff\0\0"
    wrong = report(CAMPAIGN, 2)
    wrong = wrong[:14] + ((wrong[15] + 1) % 3).to_bytes(2, "big") + wrong[16:]
    (tmp_path / "a.hsr").write_bytes(batch(CAMPAIGN, records[:25]))
    (tmp_path / "b.hsr").write_bytes(batch(CAMPAIGN, [*records[25:], bad, wrong]) + b"foreign \x1b[2J bytes")
    run("ingest", tmp_path / "c.hsc", tmp_path / "a.hsr", tmp_path / "b.hsr", "--store", tmp_path / "s")
    return tmp_path


def test_status_says_what_is_there_and_what_is_needed(work):
    text = run("status", "--store", work / "s", "--interval", "0.02").stdout
    assert "reports" in text
    assert "20, reached" in text
    assert "set aside: report_too_early" in text
    assert f"{PERIOD}" in text
    assert "█" in text
    lines = text.splitlines()
    questions = lines[next(i for i, line in enumerate(lines) if line.startswith("question")) :]
    assert len(questions) == 4
    assert len({len(line) for line in questions}) == 1, "the columns align"
    found = told("status", "--store", work / "s", "--interval", "0.02")
    assert (found["reports"], found["min_batch_size_reached"], found["target"]) == (40, True, 0.02)
    assert found["periods"] == [{"period": PERIOD, "begins": begins(PERIOD, DAY), "reports": 40, "devices": 40}]
    assert found["devices_needed"] == max(question["devices_needed"] for question in found["questions"])
    other = told("status", "--store", work / "s", "--target-sd", "0.02")
    assert other["target"] == pytest.approx(0.0392, abs=1e-4)
    assert other["devices_needed"] < found["devices_needed"]


def test_many_days_are_summed_up(tmp_path, monkeypatch):
    (tmp_path / "c.hsc").write_bytes(RAW)
    at(monkeypatch, NOW + 99 * DAY)
    records = [report(CAMPAIGN, 1, period=PERIOD + day) for day in range(40)]
    (tmp_path / "a.hsr").write_bytes(batch(CAMPAIGN, records))
    run("ingest", tmp_path / "c.hsc", tmp_path / "a.hsr", "--store", tmp_path / "s")
    text = run("status", "--store", tmp_path / "s").stdout
    assert "earlier" in text
    assert f"{PERIOD}..{PERIOD + 8}" in text


@pytest.mark.parametrize(
    "options", [("--interval", "0"), ("--interval", "2"), ("--interval", "0.1", "--target-sd", "0.1")]
)
def test_targets_that_are_none_are_wrong_usage(work, options):
    assert run("status", "--store", work / "s", *options, status=2).stderr.startswith("usage: ")


def test_exports_are_what_was_counted(work):
    export = ("export", "--store", work / "s", "--format")
    run(*export, "csv", "-o", work / "o.csv")
    with (work / "o.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == 41
    found = told(*export, "parquet", "--periods", PERIOD, "--all", "--proven-only", "-o", work / "o.parquet")
    assert (found["reports"], len(pd.read_parquet(work / "o.parquet"))) == (40, 40)
    assert run(*export, "csv", "-o", work / "o.csv", status=1).stderr.startswith("output_exists: ")
    no_store = run("export", "--store", work, "--format", "csv", "-o", work / "p", status=1)
    assert no_store.stderr.startswith("not_a_store")
    assert run(*export, "xml", "-o", work / "p", status=2).stderr.startswith("usage")


def test_the_quarantine_is_listed_by_reason_and_file(work):
    text = run("quarantine", "ls", "--store", work / "s").stdout
    rows = [line.split() for line in text.splitlines()[1:]]
    assert [(row[0], row[1], row[3], row[4]) for row in rows] == [
        ("invalid_message", "b.hsr", "1", "18"),
        ("question_not_assigned", "b.hsr", "1", "18"),
        ("question_unknown", "b.hsr", "1", "18"),
        ("report_too_early", "a.hsr", "5", "90"),
        ("report_too_early", "b.hsr", "5", "90"),
    ]
    found = told("quarantine", "ls", "--store", work / "s", "--reason", "question_unknown")
    assert found["counted"]["report_too_early"] == 10
    (piece,) = found["kept"]
    assert (piece["reason"], piece["length"], piece["proven"]) == ("question_unknown", 18, True)


def test_a_piece_is_shown_with_what_it_says_and_why_it_was_set_aside_by_whatever_ls_prints(work):
    store = ("--store", work / "s")
    listed = told("quarantine", "ls", *store)["kept"]
    for piece in listed:
        text = run("quarantine", "show", piece["piece"], *store).stdout
        assert piece["reason"] in text
        assert f"{piece['offset']:08x}  {bytes.fromhex(piece['bytes'])[:16].hex(' ')}" in text
        assert "\x1b" not in text
        found = told("quarantine", "show", piece["piece"], *store)
        if piece["proven"] is not None:
            assert (found["id"], found["question"]) == (piece["bytes"][4:20], int(piece["bytes"][28:32], 16))
    words = {piece["reason"]: piece["piece"] for piece in listed}
    for reason, said in (("question_not_assigned", "is for ids from"), ("question_unknown", "3 questions")):
        assert said in run("quarantine", "show", words[reason], *store).stdout
    for line in run("quarantine", "ls", *store).stdout.splitlines()[1:]:
        _, file, identity, *_ = line.split()
        by_file = told("quarantine", "show", file, *store)
        assert by_file == told("quarantine", "show", identity, *store)
        assert len(by_file["pieces"]) == sum(one["identity"].startswith(identity) for one in listed)
        text = run("quarantine", "show", file, *store).stdout
        assert all(piece["why"] in " ".join(text.split()) for piece in by_file["pieces"])
    for name in ("", ":", "62", "ab:62", "zzzzzzzz:62", "00000000:62"):
        assert run("quarantine", "show", name, *store, status=1).stderr.startswith("piece_unknown: ")


def test_what_is_removed_is_gone_and_stays_counted(work, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(work / "s", copy)
    store = ["--store", copy]
    before = told("quarantine", "ls", *store)
    name = next(piece["piece"] for piece in before["kept"] if piece["reason"] == "invalid_message")
    for arguments, removed in (
        ([name, name], 1),
        (["b.hsr", "--reason", "question_unknown"], 1),
        (["a.hsr", name.split(":")[0]], 5 + 6),
        (["--all"], 0),
    ):
        removal = told("quarantine", "rm", *arguments, *store)
        assert removal == {"removed": removed}, arguments
    after = told("quarantine", "ls", *store)
    assert (after["counted"], after["kept"]) == (before["counted"], [])
    assert list((copy / "quarantine").iterdir()) == []
    assert run("quarantine", "rm", name, *store, status=1).stderr.startswith("piece_unknown: ")
    assert run("quarantine", "rm", *store, status=2).stderr.startswith("usage")
    again = told("quarantine", "retry", *store)
    assert again["tried"] == 0


def test_what_was_too_early_is_added_later(work, monkeypatch):
    assert "report_too_early" in run("estimate", "--store", work / "s").stdout
    at(monkeypatch, NOW + DAY)
    text = run("quarantine", "retry", "--store", work / "s").stdout
    assert dict(line.rsplit(maxsplit=1) for line in text.splitlines()) == {
        "pieces": "13",
        "reports added": "10",
        "of them from damaged files": "0",
        "left: a rule refuses it still": "2",
        "left: it is no record of this campaign": "1",
    }
    again = told("quarantine", "retry", "--store", work / "s", "--reason", "report_too_early")
    assert again == {"tried": 0, "proven": 0, "unproven": 0, "repeated": 0, "left": {}}
    assert told("estimate", "--store", work / "s")["reports"] == 50


def fleet_of(folder, number):
    """Make a closed fleet in the folder ``f``: options that name its list, and the secrets of its devices."""
    (folder / "names.txt").write_text("".join(f"device {each}\n" for each in range(number)))
    (folder / "secret").write_text("horse")
    key = ("--passphrase-file", folder / "secret")
    run("fleet", "new", folder / "names.txt", "-o", folder / "f", *key)
    devices = sorted((folder / "f" / "devices").iterdir())
    secrets = [parse_provisioning(path.read_bytes()).secret for path in devices]
    return ("--fleet", folder / "f" / "fleet.hsf", *key), secrets


def test_a_closed_fleet_counts_its_own_devices_alone(tmp_path):
    (tmp_path / "c.hsc").write_bytes(RAW)
    listed, secrets = fleet_of(tmp_path, 30)
    run("fleet", "ids", tmp_path / "c.hsc", "--periods", PERIOD, *listed, "-o", tmp_path / "i")
    own = [report(CAMPAIGN, 0, period=PERIOD, secret=secret) for secret in secrets]
    (tmp_path / "a.hsr").write_bytes(batch(CAMPAIGN, [*own, *(report(CAMPAIGN, d) for d in range(99))]))
    tallies = []
    for name, options in (("s", ("--enrolled", tmp_path / "i")), ("t", listed)):
        ingest = ("ingest", tmp_path / "c.hsc", tmp_path / "a.hsr", "--store", tmp_path / name)
        found = told(*ingest, *options)
        assert (found["proven"], found["rejected"]) == (30, {"id_not_enrolled": 99})
        tallies.append(told("estimate", "--store", tmp_path / name)["statistics_id"])
        assert run(*ingest, status=1).stderr.startswith("enrolment_needed: ")
    assert tallies[0] == tallies[1]
    run("fleet", "ids", tmp_path / "c.hsc", "--periods", PERIOD + 1, *listed, "-o", tmp_path / "j")
    narrow = run(*ingest[:-1], tmp_path / "u", "--enrolled", tmp_path / "j", "--json")
    assert f"not for period {PERIOD}" in narrow.stderr
    assert json.loads(narrow.stdout)["rejected"] == {"id_not_enrolled": 129}
    wide = run(*ingest[:-1], tmp_path / "u", "--enrolled", tmp_path / "i", "--json")
    assert "not for period" not in wide.stderr
    assert json.loads(wide.stdout)["proven"] == 30
    assert told("estimate", "--store", tmp_path / "u")["statistics_id"] == tallies[0]
    both = run(*ingest, "--enrolled", tmp_path / "i", *listed, status=1)
    assert both.stderr.startswith("enrolment_ambiguous: ")
    wrong = run(*ingest, "--enrolled", tmp_path / "c.hsc", status=1)
    assert wrong.stderr.startswith("ids_invalid: ")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """150 reports of three periods in whole files, and 30 of the last in a cut one."""
    monkeypatch.setattr("time.time", lambda: NOW + 2 * DAY)
    (tmp_path / "c.hsc").write_bytes(RAW)
    whole = [report(CAMPAIGN, device, device, period=PERIOD + device % 3) for device in range(150)]
    cut = [report(CAMPAIGN, device, device, period=PERIOD + 2) for device in range(200, 230)]
    (tmp_path / "a.hsr").write_bytes(batch(CAMPAIGN, whole))
    (tmp_path / "b.hsr").write_bytes(batch(CAMPAIGN, cut)[:-44])
    files = [tmp_path / "c.hsc", tmp_path / "a.hsr", tmp_path / "b.hsr"]
    run("ingest", *files, "--store", tmp_path / "s", "--buckets", "4")
    assert read_manifest(tmp_path / "s").buckets == 4
    return tmp_path / "s"


def estimated(store, *options):
    found = json.loads(run("estimate", "--store", store, "--json", *options).output)
    return found["reports"], found["unproven"], found["statistics_id"]


CASES = [
    ([], 180, 30),
    (["--proven-only"], 150, 0),
    (["--periods", f"{begins(PERIOD, DAY)}..{begins(PERIOD + 1, DAY)}"], 100, 0),
    (["--periods", f"{PERIOD + 2}"], 80, 30),
    (["--periods", f"{PERIOD + 2}..", "--proven-only", "--memory", "64MiB"], 50, 0),
]


def test_estimates_of_periods_are_the_same_before_and_after_forgetting(store):
    before = [estimated(store, *options) for options, _, _ in CASES]
    assert [found[:2] for found in before] == [(reports, unproven) for _, reports, unproven in CASES]
    removal = told("forget", "--store", store, "--before", PERIOD + 1)
    assert removal == {"before": PERIOD + 1, "removed": 50, "kept": 130}
    assert [estimated(store, *options) for options, _, _ in CASES] == before
    assert run("forget", "--store", store, "--before", begins(PERIOD + 2, DAY)).output.splitlines() == [
        f"periods forgotten before  {PERIOD + 2} ({begins(PERIOD + 2, DAY)})",
        "reports removed           50",
        "reports kept              80",
    ]
    assert [estimated(store, *options) for options, _, _ in CASES] == before
    late = store.parent / "late.hsr"
    late.write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, 999, period=PERIOD)]))
    found = told("ingest", store.parent / "c.hsc", late, "--store", store)
    assert found["rejected"] == {"period_forgotten": 1}


def test_too_few_reports_in_the_periods_are_too_few(store, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW + 3 * DAY)
    sparse = store.parent / "sparse.hsr"
    sparse.write_bytes(batch(CAMPAIGN, [report(CAMPAIGN, device, period=PERIOD + 3) for device in range(19)]))
    run("ingest", store.parent / "c.hsc", sparse, "--store", store)
    assert estimated(store)[0] == 199
    refused = run("estimate", "--store", store, "--periods", PERIOD + 3, status=1)
    assert refused.stderr.startswith("batch_too_small: usable reports so far: 19; ")


@pytest.mark.parametrize(
    ("line", "start"),
    [
        (f"forget --store s --before {PERIOD + 3}", "period_not_over: "),
        ("ingest c.hsc a.hsr --store new --buckets 3", "buckets_invalid: "),
        *((f"estimate --store s {wrong}", "usage: ")
          for wrong in ("--periods 9..1", "--periods 2026-11-31", "--periods x", "--memory 1", "--memory lots")),
    ],
)  # fmt: skip
def test_refusals(store, monkeypatch, line, start):
    monkeypatch.chdir(store.parent)
    assert run(*line.split(), status=2 if start == "usage: " else 1).stderr.startswith(start)


# ``hearsay evaluate show --fleet`` with several models: how often each device answered is known, not bounded


MODELS = {name: PUBLISHER.model(name=name) for name in ("all", "top-2", "top-1")}
COMPARISON = PUBLISHER.sign("campaign", PUBLISHER.comparison_payload(MODELS, 2_000_000))
COMPARED = opened(COMPARISON)
PEOPLE = 60


def answer(secret, period):
    """A device's report about its model."""
    return report(COMPARED, 0, 1, period=period, secret=secret)


def shown(work, name, listed, reports):
    """What ``evaluate show`` says of these reports, without the fleet's list and with it."""
    (work / f"{name}.hsr").write_bytes(batch(COMPARED, reports))
    run("ingest", work / "c.hsc", work / f"{name}.hsr", "--store", work / name)
    return [told("evaluate", "show", "--store", work / name, *more) for more in ((), listed)]


def of_population(found):
    """Widths of the models' intervals for the population."""
    return [one["accuracy"]["high"] - one["accuracy"]["low"] for one in found["models"]]


def test_the_list_tells_devices_that_answer_once_from_those_that_answer_twice(tmp_path, monkeypatch):
    """60 answers over two periods. Only the list shows whether 60 devices gave them, or 30."""
    at(monkeypatch, NOW + DAY)
    (tmp_path / "c.hsc").write_bytes(COMPARISON)
    (listed, secrets), half = fleet_of(tmp_path, PEOPLE), PEOPLE // 2
    halves = [answer(secret, PERIOD + (number >= half)) for number, secret in enumerate(secrets)]
    twice = [answer(secret, PERIOD + period) for secret in secrets[:half] for period in (0, 1)]
    bounded, known = shown(tmp_path, "halves", listed, halves)
    assert bounded["populations"]["basis"] != known["populations"]["basis"]
    assert known["populations"]["effective_devices"] == [PEOPLE]
    assert bounded["populations"]["effective_devices"] == [half]
    assert [one["answers"] for one in known["models"]] == [one["answers"] for one in bounded["models"]]
    assert all(one < other for one, other in zip(of_population(known), of_population(bounded), strict=True))
    bounded, known = shown(tmp_path, "twice", listed, twice)
    assert known["populations"]["effective_devices"] == bounded["populations"]["effective_devices"] == [half]
    assert of_population(known) == pytest.approx(of_population(bounded))
    (tmp_path / "a.hsr").write_bytes(batch(COMPARED, [answer(bytes(32), PERIOD), *halves]))
    run("ingest", tmp_path / "c.hsc", tmp_path / "a.hsr", "--store", tmp_path / "s")
    show = ("evaluate", "show", "--store", tmp_path / "s")
    assert len(told(*show)["models"]) == len(MODELS)
    assert run(*show, *listed, status=1).stderr.startswith("fleet_incomplete: ")
