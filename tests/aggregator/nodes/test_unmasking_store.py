"""A store of masked messages: it decrypts the sums that the parties encrypted, and nothing else."""

import random
from types import SimpleNamespace

import pytest
from support.failures import reason
from support.masked import DEALER, MODULUS, NODES, TERMS, any_ciphertexts, book_of, masked_payload, secret_of
from support.node_fleets import list_of
from support.nodes import NODE_KEYS, PERIOD
from support.publisher import DAY, NOW, Publisher

from aggregator.cards.card import MOST_BYTES, full_card
from aggregator.nodes.store.masked import MaskedStore
from aggregator.nodes.store.opening import make_envelope_store, new_or_open, open_envelope_store, open_node_store
from aggregator.nodes.store.status import status
from aggregator.nodes.store.summaries import NodeStore
from aggregator.reports.tally.scope import scope_of
from protocol import canonical
from protocol.documents.campaign import DISCRETE, parse_campaign
from protocol.documents.envelope import keyid
from protocol.masked.cipher import mask_all, release_elements
from protocol.masked.costs import ciphertexts_of
from protocol.masked.fields import Slots
from protocol.masked.keys import read_key_book
from protocol.masked.message import build_message
from protocol.masked.noise import noise_of
from protocol.masked.release import build_release, build_request, parse_request
from protocol.nodes.terms import released_vectors

PUBLISHER = Publisher()
HALF = TERMS._replace(honest_micro=500_000, colluding_micro=250_000)
PAYLOAD = masked_payload(PUBLISHER, DISCRETE, masked=HALF, terms=NODES)
CAMPAIGN_FILE = PUBLISHER.sign("campaign", PAYLOAD)
CAMPAIGN = parse_campaign(PAYLOAD)
COUNT = sum(subject.size for subject in released_vectors(CAMPAIGN))
PARTIES = NODE_KEYS[:4]
LIST = list_of(PUBLISHER, PARTIES)
BOOK = book_of(CAMPAIGN, tuple(PARTIES))


def sums_of(node, period=PERIOD):
    """The numbers that a party encrypts; some are negative."""
    rng = random.Random(f"{node} {period}")
    return [rng.randrange(-50, 1000) for _ in range(COUNT)]


def message(node, period=PERIOD, numbers=None, secret=None):
    plaintexts = Slots(HALF.slot_bits).pack(sums_of(node, period) if numbers is None else numbers)
    secret = secret_of(node + 1) if secret is None else secret
    hidden = mask_all(plaintexts, secret, CAMPAIGN.id, period, MODULUS)
    return build_message(CAMPAIGN, PARTIES[node], period, node + 1, hidden)


MESSAGES = [message(node) for node in range(4)]


def released(raw, secrets=None):
    """The dealer's answer to the bytes of a request."""
    asked = parse_request(raw)
    book = read_key_book(BOOK, CAMPAIGN)
    total = sum(secret_of(book.parties[party].serial) for party in asked.parties) if secrets is None else secrets
    elements = release_elements(total, CAMPAIGN.id, asked.period, ciphertexts_of(CAMPAIGN), MODULUS)
    return build_release(CAMPAIGN, DEALER, asked, elements)


@pytest.fixture(scope="module")
def release():
    """The release for parties 0, 1 and 2."""
    return released(build_request(CAMPAIGN.id, PERIOD, 1, [keyid(one.public) for one in PARTIES[:3]]))


@pytest.fixture
def made(tmp_path):
    """A store with the list and the key book, and a function that ingests messages."""
    store = make_envelope_store(MaskedStore, tmp_path / "store", CAMPAIGN_FILE)
    store.give_list(LIST)
    store.give_book(BOOK)

    def take(*messages):
        path = tmp_path / "in.hse"
        path.write_bytes(b"".join(messages))
        return store.ingest([path], now=NOW + 2 * DAY)

    return SimpleNamespace(store=store, take=take, path=tmp_path)


def test_the_decrypted_total_is_the_sum_of_the_parties_numbers(made, release):
    assert made.take(*MESSAGES[:3], b"junk").accepted == 3
    asked = made.store.request(PERIOD)
    assert parse_request(asked).parties == tuple(sorted(keyid(one.public) for one in PARTIES[:3]))
    total = made.store.decrypt(release)
    assert total.numbers == tuple(map(sum, zip(*(sums_of(node) for node in range(3)), strict=True)))
    found = made.store.statistics()
    assert found.source.card()["trust"] == "distributed"
    assert found.source.nodes == 3
    assert [n for one in found.source.released for n in one] == list(total.numbers)
    for subject, question, law in zip(released_vectors(CAMPAIGN), found.questions, noise_of(CAMPAIGN, 4), strict=True):
        assert question.subject == subject
        assert question.noise_variance == pytest.approx(3 * law.variance)


