"""Statistics of decrypted totals: coverage of their intervals for both kinds of noise; the guarantee sheet."""

import json

import numpy as np
import pytest
from support.commands import run
from support.failures import reason
from support.masked import DEALER, TERMS, book_of, masked_campaign, masked_payload
from support.nodes import NODE_KEYS, PERIOD
from support.publisher import Publisher

from aggregator.cards.guarantee import masked_guarantee
from aggregator.nodes.campaigns.numbering import first_numbers
from aggregator.nodes.campaigns.sheet import node_sheet
from aggregator.nodes.statistics.federation import divided
from aggregator.nodes.statistics.masked import PeriodTotal, check_numbers, masked_statistics
from protocol import SCALE
from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import keyid
from protocol.masked.keys import read_key_book
from protocol.masked.noise import noise_of
from protocol.nodes.terms import released_vectors
from protocol.stream import Stream

PARTIES = tuple(NODE_KEYS[:4])
DILUTED = TERMS._replace(noise="diluted", delta_pico=10**9, honest_micro=750_000)
DIVIDED = TERMS._replace(honest_micro=750_000)


def totals_of(campaign, exact, stream):
    """The total of four parties, whose exact sums are ``exact`` together."""
    laws = noise_of(campaign, len(PARTIES))
    vectors = divided(exact, released_vectors(campaign))
    numbers = [
        value + sum(law.draw(stream) for _ in PARTIES)
        for law, values in zip(laws, vectors, strict=True)
        for value in values
    ]
    book = read_key_book(book_of(campaign, PARTIES), campaign)
    ids = tuple(sorted(keyid(one.public) for one in PARTIES))
    return PeriodTotal(PERIOD, book, ids, tuple(numbers))


@pytest.mark.slow
@pytest.mark.parametrize(("terms", "least"), [(DIVIDED, 0.925), (DILUTED, 0.92)], ids=["divided", "diluted"])
def test_intervals_cover_the_exact_sums(terms, least):
    """300 totals: coverage of 95 % intervals of noise alone. A right one fails in less than one of 1,000 runs.

    Entries of one total are independent, so the standard error is below √(0.95·0.05/(300·14)) = 0.34 %. An interval
    that takes the noise for that of one copy in place of four thirds covers 0.90.
    """
    campaign = masked_campaign(masked=terms)
    exact = np.random.default_rng(5).integers(200, 900, sum(one.size for one in released_vectors(campaign))).tolist()
    stream, hits = Stream(bytes(32), b"coverage of masked totals"), []
    for _ in range(300):
        statistics = masked_statistics(campaign, [totals_of(campaign, exact, stream)])
        parts = divided(exact, released_vectors(campaign))
        for one, part in zip(statistics.questions, parts, strict=True):
            truth = np.array(part) / (SCALE if one.subject.kind == "moment" else 1)
            hits.append(((one.devices_interval.low <= truth) & (truth <= one.devices_interval.high)).mean())
    assert least < np.mean(hits) < 0.975


def test_numbers_beyond_what_parties_can_cause_are_found():
    campaign = masked_campaign(DISCRETE)
    size = sum(one.size for one in released_vectors(campaign))
    assert check_numbers(campaign, [0] * size, 4) is None
    assert check_numbers(campaign, [0, 4 * 10_000_000, *[0] * (size - 2)], 4) == 1


def test_the_guarantee_sheet_of_a_masked_campaign(tmp_path):
    payload = masked_payload(Publisher(), DISCRETE, masked=DIVIDED._replace(colluding_micro=100_000))
    path = tmp_path / "c.hsc"
    path.write_bytes(Publisher().sign("campaign", payload))
    found = run("guarantee", path, "--devices", 20, "--json")
    sheet = json.loads(found.output)
    assert (sheet["least_parties"], sheet["colluding_parties"], sheet["dealer"]) == (17, 2, DEALER.public.hex())
    assert sheet["delta"] == {"add-remove": 0.0, "change": 0.0}
    text = run("guarantee", path, "--devices", 20).output
    assert "17 of 20 parties" in text
    assert "dealer" in text
    path.write_bytes(
        Publisher().sign("campaign", masked_payload(Publisher(), DISCRETE, masked=DIVIDED._replace(unit="party")))
    )
    for command in ("guarantee", "show"):
        text = run(command, path).output
        assert "all records of one party more or less" in text
        assert "one record more" not in text
    assert reason(masked_guarantee, masked_campaign(DISCRETE), parties=101) == "argument_invalid"
    diluted = masked_guarantee(masked_campaign(DISCRETE, masked=DILUTED))
    assert diluted.deltas["change"] == 2 * diluted.deltas["add-remove"] == pytest.approx(2e-3, rel=1e-6)


@pytest.mark.parametrize("terms", [DIVIDED, DILUTED], ids=["divided", "diluted"])
def test_the_stated_noise_of_the_most_parties_is_that_of_the_dealer_s_numbers(terms):
    campaign = masked_campaign(DISCRETE, masked=terms._replace(most_parties=4))
    numbers = first_numbers(keyid(one.public) for one in PARTIES)
    for place, vector in enumerate(node_sheet(campaign).vectors):
        variance = sum(noise_of(campaign, u)[place].variance for u in numbers.values())
        assert vector.deviation == pytest.approx(variance**0.5)
    many = masked_campaign(DISCRETE, masked=terms._replace(most_parties=3001))
    exact = sum(
        noise_of(many, u)[0].variance for u in first_numbers(bytes([n // 256, n % 256]) for n in range(3001)).values()
    )
    assert node_sheet(many).vectors[0].deviation == pytest.approx(exact**0.5, rel=1e-3)
