"""``hearsay evaluate show --fleet`` with several models: how often each device answered is known, not bounded."""

from __future__ import annotations

import pytest
from nacl.pwhash import argon2id
from support.commands import run, told
from support.publisher import NOW, Publisher
from support.reports import batch, opened, report

from aggregator.common import sealing
from aggregator.reports import fleet as rosters
from protocol.documents.provisioning import parse_provisioning

PUBLISHER = Publisher()
NAMES = ("all", "top-2", "top-1")
RAW = PUBLISHER.sign(
    "campaign", PUBLISHER.comparison_payload({name: PUBLISHER.model(name=name) for name in NAMES}, 2_000_000)
)
CAMPAIGN = opened(RAW)
FIRST = CAMPAIGN.period_at(NOW)
PEOPLE = 60


def answer(secret, period):
    """A device's report about its model."""
    return report(CAMPAIGN, 0, 1, period=period, secret=secret)


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """A closed fleet with its list; the secrets of its devices."""
    monkeypatch.setattr("time.time", lambda: NOW + 86_400)
    cheap = sealing.Cost(1, argon2id.MEMLIMIT_MIN)
    monkeypatch.setattr(rosters.write_roster, "__kwdefaults__", {**rosters.write_roster.__kwdefaults__, "cost": cheap})
    (tmp_path / "c.hsc").write_bytes(RAW)
    (tmp_path / "names.txt").write_text("".join(f"device {number}\n" for number in range(PEOPLE)))
    (tmp_path / "secret").write_text("horse")
    run("fleet", "new", tmp_path / "names.txt", "-o", tmp_path / "f", "--passphrase-file", tmp_path / "secret")
    devices = sorted((tmp_path / "f" / "devices").iterdir())
    return tmp_path, [parse_provisioning(path.read_bytes()).secret for path in devices]


def shown(work, name, reports):
    """What ``evaluate show`` says of these reports, without the fleet's list and with it."""
    listed = ("--fleet", work / "f" / "fleet.hsf", "--passphrase-file", work / "secret")
    (work / f"{name}.hsr").write_bytes(batch(CAMPAIGN, reports))
    run("ingest", work / "c.hsc", work / f"{name}.hsr", "--store", work / name)
    show = ("evaluate", "show", "--store", work / name)
    return [told(*show, *more) for more in ((), listed)]


def of_population(found):
    """Widths of the models' intervals for the population."""
    return [one["accuracy"]["high"] - one["accuracy"]["low"] for one in found["models"]]


def test_the_list_tells_devices_that_answer_once_from_those_that_answer_twice(fleet):
    """60 answers over two periods. Only the list shows whether 60 devices gave them, or 30."""
    work, secrets = fleet
    half = PEOPLE // 2
    halves = [answer(secret, FIRST + (number >= half)) for number, secret in enumerate(secrets)]
    twice = [answer(secret, FIRST + period) for secret in secrets[:half] for period in (0, 1)]
    bounded, known = shown(work, "halves", halves)
    assert bounded["populations"]["basis"] != known["populations"]["basis"]
    assert known["populations"]["effective_devices"] == [PEOPLE]
    assert bounded["populations"]["effective_devices"] == [half]
    assert [one["answers"] for one in known["models"]] == [one["answers"] for one in bounded["models"]]
    assert all(one < other for one, other in zip(of_population(known), of_population(bounded), strict=True))
    bounded, known = shown(work, "twice", twice)
    assert known["populations"]["effective_devices"] == bounded["populations"]["effective_devices"] == [half]
    assert of_population(known) == pytest.approx(of_population(bounded))
    (work / "a.hsr").write_bytes(batch(CAMPAIGN, [answer(bytes(32), FIRST), *halves]))
    run("ingest", work / "c.hsc", work / "a.hsr", "--store", work / "s")
    show = ("evaluate", "show", "--store", work / "s")
    assert len(told(*show)["models"]) == len(NAMES)
    refused = run(*show, "--fleet", work / "f" / "fleet.hsf", "--passphrase-file", work / "secret", status=1)
    assert refused.stderr.startswith("fleet_incomplete: ")
