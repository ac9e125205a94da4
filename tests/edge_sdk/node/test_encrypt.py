"""A party: one paid message of encrypted sums per campaign and period, which only the total of all parties opens."""

from __future__ import annotations

import sqlite3

import pytest
from support.failures import failure, reason
from support.masked import MODULUS, TERMS, book_of, masked_payload, secret_of
from support.nodes import NODE_KEYS, signed_list
from support.publisher import DAY, NOW, installed, key

from edge_sdk import Node, Policy
from edge_sdk.node import encryption
from edge_sdk.sync import sync
from edge_sdk.transport.folder import Folder
from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import read_envelope
from protocol.documents.masked_terms import DILUTED, PARTY
from protocol.masked.cipher import Unmasking, release_elements
from protocol.masked.costs import ciphertexts_of, cost
from protocol.masked.fields import Slots
from protocol.masked.keys import read_key_book
from protocol.masked.message import judge_message, read_message
from protocol.nodes.summary import parse_node_list, read_summaries
from protocol.nodes.terms import released_vectors

RECORDS = [{"odor": "n", "width": 3.2, "label": "e"}, {"odor": "f", "width": None, "label": "p"}]
UNREAD = object()
"""In the place of records. Reading it raises a TypeError."""
NAMED = {"first": {}, "second": {"masked": TERMS._replace(dealer=key(91).public)}}
ALLOWED = Policy.of(allow_masked=True)


@pytest.fixture
def open_node(tmp_path, publisher, clock):
    """Opens nodes in folders of their own."""
    opened = []

    def make(name="state", policy=ALLOWED, **options):
        opened.append(installed(Node, tmp_path / name, publisher.root(), policy=policy, clock=clock, **options))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def campaign_of(publisher, family=DISCRETE, **options):
    return publisher.sign("campaign", masked_payload(publisher, family, **options))


def enrolled(node, publisher, **options):
    """The campaign, after the node has accepted it and a book with its key."""
    campaign = node.enrol(campaign_of(publisher, **options))
    node.accept_keys(book_of(campaign, keys=[*NODE_KEYS, public_of(node)]))
    return campaign


class public_of:  # noqa: N801 - in the place of a key pair, of which a dealer has the public key
    def __init__(self, node):
        self.public = node.public_key


def numbers_of(campaign):
    return sum(subject.size for subject in released_vectors(campaign))


def noiseless(monkeypatch):
    monkeypatch.setattr(encryption, "drawn_noise", lambda campaign, *_: [0] * numbers_of(campaign))


def test_the_total_of_parties_is_the_sum_of_their_records(open_node, publisher, monkeypatch):
    noiseless(monkeypatch)
    nodes = [open_node(str(number)) for number in range(3)]
    campaign, *_ = [node.enrol(campaign_of(publisher)) for node in nodes]
    keys = [public_of(node) for node in nodes]
    raw = book_of(campaign, keys=keys)
    listed = parse_node_list(read_envelope(signed_list(publisher, keys), "nodes").payload)
    unmasking = Unmasking(MODULUS, ciphertexts_of(campaign))
    for number, node in enumerate(nodes):
        found = node.accept_keys(raw)
        assert (found.version, found.parties, found.serial, found.u) == (1, 3, number + 1, 3)
        said = node.encrypt(campaign.id, RECORDS * (number + 1))
        message = judge_message(said.raw, campaign, listed, read_key_book(raw, campaign), NOW)
        assert (message.node, message.period, message.serial) == (node.node_id, said.period, number + 1)
        unmasking.add(message.ciphertexts)
    secrets = sum(secret_of(serial) for serial in (1, 2, 3))
    opened = unmasking.opened(release_elements(secrets, campaign.id, said.period, ciphertexts_of(campaign), MODULUS))
    totals = Slots(campaign.masked.slot_bits).unpack(opened, numbers_of(campaign))
    assert totals[:2] == [6, 6]
    assert sum(totals) == 12 * len(released_vectors(campaign))


def test_one_message_per_campaign_and_period(open_node, publisher, clock, tmp_path):
    node = open_node()
    campaign = enrolled(node, publisher)
    first = node.encrypt("wards", RECORDS)
    assert (first.cost_micro, first.cost_delta_pico, first.repeated, first.beyond) == (2_000_000, 0, False, 0)
    again = node.encrypt(campaign.id, UNREAD)
    assert again == first._replace(repeated=True, unread=None)
    clock.now += DAY
    second = node.encrypt(campaign.id, RECORDS)
    assert second.period == first.period + 1
    assert read_message(first.raw)[1].ciphertexts != read_message(second.raw)[1].ciphertexts
    assert node.drain(tmp_path / "out.hse") == 2
    pieces = read_summaries((tmp_path / "out.hse").read_bytes(), "masked")
    assert [piece.envelope for piece in pieces] == [first.raw, second.raw]
    assert node.ack(tmp_path / "out.hse") == 2
    assert node.file_ending() is None


