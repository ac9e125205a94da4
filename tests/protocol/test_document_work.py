"""Limits on the work of checking a signed document, counted in operations instead of time."""

from collections import Counter
from fractions import Fraction

import pytest
from support.failures import reason
from support.publisher import Publisher

from protocol import canonical, mechanisms
from protocol.documents.asked import privacy_loss
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.model import parse_model
from protocol.documents.payload import MAX_ITEMS, read_payload
from protocol.epsilon import PrivacyLoss, composed, exp_below
from protocol.mechanisms import Mechanism
from protocol.mechanisms.direct import Direct
from protocol.mechanisms.she import SummedHistogram
from protocol.questions import CLASS, Question, Subject

MICRO = 1_000_000
MANY = 3_000
ABOUT = Subject(CLASS, None, 2)
HONEST = mechanisms.from_micro("direct", MICRO, 2)


def with_mechanisms(stated, *, strata, micro=MICRO):
    """A campaign of class questions with these mechanisms, in one stratum or each in its own."""
    body = canonical.unpack(read_envelope(Publisher().campaign(), "campaign").payload)
    count = len(stated)
    questions = [
        Question(ABOUT, number if strata else 0, (1 << 32) if strata else (number + 1 << 32) // count, each)
        for number, each in enumerate(stated)
    ]
    changes = {
        "questions": [question.to_dict() for question in questions],
        "answers": count if strata else 1,
        "epsilon_micro": micro * (count if strata else 1),
    }
    return canonical.pack({**body, **changes})


@pytest.fixture
def done(monkeypatch):
    """Counts of the operations whose number grows with a campaign."""
    steps = Counter()

    def counted(owner, name):
        original = getattr(owner, name)

        def step(*args, **options):
            steps[name] += 1
            return original(*args, **options)

        monkeypatch.setattr(owner, name, step)

    counted(Mechanism, "__eq__")
    counted(Direct, "privacy_loss")
    counted(mechanisms, "from_micro")
    return steps


@pytest.mark.parametrize("strata", [False, True])
def test_thousands_of_mechanisms_that_differ_in_one_integer_are_each_looked_at_once(done, strata):
    stated = [Direct(MICRO, 2, HONEST.keep - number) for number in range(MANY)]
    payload = with_mechanisms(stated, strata=strata)
    done.clear()
    assert reason(parse_campaign, payload) == "invalid_campaign"
    assert done["__eq__"] <= 4 * MANY
    assert done["from_micro"] <= MANY
    assert done["privacy_loss"] <= MANY


def test_thousands_of_equal_questions_cost_one_loss(done):
    stated = [Direct(MICRO, 2, HONEST.keep)] * MANY
    payload = with_mechanisms(stated, strata=True)
    done.clear()
    assert reason(parse_campaign, payload) is None
    assert done["from_micro"] == 1
    assert done["privacy_loss"] <= 1


def test_mechanisms_of_different_integers_are_told_apart_by_their_hashes():
    hashes = {hash(Direct(MICRO, 2, HONEST.keep - number)) for number in range(MANY)}
    assert len(hashes) > MANY - 5
    assert hash(Direct(MICRO, 2, HONEST.keep)) == hash(HONEST)


@pytest.mark.parametrize(
    ("keeps", "expected"),
    [
        ((0, 0, 0), None),
        ((0, 0, 3), "epsilon_understated"),  # 3/2^32 more: above the slack of rounding
        ((0, -1000, 1), "invalid_campaign"),  # one loss lower, one higher: together not above the declared total
        ((-1, 0, 0), "invalid_campaign"),
        ((-1000, 0, 2000), "epsilon_understated"),
    ],
)
def test_the_reason_depends_on_the_exact_loss_of_all_strata(keeps, expected):
    stated = [Direct(MICRO, 2, HONEST.keep + more) for more in keeps]
    payload = with_mechanisms(stated, strata=True)
    product = Fraction(1)
    for mechanism in stated:
        product *= mechanism.p / mechanism.q
    assert (product > exp_below(3, 1)) is (expected == "epsilon_understated") or expected is None
    assert reason(parse_campaign, payload) == expected


def test_the_largest_loss_of_a_stratum_is_found_among_losses_that_round_to_one_float():
    tiny = Fraction(1, 1 << 70)
    pairs = [(PrivacyLoss(1 + number * tiny), PrivacyLoss(1 + (number + 1) * tiny)) for number in (1, 1 << 31)]
    near = [PrivacyLoss(1 + Fraction(number, 10**30), 1) for number in (1, 2)]
    assert float(near[0]) == float(near[1])
    for one, other in (*pairs, near):
        assert other.above(one)
        assert not one.above(other)
        assert not one.above(one)
    whole = PrivacyLoss(Fraction(1), 1)
    mixed = PrivacyLoss(exp_below(1, 2) * (1 - Fraction(1, 10**40)), Fraction(1, 2))
    less = PrivacyLoss(exp_below(1, 1) * (1 - Fraction(1, 10**30)))
    assert float(whole) == float(mixed) == float(less)
    for larger, smaller in ((whole, mixed), (mixed, less), (whole, less)):
        assert larger.above(smaller)
        assert not smaller.above(larger)


def test_the_loss_of_a_stratum_does_not_depend_on_the_order_of_its_questions():
    low, high = Direct(MICRO, 2, HONEST.keep), Direct(MICRO, 2, HONEST.keep + 1)
    noise = SummedHistogram.from_micro(MICRO, 2)
    for stated in ([low, high, noise], [noise, high, low], [high, noise, low]):
        questions = tuple(Question(ABOUT, 0, number + 1, each) for number, each in enumerate(stated))
        found = privacy_loss(questions)
        assert (found.ratio, found.exponent) == (high.p / high.q, 0)
    assert composed([high.privacy_loss()] * 2).ratio == (high.p / high.q) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("read", [read_payload, parse_model])
def test_a_payload_of_hundreds_of_thousands_of_values_is_refused_before_any_is_made(read):
    publisher = Publisher()
    body = canonical.unpack(read_envelope(publisher.model(), "model").payload)
    assert read(canonical.pack({**body, "card": {"x": [[]] * (MAX_ITEMS - 200)}}))
    crowded = canonical.pack({**body, "card": {"x": [[]] * MAX_ITEMS}})
    assert len(crowded) < 1 << 20
    assert reason(read, crowded) == "malformed"