def test_a_second_release_or_request_for_a_period_changes_nothing(made, release):
    made.take(*MESSAGES[:3])
    asked = made.store.request(PERIOD)
    made.take(MESSAGES[3])
    assert made.store.request(PERIOD) == asked
    assert len(parse_request(made.store.request(PERIOD, again=True)).parties) == 4
    first = made.store.decrypt(release)
    assert made.store.decrypt(release) == first
    other = released(build_request(CAMPAIGN.id, PERIOD, 1, [keyid(one.public) for one in PARTIES]))
    assert reason(made.store.decrypt, other) == "equivocation"
    assert reason(made.store.request, PERIOD) == "period_decrypted"
    assert made.store.rejected() == {"not_in_sum": 1}
    assert made.store.totals() == [first]


def test_a_release_opens_exactly_its_set(made, release):
    made.take(*MESSAGES[:2])
    assert reason(made.store.decrypt, release) == "message_missing"
    assert reason(made.store.request, PERIOD) == "parties_too_few"
    made.take(message(2, numbers=sums_of(2), secret=secret_of(9)))
    assert reason(made.store.decrypt, release) == "mask_mismatch"
    assert made.store.totals() == []
    assert reason(made.store.statistics) == "batch_too_small"


def test_a_party_that_lies_beyond_its_slots_is_noticed(made, release):
    big = [(1 << (HALF.slot_bits - 1)) - 1, *sums_of(2)[1:]]
    made.take(*MESSAGES[:2], message(2, numbers=big))
    assert reason(made.store.decrypt, release) == "value_out_of_domain"


def test_of_a_party_with_two_messages_none_is_asked_for(made):
    other = message(0, numbers=sums_of(1))
    taken = made.take(*MESSAGES, other)
    assert (taken.accepted, taken.conflicting) == (4, 1)
    assert keyid(PARTIES[0].public) not in made.store.wanted(PERIOD).parties
    assert made.store.rejected() == {"summary_conflict": 2}


def test_several_periods_add(made):
    for period in (PERIOD, PERIOD + 1):
        made.take(*(message(node, period) for node in range(3)))
        made.store.decrypt(released(made.store.request(period)))
    both = made.store.statistics()
    one = made.store.statistics(scope_of(range(PERIOD, PERIOD + 1)))
    assert both.source.summaries == 6
    assert one.source.summaries == 3
    assert both.questions[0].noise_variance == pytest.approx(2 * one.questions[0].noise_variance)
    assert made.store.waiting() == []


def test_keys_that_no_book_names_are_stale_until_the_book_comes(made):
    stale = build_message(CAMPAIGN, PARTIES[3], PERIOD, 9, any_ciphertexts(CAMPAIGN))
    assert made.take(stale).rejected == {"stale_key": 1}
    assert reason(made.store.give_book, book_of(CAMPAIGN, tuple(PARTIES[:3]))) == "equivocation"
    made.store.give_book(book_of(CAMPAIGN, tuple(PARTIES[:3]), version=2))
    assert [book.version for book in made.store.books()] == [2, 1]
    made.take(*MESSAGES[:3])
    assert made.store.wanted(PERIOD).book.version == 2


def test_a_new_store_needs_list_and_book(tmp_path):
    (tmp_path / "m.hse").write_bytes(MESSAGES[0])
    files = [tmp_path / "m.hse"]
    assert reason(new_or_open, tmp_path / "s", CAMPAIGN_FILE, None, files, BOOK) == "nodes_unknown"
    assert reason(new_or_open, tmp_path / "s", CAMPAIGN_FILE, LIST, files) == "keys_unknown"
    store = new_or_open(tmp_path / "s", CAMPAIGN_FILE, LIST, files, BOOK)
    assert reason(open_envelope_store, NodeStore, store.path) == "campaign_masked"
    assert reason(store.statistics, rule=object()) == "robust_invalid"
    assert isinstance(open_node_store(store.path), MaskedStore)


def test_the_status_tells_who_is_missing(made):
    made.take(*MESSAGES[:3])
    (period,) = status(made.store).periods
    assert (period.seen, period.missing) == (3, (keyid(PARTIES[3].public).hex(),))
    assert made.store.needed(PERIOD) == 3


