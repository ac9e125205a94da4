"""A campaign whose mechanism lacks a part is refused before it is signed, by every way to a signature."""

from __future__ import annotations

import pytest
from support.mechanisms import Subset
from support.publisher import NOW, Publisher

from aggregator.estimates.debias import debias, marginal, noise_law, pairs_of
from aggregator.estimates.intervals import count_interval
from aggregator.publishing.mechanisms.draws import draw
from aggregator.publishing.signatures import check_payload, draft
from aggregator.publishing.workspace import create_workspace
from protocol import mechanisms
from protocol.documents import campaign
from protocol.documents.envelope import PAYLOAD_TYPES
from protocol.errors import InputError
from protocol.mechanisms import Mechanism, ValueMechanism
from protocol.mechanisms.direct import Direct

PARTS = {
    "estimator": debias,
    "interval": count_interval,
    "vectorised draw": draw,
    "noise law": noise_law,
    "covariances": pairs_of,
    "group estimator": marginal,
}


def newcomer(without):
    """A class with all that ``direct`` has, but of no known family, and without one part."""

    class Odd(ValueMechanism):
        __slots__ = ("_own",)
        name = "odd"
        layout = Direct.layout

        def __init__(self, own):
            super().__init__(own.epsilon_micro, own.size)
            self._own = own

        def __getattr__(self, name):
            return getattr(object.__getattribute__(self, "_own"), name)

        @classmethod
        def from_micro(cls, epsilon_micro, size):
            return cls(Direct.from_micro(epsilon_micro, size))

        @classmethod
        def from_dict(cls, parameters):
            return cls(Direct.from_dict(parameters))

        def to_dict(self):
            return {**self._own.to_dict(), "name": self.name}

        def perturb(self, value, seed):
            return self._own.perturb(value, seed)

        def distribution(self, value):
            return self._own.distribution(value)

        def privacy_loss(self):
            return self._own.privacy_loss()

        if without != "describe":

            def describe(self):
                return {"description": "", "description of one line": "two\nlines"}.get(without, "odd, for this test")

        @property
        def answers(self):
            return self.size

        if without != "check of impossible answers":

            def impossible(self, answers):
                return self._own.impossible(answers)

    for part, function in PARTS.items():
        if part != without:
            function.register(Odd)(function.of(Direct))
    return Odd


def forget():
    """What was derived with another class of this name."""
    mechanisms._derived.cache_clear()
    campaign.parse_campaign.cache_clear()


@pytest.fixture
def install(monkeypatch):
    """Makes a class known as ``odd``, as an installed package would."""

    def put(kind):
        monkeypatch.setitem(mechanisms._foreign, "odd", kind)
        forget()

    yield put
    forget()


@pytest.fixture
def workspace(tmp_path):
    return create_workspace(tmp_path / "work", name="work", now=NOW)


def sign(workspace):
    payload = Publisher().campaign_payload(mechanism="odd")
    return workspace.publish("campaign", "mushrooms", NOW, lambda _version, _before: payload)


def test_a_mechanism_with_all_parts_is_signed(install, workspace):
    install(newcomer(without=None))
    assert sign(workspace)
    assert [item.name for item in workspace.history()] == ["mushrooms"]


@pytest.mark.parametrize("part", [*PARTS, "description", "description of one line", "check of impossible answers"])
def test_a_mechanism_without_one_part_is_refused_at_signing_and_nothing_is_recorded(install, workspace, part):
    install(newcomer(without=part))
    with pytest.raises(
        InputError, match=f"the mechanism odd lacks its {part.removesuffix(' of one line')}: see"
    ) as caught:
        sign(workspace)
    assert caught.value.reason == "mechanism_incomplete"
    assert workspace.history() == []
    assert list((workspace.path / "published").iterdir()) == []


@pytest.mark.parametrize("part", ["estimator", "vectorised draw"])
def test_a_further_signature_of_a_draft_is_refused_too(install, part):
    install(newcomer(without=part))
    unsigned = draft(PAYLOAD_TYPES["campaign"], Publisher().campaign_payload(mechanism="odd"))
    with pytest.raises(InputError, match=rf"^mechanism_incomplete: .* {part}"):
        check_payload(unsigned, "campaign")


def test_rows_of_bits_are_not_signed_without_their_law_of_set_bits(install, workspace):
    class Rows(Subset):
        __slots__ = ()
        name = "odd"
        set_bits_law = Mechanism.set_bits_law

    install(Rows)
    with pytest.raises(InputError, match="the mechanism odd lacks its law of set bits: see"):
        sign(workspace)
    del Rows.set_bits_law
    forget()
    assert sign(workspace)


def test_a_class_without_describe_makes_no_campaign_and_opens_none(install):
    install(newcomer(without="describe"))
    for make in (
        lambda: mechanisms.from_epsilon("odd", 1, 4),
        lambda: mechanisms.from_dict({"name": "odd", "size": 2, "epsilon_micro": 1_000_000, "keep": 1 << 31}),
    ):
        with pytest.raises(InputError, match=r"^mechanism_incomplete: the mechanism odd lacks describe"):
            make()
