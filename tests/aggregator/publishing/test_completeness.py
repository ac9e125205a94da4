"""A campaign whose mechanism lacks a part is refused before it is signed, by every way to a signature."""

from __future__ import annotations

import pytest
from support.mechanisms import Subset
from support.publisher import NOW, Publisher

from aggregator.estimates.debias import debias, marginal, noise_law, pairs_of
from aggregator.estimates.intervals import count_interval
from aggregator.publishing.mechanisms.draws import draw
from aggregator.publishing.signatures import check_payload, draft
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
    class Odd(ValueMechanism):
        __slots__ = ("_own",)
        name = "odd"
        layout = Direct.layout

        def __init__(self, own):
            super().__init__(own.epsilon_micro, own.size)
            self._own = own

        def __getattr__(self, name):
            return getattr(object.__getattribute__(self, "_own"), name)

        from_micro = classmethod(lambda cls, epsilon_micro, size: cls(Direct.from_micro(epsilon_micro, size)))
        from_dict = classmethod(lambda cls, parameters: cls(Direct.from_dict(parameters)))
        answers = property(lambda self: self.size)

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

        if without != "check of impossible answers":

            def impossible(self, answers):
                return self._own.impossible(answers)

    for part, function in PARTS.items():
        if part != without:
            function.register(Odd)(function.of(Direct))
    return Odd


def forget():
    mechanisms._derived.cache_clear()
    campaign.parse_campaign.cache_clear()


@pytest.fixture
def install(monkeypatch):
    def put(kind):
        monkeypatch.setitem(mechanisms._foreign, "odd", kind)
        forget()

    yield put
    forget()


def sign(work):
    payload = Publisher().campaign_payload(mechanism="odd")
    return work.publish("campaign", "mushrooms", NOW, lambda _version, _before: payload)


def test_a_mechanism_with_all_parts_is_signed(install, work):
    install(newcomer(without=None))
    assert sign(work)


@pytest.mark.parametrize("part", [*PARTS, "description", "description of one line", "check of impossible answers"])
def test_a_mechanism_without_one_part_is_refused_at_signing_and_nothing_is_recorded(install, work, part):
    install(newcomer(without=part))
    with pytest.raises(
        InputError, match=f"the mechanism odd lacks its {part.removesuffix(' of one line')}: see"
    ) as caught:
        sign(work)
    assert caught.value.reason == "mechanism_incomplete"
    assert work.history() == []
    assert list((work.path / "published").iterdir()) == []


@pytest.mark.parametrize("part", ["estimator", "vectorised draw"])
def test_a_further_signature_of_a_draft_is_refused_too(install, part):
    install(newcomer(without=part))
    unsigned = draft(PAYLOAD_TYPES["campaign"], Publisher().campaign_payload(mechanism="odd"))
    with pytest.raises(InputError, match=rf"^mechanism_incomplete: .* {part}"):
        check_payload(unsigned, "campaign")


def test_rows_of_bits_are_not_signed_without_their_law_of_set_bits(install, work):
    class Rows(Subset):
        __slots__ = ()
        name = "odd"
        set_bits_law = Mechanism.set_bits_law

    install(Rows)
    with pytest.raises(InputError, match="the mechanism odd lacks its law of set bits: see"):
        sign(work)
    del Rows.set_bits_law
    forget()
    assert sign(work)


def test_a_class_without_describe_makes_no_campaign_and_opens_none(install):
    install(newcomer(without="describe"))
    for make in (
        lambda: mechanisms.from_epsilon("odd", 1, 4),
        lambda: mechanisms.from_dict({"name": "odd", "size": 2, "epsilon_micro": 1_000_000, "keep": 1 << 31}),
    ):
        with pytest.raises(InputError, match=r"^mechanism_incomplete: the mechanism odd lacks describe"):
            make()