def test_powers_are_computed_outside_of_the_transaction_and_noise_is_drawn_once(
    open_node, publisher, clock, monkeypatch
):
    """Powers whose period ended meanwhile are dropped unused. What always takes longer than a period is done inside."""
    node, other = open_node(), open_node()
    campaign = enrolled(node, publisher)
    seen, drawn, first, real, noise = [], [], [], encryption.pads, encryption.drawn_noise
    meanwhile = iter([DAY, 0, None])

    def slow(secret, campaign_id, period, *more):
        seen.append((period, node._state.turn > 0))
        found, passed = real(secret, campaign_id, period, *more), next(meanwhile, DAY)
        if passed is None:  # another program encrypts
            first.append(other.encrypt(campaign.id, RECORDS).raw)
        clock.now += passed or 0
        return found

    monkeypatch.setattr(encryption, "pads", slow)
    monkeypatch.setattr(encryption, "drawn_noise", lambda *given: drawn.append(1) or noise(*given))
    said = node.encrypt(campaign.id, RECORDS)
    assert seen == [(said.period - 1, False), (said.period, False)]
    assert (len(drawn), len(node.history())) == (1, 1)
    clock.now += DAY
    meanwhile = iter([None, 0])
    said = node.encrypt(campaign.id, RECORDS)
    assert ([said.raw], said.repeated, len(drawn), len(node.history())) == (first, True, 2, 2)
    clock.now += DAY
    seen.clear()
    node.encrypt(campaign.id, RECORDS)
    assert [inside for _, inside in seen] == [False, False, False, True]


def test_the_owner_allows_masks_and_delta_knowingly(open_node, publisher, clock):
    node = open_node("plain", Policy())
    error = failure(node.enrol, campaign_of(publisher))
    assert error.reason == "policy_refused"
    assert "dealer" in error.detail
    assert "allow_masked = true" in error.detail
    diluted = campaign_of(publisher, masked=TERMS._replace(noise=DILUTED, delta_pico=10_000_000))
    node = open_node("small", Policy.of(allow_masked=True, delta_per_period="1.9e-5"))
    error = failure(node.enrol, diluted)
    assert error.reason == "policy_refused"
    assert "per period for change; the owner allows 1.9e-05 (delta_per_period)" in error.detail
    assert open_node("more").enrol(diluted).masked.delta_pico == 10_000_000


def test_delta_is_booked_shown_and_limited(open_node, publisher, clock, tmp_path):
    terms = TERMS._replace(noise=DILUTED, delta_pico=1_000_000)
    node = open_node("one")
    campaign = node.enrol(campaign_of(publisher, masked=terms))
    epsilon, delta = cost(campaign, "change")
    assert delta > terms.delta_pico
    node.close()
    node = open_node("one", ALLOWED._replace(lifetime_delta_pico=2 * delta))
    node.accept_keys(book_of(campaign, keys=[*NODE_KEYS, public_of(node)]))
    for spent in (1, 2):
        said = node.encrypt(campaign.id, RECORDS)
        assert (said.cost_micro, said.cost_delta_pico) == (epsilon, delta)
        assert (node.status().delta_spent_pico, node.status().delta_left_pico) == (spent * delta, (2 - spent) * delta)
        clock.now += DAY
    error = failure(node.encrypt, campaign.id, UNREAD)
    assert (error.reason, "delta_lifetime" in error.detail) == ("budget_exhausted", True)
    assert [line.delta_pico for line in node.history()] == [delta, delta]
    assert "delta_spent" in node.status().to_json()
    for _ in range(2):  # with a lifetime of 2·10⁻⁵, a node reset twice released 4·10⁻⁵, and showed half of it
        node.close()
        Node.reset(tmp_path / "one", publisher.root(), policy=ALLOWED, clock=clock)
        node = open_node("one", ALLOWED)
        assert node.status().delta_spent_pico == ALLOWED.lifetime_delta_pico
    assert [line.delta_pico for line in node.history()] == [ALLOWED.lifetime_delta_pico - 2 * delta, delta, delta]


def test_a_reset_counts_the_largest_delta_that_was_allowed_at_an_answer(open_node, publisher, clock, tmp_path):
    """The owner has lowered the limit since an answer, and the state is lost: what was spent is not known."""
    node = open_node("one")
    node.close()
    (tmp_path / "one" / "policy.toml").write_text('allow_masked = true\ndelta_lifetime = "1e-3"')
    node = open_node("one", None)
    node.encrypt(enrolled(node, publisher).id, RECORDS)
    node.close()
    (tmp_path / "one" / "policy.toml").write_text('delta_lifetime = "1e-9"')
    open_node("one", None).close()
    (tmp_path / "one" / "state.db").unlink()
    Node.reset(tmp_path / "one", publisher.root(), clock=clock)
    assert open_node("one", None).status().delta_spent_pico == 10**9
    open_node("plain", Policy()).close()  # without masks there was no δ
    Node.reset(tmp_path / "plain", publisher.root(), policy=Policy(), clock=clock)
    assert open_node("plain", Policy()).status().delta_spent_pico == 0


