"""The guarantee sheet: when shuffling counts, what a device spends, and the printed page."""

from __future__ import annotations

import json

import pytest
from support.commands import invoke
from support.failures import reason_of
from support.publisher import DAY, NOW, Publisher

from aggregator.cards.guarantee import guarantee_sheet, spending
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from protocol import canonical
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.errors import InputError
from protocol.features import Categorical
from protocol.schema import Label, build_schema

SCHEMA = build_schema(Label("label", ["a", "b"]), [Categorical("x", ["u", "v"]), Categorical("y", ["u", "v", "w"])])
REFUSING = build_schema(Label("label", ["a", "b"]), [Categorical("x", ["u", "v"], unlisted="refuse")])


def payload(mechanism="oue", epsilon_micro=1_000_000, answers=1, schema=SCHEMA, **more):
    parameters = CampaignParameters("c", epsilon_micro, mechanism, answers, postprocess="simplex", **more)
    return build_campaign(schema, parameters, 1, NOW)


def test_a_central_epsilon_is_stated_only_for_shuffled_reports_of_enough_devices():
    alone = guarantee_sheet(payload()).central
    assert len(alone.obstacles) == 2
    assert alone.epsilon is None
    assert "--shuffled" in guarantee_sheet(payload(), devices=1000).central.obstacles[0]
    few = guarantee_sheet(payload(), devices=3, shuffled=True).central
    assert "too few" in few.obstacles[0]
    many = guarantee_sheet(payload(), devices=10_000, shuffled=True).central
    assert many.obstacles == ()
    assert 0 < many.epsilon == many.bounds.numeric < 0.1
    refusing = guarantee_sheet(payload(schema=REFUSING), devices=10_000, shuffled=True).central
    assert "refuse" in refusing.obstacles[0]


def test_several_answers_take_the_smaller_one_of_two_bounds():
    central = guarantee_sheet(payload("direct", 4_000_000, 2), devices=20_000, shuffled=True).central
    assert central.by_stratum
    assert central.epsilon < central.bounds.numeric < central.local


@pytest.mark.parametrize(
    ("epsilon_micro", "period_seconds", "days", "day", "life", "answered"),
    [
        (1_000_000, DAY, 30, 1_000_000, 31_000_000, 31),
        (1_000_000, 3600, 30, 4_000_000, 100_000_000, 100),
        (500_000, 3600, 3, 4_000_000, 12_000_000, 24),
        (4_000_000, DAY, 60, 4_000_000, 100_000_000, 25),
        (8_000_000, DAY, 10, 8_000_000, 88_000_000, 11),
    ],
)
def test_what_a_device_spends(epsilon_micro, period_seconds, days, day, life, answered):
    raw = payload("direct", epsilon_micro, period_seconds=period_seconds, lifetime_seconds=days * DAY)
    spent = spending(parse_campaign(raw))
    assert (spent.period, spent.day, spent.life, spent.answered) == (epsilon_micro, day, life, answered)


def test_a_sheet_says_what_no_test_can_see():
    assert "direct" in " ".join(guarantee_sheet(payload("direct")).unseen)
    assert "set one bit" in " ".join(guarantee_sheet(payload("oue")).unseen)
    assert "set one bit" not in " ".join(guarantee_sheet(payload("she")).unseen)


def test_a_sheet_says_where_the_best_test_of_set_bits_is_weak():
    def said(epsilon_micro, devices=None):
        return [
            one
            for one in guarantee_sheet(payload("oue", epsilon_micro), devices=devices).unseen
            if "set one bit only" in one
        ]

    assert "1 % of 100000 reports, in 20% of such campaigns" in said(4_000_000)[0]
    assert "1 % of 5000 reports" in said(4_000_000, 5000)[0]
    assert said(4_000_000, 1_000_000) == said(1_000_000) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"devices": 0},
        {"devices": 10**15 + 1},
        {"delta": float("nan")},
        {"delta": 0.0},
        {"delta": 1.0},
        {"liars": (2.0,)},
    ],
)
def test_wrong_arguments_are_refused(wrong):
    assert reason_of(InputError, guarantee_sheet, payload(), **wrong) == "argument_invalid"


def run(*arguments):
    return invoke("guarantee", *arguments)


def test_the_command_prints_the_sheet_and_the_same_as_json(tmp_path):
    file = tmp_path / "c.hsc"
    raw = Publisher().campaign()
    file.write_bytes(raw)
    printed = run(file, "--devices", 5000, "--shuffled")
    assert printed.exit_code == 0, printed.output
    assert "central ε after shuffling, δ = 1e-06" in printed.output
    found = json.loads(run(file, "--devices", 5000, "--shuffled", "--liars", 0.02, "--json").output)
    assert found["shuffled"]["applies"]
    assert list(found["lies"][0]["closed"]) == ["0.02"]
    assert found["privacy"]["holds"]
    assert found["device"]["epsilon_per_period"] == "1"
    assert canonical.unpack(read_envelope(raw, "campaign").payload)["epsilon_micro"] == 1_000_000


@pytest.mark.parametrize(("devices", "way"), [(5000, "numeric bound"), (10**14, "closed form")])
def test_the_command_names_the_bound_that_it_shows(tmp_path, devices, way):
    """The numeric bound takes 10⁹ reports at most, so the closed form is smaller for more."""
    (tmp_path / "c.hsc").write_bytes(Publisher().campaign())
    printed = run(tmp_path / "c.hsc", "--devices", devices, "--shuffled")
    line = next(line for line in printed.output.splitlines() if line.startswith("central ε"))
    assert f"({way})" in line


def test_a_campaign_that_has_ended_promises_nothing_more(tmp_path):
    from protocol.documents.campaign import build_payload

    found = parse_campaign(payload())
    ended = build_payload(
        found.header._replace(version=2),
        found.stated,
        (),
        epsilon_micro=0,
        purpose=found.purpose,
        contact=found.contact,
        time_precision=found.time_precision,
        min_batch_size=found.min_batch_size,
        fit=found.fit,
    )
    sheet = guarantee_sheet(ended, devices=1000, shuffled=True)
    assert sheet.unseen == sheet.lies == ()
    assert sheet.central.obstacles == ("the campaign has ended: there are no reports",)


def test_files_of_other_kinds_are_refused(tmp_path):
    file = tmp_path / "r.hst"
    file.write_bytes(Publisher().root())
    refused = run(file)
    assert refused.exit_code == 1
    assert "not_a_campaign" in refused.output


def test_the_page_says_what_is_odd_about_its_arguments(tmp_path):
    (tmp_path / "c.hsc").write_bytes(Publisher().campaign())

    def page(*arguments):
        return run(tmp_path / "c.hsc", "--shuffled", *arguments).output

    assert "δ is not below 1/N" in page("--devices", 5000, "--delta", 0.001)
    assert "δ is not below 1/N" not in page("--devices", 5000)
    assert "too few (1)" in page("--devices", 1)
    assert "closed 0.9999999" in page("--devices", 5000, "--liars", 0.9999999)
