"""The guarantee sheet: when shuffling counts, what a device spends, and the printed page."""

from __future__ import annotations

import json
import re

import pytest
from support.commands import run
from support.failures import reason_of
from support.publisher import DAY, NOW, Publisher

from aggregator.cards.guarantee import guarantee_sheet, spending
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from protocol.documents.campaign import build_payload, parse_campaign
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


def test_a_sheet_says_what_no_test_can_see_and_where_the_best_test_of_set_bits_is_weak():
    assert "direct" in " ".join(guarantee_sheet(payload("direct")).unseen)
    assert "set one bit" in " ".join(guarantee_sheet(payload("oue")).unseen)
    assert "set one bit" not in " ".join(guarantee_sheet(payload("she")).unseen)

    def said(epsilon_micro, devices=None):
        sheet = guarantee_sheet(payload("oue", epsilon_micro), devices=devices)
        return [one for one in sheet.unseen if "set one bit only" in one]

    assert "1 % of 100000 reports, in 20% of such campaigns" in said(4_000_000)[0]
    assert "1 % of 5000 reports" in said(4_000_000, 5000)[0]
    assert said(4_000_000, 1_000_000) == said(1_000_000) == []


WRONG = [{"devices": 0}, {"devices": 10**15 + 1}, {"liars": (2.0,)}]


@pytest.mark.parametrize("wrong", [*WRONG, *({"delta": delta} for delta in (float("nan"), 0.0, 1.0))])
def test_wrong_arguments_are_refused(wrong):
    assert reason_of(InputError, guarantee_sheet, payload(), **wrong) == "argument_invalid"


def test_the_command_prints_the_sheet_and_the_same_as_json(tmp_path):
    """The numeric bound takes 10⁹ reports at most, so the closed form is smaller for more."""
    raw = Publisher().campaign()
    (tmp_path / "c.hsc").write_bytes(raw)

    def page(*arguments):
        return run("guarantee", tmp_path / "c.hsc", "--shuffled", *arguments).stdout

    printed = page("--devices", 5000)
    assert re.search(r"^central ε after shuffling, δ = 1e-06 .*\(numeric bound\)", printed, re.MULTILINE)
    assert re.search(r"^central ε .*\(closed form\)", page("--devices", 10**14), re.MULTILINE)
    assert "δ is not below 1/N" in page("--devices", 5000, "--delta", 0.001)
    assert "δ is not below 1/N" not in printed
    assert "too few (1)" in page("--devices", 1)
    assert "closed 0.9999999" in page("--devices", 5000, "--liars", 0.9999999)
    found = json.loads(page("--devices", 5000, "--liars", 0.02, "--json"))
    assert found["shuffled"]["applies"]
    assert list(found["lies"][0]["closed"]) == ["0.02"]
    assert found["privacy"]["holds"]
    assert found["device"]["epsilon_per_period"] == "1"
    (tmp_path / "r.hst").write_bytes(Publisher().root())
    assert "not_a_campaign" in run("guarantee", tmp_path / "r.hst", status=1).output


def test_a_campaign_that_has_ended_promises_nothing_more():
    found = parse_campaign(payload())
    texts = {name: getattr(found, name) for name in ("purpose", "contact", "time_precision", "min_batch_size", "fit")}
    ended = build_payload(found.header._replace(version=2), found.stated, (), epsilon_micro=0, **texts)
    sheet = guarantee_sheet(ended, devices=1000, shuffled=True)
    assert sheet.unseen == sheet.lies == ()
    assert sheet.central.obstacles == ("the campaign has ended: there are no reports",)