def test_a_version_with_fewer_parties_is_asked_for_if_the_dealer_allows_only_that_one(made, monkeypatch):
    """The newest book has the most parties and needs four; the older one has the keys of three and needs three."""
    monkeypatch.setattr("aggregator.nodes.store.masked.least_parties", lambda _, parties: {4: 4, 3: 2}[parties])
    made.store.give_book(book_of(CAMPAIGN, tuple(PARTIES[:3]), version=2))
    made.take(*MESSAGES[:2])
    assert made.store.wanted(PERIOD).book.version == 2
    made.take(MESSAGES[3])
    assert made.store.wanted(PERIOD).book.version == 2


def test_two_processes_with_two_releases_leave_one_total(made, release, monkeypatch):
    """The other process decrypts while this one computes: the period keeps the total that was stored first."""
    made.take(*MESSAGES)
    other = released(build_request(CAMPAIGN.id, PERIOD, 1, [keyid(one.public) for one in PARTIES]))
    compute, calls = MaskedStore._opened, []

    def overtaken(store, found, book):
        monkeypatch.setattr(MaskedStore, "_opened", compute)
        calls.append(store.decrypt(release))
        return compute(store, found, book)

    monkeypatch.setattr(MaskedStore, "_opened", overtaken)
    assert reason(made.store.decrypt, other) == "equivocation"
    assert made.store.totals() == calls
    assert made.store.decrypt(release) == calls[0]


def test_two_processes_that_ask_at_once_write_one_request(made, monkeypatch):
    made.take(*MESSAGES[:3])
    choose, calls = MaskedStore.wanted, []

    def overtaken(store, period):
        found = choose(store, period)
        monkeypatch.setattr(MaskedStore, "wanted", choose)
        made.take(MESSAGES[3])
        calls.append(store.request(period))
        return found

    monkeypatch.setattr(MaskedStore, "wanted", overtaken)
    assert made.store.request(PERIOD) == calls[0] == made.store.request(PERIOD)


def test_a_release_of_another_period_or_another_key_book_opens_nothing(made):
    """Elements of another period under this period's name; a version of the key book that the store does not have."""
    made.take(*MESSAGES)
    ids = [keyid(one.public) for one in PARTIES]
    count = ciphertexts_of(CAMPAIGN)
    elements = release_elements(sum(secret_of(n) for n in range(1, 5)), CAMPAIGN.id, PERIOD + 1, count, MODULUS)
    asked = parse_request(build_request(CAMPAIGN.id, PERIOD, 1, ids))
    assert reason(made.store.decrypt, build_release(CAMPAIGN, DEALER, asked, elements)) == "mask_mismatch"
    assert reason(made.store.decrypt, released(build_request(CAMPAIGN.id, PERIOD + 1, 1, ids))) == "message_missing"
    assert reason(made.store.decrypt, released(build_request(CAMPAIGN.id, PERIOD, 2, ids))) == "keys_unknown"
    assert made.store.totals() == []


def test_a_newer_list_takes_nothing_out_of_a_decrypted_sum(made, release):
    made.take(*MESSAGES)
    made.store.decrypt(release)
    made.store.give_list(list_of(PUBLISHER, PARTIES[1:], version=2))
    assert made.store.rejected() == {"not_in_sum": 1}
    assert made.store.statistics().source.nodes == 3
    (period,) = status(made.store).periods
    assert period.seen == 3


def test_the_card_states_the_rule_of_the_smallest_key_book(made):
    made.store.give_book(book_of(CAMPAIGN, tuple(PARTIES[:2]), version=2))
    made.take(*(message(node) for node in range(4)), *(message(node, PERIOD + 1) for node in range(2)))
    made.store.decrypt(released(made.store.request(PERIOD)))
    assert made.store.needed(PERIOD) == 3
    assert made.store.needed(PERIOD + 1) == 1
    card = made.store.statistics().source.card()
    assert (card["smallest_set"], card["least_set"]) == (4, 3)
    assert "1 of 4" in card["threats"]
    whole = full_card(made.store.statistics(), "posterior")
    assert len(canonical.pack(whole)) <= MOST_BYTES
    assert (whole["trust"], set(whole["asked"])) == ("distributed", set(whole["influence"]))
    assert "δ" in whole["costs"][0] or "ε" in whole["costs"][0]
    assert whole["reach_of_lies"].startswith("one lying node")
    keys = [keyid(one.public) for one in PARTIES[:2]]
    made.store.decrypt(released(build_request(CAMPAIGN.id, PERIOD + 1, 2, keys)))
    card = made.store.statistics().source.card()
    assert (card["smallest_set"], card["least_set"]) == (2, 1)
    assert "0 of 2" in card["threats"]