def test_no_secret_is_shown(open_node, publisher, monkeypatch):
    node = open_node()
    campaign, seen = enrolled(node, publisher), []
    plain = encryption.OfSums.prepare
    monkeypatch.setattr(encryption.OfSums, "prepare", lambda *given: seen.append(given) or plain(*given))
    node.encrypt(campaign.id, RECORDS)
    ((making, _, needed),) = seen
    shown = f"{making._powers!r} {needed!r} {needed.key!r} {making!r}"
    assert str(secret_of(6))[:20] not in shown
    assert str(making._powers.values[0])[:20] not in shown


def test_a_missing_or_changed_delta_is_damage(open_node, publisher, clock, tmp_path):
    node = open_node("one")
    terms = TERMS._replace(noise=DILUTED, delta_pico=1_000_000)
    campaign = enrolled(node, publisher, masked=terms)
    node.encrypt(campaign.id, RECORDS)
    node.close()
    with sqlite3.connect(tmp_path / "one" / "state.db", isolation_level=None) as connection:
        connection.execute("DELETE FROM deltas")
    connection.close()
    assert reason(open_node, "one") == "state_lost"


def test_another_kind_of_campaign_is_refused_both_ways(open_node, publisher):
    node = open_node()
    masked, plain = enrolled(node, publisher), node.enrol(publisher.node_campaign())
    assert reason(node.summarise, masked.id, UNREAD) == "campaign_masked"
    assert reason(node.exchange, masked.id, "own.hsn", []) == "campaign_masked"
    assert reason(node.encrypt, plain.id, UNREAD) == "campaign_not_masked"
    assert reason(node.accept_keys, book_of(masked), campaign=plain.id) == "campaign_not_masked"
    assert node.status().spent_micro == 0


def test_books_rise_and_are_the_dealers(open_node, publisher, clock):
    node = open_node()
    campaign = node.enrol(campaign_of(publisher))
    keys = [*NODE_KEYS, public_of(node)]
    assert reason(node.encrypt, campaign.id, UNREAD) == "keys_unknown"
    second = book_of(campaign, keys=keys, version=2)
    assert node.accept_keys(second).serial == 6
    assert node.accept_keys(second).version == 2
    assert node.status().keys == {campaign.id.hex(): 2}
    assert reason(node.accept_keys, book_of(campaign, keys=keys, version=1)) == "rollback"
    assert reason(node.accept_keys, book_of(campaign, keys=keys[::-1], version=2)) == "equivocation"
    changed = bytearray(book_of(campaign, keys=keys, version=3))
    changed[-1] ^= 1
    assert reason(node.accept_keys, bytes(changed)) == "bad_signature"
    first = node.encrypt(campaign.id, RECORDS)
    assert first.serial == 6
    assert node.accept_keys(book_of(campaign, keys=keys[::-1], version=3)).serial == 1
    assert node.encrypt(campaign.id, UNREAD).raw == first.raw, "a new key gives no second message in a period"
    clock.now += DAY
    assert node.encrypt(campaign.id, RECORDS).serial == 1
    assert reason(node.accept_keys, book_of(campaign, version=4)) == "node_without_key"
    assert node.status().keys == {campaign.id.hex(): 4}
    assert reason(node.accept_keys, book_of(campaign, keys=keys, version=3)) == "rollback"
    assert reason(node.encrypt, campaign.id, UNREAD) == "node_without_key"


def test_a_book_of_no_campaign_or_another_dealer(open_node, publisher):
    node = open_node()
    assert reason(node.accept_keys, b"x") == "unrecognized_campaign"
    first, second = (node.enrol(campaign_of(publisher, name=name, **more)) for name, more in NAMED.items())
    keys = [*NODE_KEYS, public_of(node)]
    books = [book_of(second, keys=keys, dealer=key(91)), book_of(first, keys=keys)]
    assert [node.accept_keys(book).campaign.header.name for book in books] == ["second", "first"]
    assert reason(node.accept_keys, books[0], campaign=first.id) == "malformed"
    assert reason(node.accept_keys, books[1], campaign=second.id) == "malformed"
    assert reason(node.accept_keys, "text") == "argument_invalid"


