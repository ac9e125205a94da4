"""A campaign whose mechanism lacks a part is refused before it is signed, by every way to a signature."""

from __future__ import annotations

import pytest
from support.failures import failure
from support.publisher import NOW, Publisher

from aggregator.publishing.mechanisms import completeness
from aggregator.publishing.signatures import check_payload, draft
from protocol import mechanisms
from protocol.documents import campaign
from protocol.documents.envelope import PAYLOAD_TYPES
from protocol.mechanisms import Mechanism
from protocol.mechanisms.by_family import ByFamily
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.unary import UnaryMechanism

PARTS = (
    *("estimator", "interval", "vectorised draw", "noise law", "covariances", "group estimator"),
    *("description", "check of impossible answers", "law of set bits"),
)


@pytest.fixture
def without(monkeypatch):
    def take(part, text=""):
        if part == "description":
            for kind in (Direct, UnaryMechanism):
                monkeypatch.setattr(kind, "describe", lambda _: text)
        elif part == "check of impossible answers":
            monkeypatch.setattr(Direct, "impossible", Mechanism.impossible)
        elif part == "law of set bits":
            monkeypatch.setattr(UnaryMechanism, "set_bits_law", Mechanism.set_bits_law)
        else:
            (table,) = (each for each in (completeness.PARTS, completeness.PARTS_OF_VALUES) if part in each)
            monkeypatch.setitem(table, part, ByFamily(table[part].of(Direct)))

    return take


def refused(part):
    return f"mechanism_incomplete: the mechanism {'oue' if 'bits' in part else 'direct'} lacks its {part}: see "


def payload(part=""):
    return Publisher().campaign_payload(mechanism="oue" if "bits" in part else "direct")


@pytest.mark.parametrize("part", PARTS)
def test_a_mechanism_without_one_part_is_refused_at_signing_and_nothing_is_recorded(without, work, part):
    assert work.publish("campaign", "whole", NOW, lambda *_: Publisher().campaign_payload(name="whole"))
    without(part)
    assert str(failure(work.publish, "campaign", "mushrooms", NOW, lambda *_: payload(part))).startswith(refused(part))
    assert [item.name for item in work.history()] == ["whole"]
    assert len(list((work.path / "published").iterdir())) == 1
    unsigned = draft(PAYLOAD_TYPES["campaign"], payload(part))  # a further signature is refused too
    assert str(failure(check_payload, unsigned, "campaign")).startswith(refused(part))


@pytest.mark.parametrize("text", ["two\nlines", "x" * 201])
def test_a_description_is_one_line(without, work, text):
    without("description", text)
    error = failure(work.publish, "campaign", "mushrooms", NOW, lambda *_: payload())
    assert str(error).startswith(refused("description"))


def test_a_class_without_describe_makes_no_campaign_and_opens_none(monkeypatch):
    kind = type("Odd", (Direct,), {"name": "odd", "__slots__": ()})
    kind.__abstractmethods__ = frozenset({"describe"})
    monkeypatch.setitem(mechanisms._foreign, "odd", kind)
    body = {"name": "odd", "size": 2, "epsilon_micro": 1_000_000, "keep": 1 << 31}
    for error in (failure(mechanisms.from_epsilon, "odd", 1, 4), failure(mechanisms.from_dict, body)):
        assert str(error).startswith("mechanism_incomplete: the mechanism odd lacks describe")
    mechanisms._derived.cache_clear()
    campaign.parse_campaign.cache_clear()