@pytest.mark.parametrize("way", ["opt-out", "reset"])
def test_after_an_opt_out_or_a_reset_the_old_key_is_useless(open_node, publisher, clock, tmp_path, way):
    node = open_node()
    campaign = enrolled(node, publisher)
    before, book = node.node_id, book_of(campaign, keys=[*NODE_KEYS, public_of(node)])
    if way == "opt-out":
        node.disable()
        assert reason(node.encrypt, campaign.id, UNREAD) == "disabled"
        assert reason(node.accept_keys, book) == "disabled"
        node.enable()
        error = failure(node.encrypt, campaign.id, UNREAD)
        assert error.reason == "node_without_key"
        assert "opt-out" in error.detail
    else:
        node.close()
        Node.reset(tmp_path / "state", publisher.root(), policy=ALLOWED, clock=clock)
        node = open_node(policy=ALLOWED._replace(lifetime_micro=10**9))
        node.enrol(campaign_of(publisher))
        assert reason(node.encrypt, campaign.id, UNREAD) == "keys_unknown"
    assert node.node_id != before
    assert reason(node.accept_keys, book) == "node_without_key"
    newer = book_of(campaign, keys=[*NODE_KEYS, public_of(node)], version=2)
    assert node.accept_keys(newer).version == 2
    assert node.encrypt(campaign.id, RECORDS).serial == 6


def test_a_party_takes_the_first_records_only_and_sums_beyond_the_expected_are_cut_off(
    open_node, publisher, monkeypatch
):
    noiseless(monkeypatch)
    node = open_node()
    campaign = enrolled(node, publisher, masked=TERMS._replace(unit=PARTY))
    most = campaign.nodes.max_records
    taken = []
    monkeypatch.setattr(encryption, "clamped", lambda _, exact: taken.append(list(exact)) or list(exact))
    found = node.encrypt(campaign.id, RECORDS * most)
    assert (found.beyond, found.unread.records) == (most, most)
    assert taken[0][:2] == [most // 2, most // 2]
    monkeypatch.undo()
    by_record = open_node("other").enrol(campaign_of(publisher, name="by record"))
    for beyond, end in ((most + 7, most), (-1, 0)):
        assert set(encryption.clamped(by_record, [beyond] * numbers_of(by_record))) == {end}


def test_a_node_of_both_kinds_sends_files_of_one_kind_each(open_node, publisher, clock, tmp_path):
    node = open_node()
    masked, plain = enrolled(node, publisher), node.enrol(publisher.node_campaign(epsilon_micro=500_000))
    one, two = node.summarise(plain.id, RECORDS), node.encrypt(masked.id, RECORDS)
    assert node.file_ending() == ".hsn"
    assert node.drain(tmp_path / "a.hsn") == 1
    assert (tmp_path / "a.hsn").read_bytes() == one.raw
    (tmp_path / "server" / "roots").mkdir(parents=True)
    outcome = sync(node, Folder(tmp_path / "server"))
    assert (outcome.sent, outcome.released, outcome.refusals) == (2, 2, ())
    sent = {file.suffix: file.read_bytes() for file in (tmp_path / "server" / "reports").iterdir()}
    assert sent == {".hsn": one.raw, ".hse": two.raw}
    assert node.status().spooled == 0


def test_sync_fetches_lists_and_key_books(open_node, publisher, tmp_path):
    node = open_node()
    campaign = node.enrol(campaign_of(publisher))
    keys = [*NODE_KEYS, public_of(node)]
    server = tmp_path / "server"
    for place, content in {
        "nodes/wards.hsl": signed_list(publisher, keys),
        "keys/wards.hsk": book_of(campaign, keys=keys),
    }.items():
        (server / place).parent.mkdir(parents=True)
        (server / place).write_bytes(content)
    (server / "roots").mkdir()
    outcome = sync(node, Folder(server))
    assert (outcome.lists, outcome.key_books, outcome.refusals) == ((("wards", 1),), (("wards", 1),), ())
    assert node.encrypt(campaign.id, RECORDS).serial == 6
    again = sync(node, Folder(server))
    assert (again.lists, again.key_books, again.sent) == ((), (), 1)
    (server / "keys" / "wards.hsk").write_bytes(book_of(campaign, keys=keys[::-1]))
    (refusal,) = sync(node, Folder(server)).refusals
    assert (refusal.step, refusal.reason) == ("keys/wards.hsk", "equivocation")
    (server / "keys" / "wards.hsk").write_bytes(bytes(71_025))  # one more than a book of 100 parties has at most
    asked = []

    class Watching(Folder):
        def fetch(self, place, limit, tag=""):
            asked.append((place, limit))
            return super().fetch(place, limit, tag)

    (refusal,) = sync(node, Watching(server)).refusals
    assert (refusal.step, refusal.reason) == ("keys/wards.hsk", "too_large")
    assert ("keys/wards.hsk", 71_024) in asked
