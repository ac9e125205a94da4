"""The dealer: one set of keys for a campaign, one released set for a period, and what it refuses."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import sys
from collections import Counter
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.masked import MODULUS, TERMS, masked_payload
from support.nodes import NODE_KEYS, PERIOD, node_payload, signed_list
from support.publisher import DAY, NOW, Publisher, key
from support.reports import opened

from aggregator.common import sealing
from aggregator.nodes.campaigns.numbering import ROOM, Numbering, first_numbers, renumbered
from aggregator.nodes.dealer.dealer import JOURNAL_FILE, KEY_FILE, PUBLIC_FILE, Dealer
from aggregator.nodes.dealer.issuing import new_modulus, party_secret
from protocol.documents.envelope import PAYLOAD_TYPES, keyid, read_envelope, seal
from protocol.documents.masked_terms import unfit_modulus
from protocol.errors import DocumentError, InputError, PolicyError, StorageError
from protocol.masked.cipher import Unmasking, mask_all
from protocol.masked.costs import ciphertexts_of
from protocol.masked.keys import own_key, read_key_book
from protocol.masked.release import build_request, read_release

DEALER_SEED = bytes([7]) * 32
IDS = [keyid(each.public) for each in NODE_KEYS]


class World(NamedTuple):
    """A dealer and what the publisher signed for it."""

    dealer: Dealer
    publisher: Publisher
    campaign: bytes
    root: bytes

    @property
    def id(self):
        return opened(self.campaign).id

    def setup(self, keys=tuple(NODE_KEYS[:4]), **options):
        return self.dealer.setup(self.campaign, signed_list(self.publisher, keys, **options), self.root)

    def rekey(self, keys, version=2):
        return self.dealer.rekey(self.campaign, signed_list(self.publisher, keys, version), self.root)

    def request(self, parties, period=PERIOD, version=1):
        return build_request(self.id, period, version, parties)


def new_dealer(folder, **options):
    options = {"modulus": MODULUS, "entropy": lambda size: DEALER_SEED[:size], "clock": lambda: NOW, **options}
    return Dealer.create(folder, **options)


def new_world(folder, *, honest=500_000, colluding=0, **terms):
    dealer, publisher = new_dealer(folder), Publisher()
    own = TERMS._replace(dealer=dealer.public.key, honest_micro=honest, colluding_micro=colluding, **terms)
    campaign = publisher.sign("campaign", masked_payload(publisher, masked=own))
    return World(dealer, publisher, campaign, publisher.root())


@pytest.fixture
def world(tmp_path):
    made = new_world(tmp_path / "dealer")
    yield made
    made.dealer.close()


def refused(kind, reason, call, *arguments, **options):
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    assert caught.value.reason == reason
    return caught.value


def test_parties_open_their_keys_and_exactly_the_released_set_decrypts(world):
    campaign = opened(world.campaign)
    book = read_key_book(world.setup().raw, campaign)
    secrets = {keyid(each.public): own_key(book, each).secret for each in NODE_KEYS[:4]}
    parties = sorted(IDS[:3])
    release = read_release(world.dealer.release(world.request(parties)).raw, campaign)
    needed = ciphertexts_of(campaign)
    sums = Unmasking(MODULUS, needed)
    for place, node in enumerate(parties):
        plaintexts = [100 * place + number for number in range(needed)]
        sums.add(mask_all(plaintexts, secrets[node], campaign.id, PERIOD, MODULUS))
    assert sums.opened(release.elements) == [300 + 3 * number for number in range(needed)]
    one_more = mask_all([5] * needed, secrets[IDS[3]], campaign.id, PERIOD, MODULUS)
    sums.add(one_more)
    refused(DocumentError, "mask_mismatch", sums.opened, release.elements)


def test_a_set_is_released_once_and_the_same_bytes_again(world, tmp_path):
    world.setup()
    first = world.dealer.release(world.request(IDS[:4]))
    assert not first.repeated
    with Dealer.open(tmp_path / "dealer", clock=lambda: NOW) as other:
        again = other.release(world.request(IDS[:4]))
        assert again.repeated
        assert again.raw == first.raw
        refused(PolicyError, "set_released", other.release, world.request(IDS[:3]))
    world.rekey(NODE_KEYS[:5])
    refused(PolicyError, "set_released", world.dealer.release, world.request(IDS[:4], version=2))
    assert [each.period for each in world.dealer.served()[0].releases] == [PERIOD]


def test_of_processes_that_ask_at_once_one_set_is_released(world, tmp_path):
    world.setup()
    sets = [IDS[:4], IDS[:3], IDS[1:4], [*IDS[:2], IDS[3]]]
    children = []
    for parties in sets:
        child = os.fork()
        if child == 0:
            status = 9
            try:
                with Dealer.open(tmp_path / "dealer", clock=lambda: NOW) as dealer:
                    dealer.release(world.request(parties))
                status = 0
            except PolicyError as error:
                status = 1 if error.reason == "set_released" else 9
            finally:
                os._exit(status)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(ends) == [0, 1, 1, 1]
    (released,) = world.dealer.served()[0].releases
    assert released.parties == b"".join(sorted(sets[ends.index(0)]))


def test_what_is_asked_is_checked_and_a_refusal_locks_no_period(world):
    refused(InputError, "not_set_up", world.dealer.release, world.request(IDS[:4]))
    world.setup()
    release = world.dealer.release
    refused(InputError, "book_unknown", release, world.request(IDS[:4], version=2))
    refused(InputError, "party_unknown", release, world.request(IDS[1:5]))
    refused(InputError, "parties_too_few", release, world.request(IDS[:1]))
    refused(InputError, "parties_too_few", release, world.request(IDS[:3]), at_least=4)
    refused(DocumentError, "malformed", release, b"no request")
    for period in (PERIOD - 1, PERIOD + 1, PERIOD + 365, PERIOD + 10_000):
        refused(PolicyError, "period_refused", release, world.request(IDS[:4], period))
    assert world.dealer.served()[0].releases == []
    assert release(world.request(IDS[:2])).missing == tuple(sorted(IDS[2:4]))


@pytest.mark.parametrize(("honest", "colluding", "least"), [(1_000_000, 0, 4), (500_000, 250_000, 3), (1, 0, 1)])
def test_a_set_holds_the_honest_share_and_the_colluding_one(tmp_path, honest, colluding, least):
    world = new_world(tmp_path / "dealer", honest=honest, colluding=colluding)
    world.setup()
    if least > 1:
        refused(InputError, "parties_too_few", world.dealer.release, world.request(IDS[: least - 1]))
    world.dealer.release(world.request(IDS[:least]))


def test_keys_are_made_once_and_the_present_book_is_given_again(world):
    first = world.setup()
    refused(InputError, "already_set_up", world.setup)
    assert world.rekey(NODE_KEYS[:4], version=1).raw == first.raw
    assert world.dealer.book(world.id) == first.raw
    refused(DocumentError, "equivocation", world.rekey, NODE_KEYS[:3], 1)
    newer = world.rekey(NODE_KEYS[:4], version=3)
    assert (newer.version, newer.joined, newer.left, newer.changed) == (2, (), (), ())
    refused(DocumentError, "rollback", world.rekey, NODE_KEYS[:4], 2)


def test_a_join_and_a_leave_give_new_keys_to_few_and_no_serial_repeats(world):
    campaign = opened(world.campaign)
    serials = {}
    boxes = {}
    lists = [NODE_KEYS[:4], NODE_KEYS[:5], NODE_KEYS[1:5], [*NODE_KEYS[:1], *NODE_KEYS[2:5]], NODE_KEYS[:5]]
    before = set()
    for version, keys in enumerate(lists, 1):
        made = world.rekey(keys, version) if version > 1 else world.setup()
        book = read_key_book(made.raw, campaign)
        now = {keyid(each.public) for each in keys}
        assert book.parties.keys() == now
        assert made.joined == tuple(sorted(now - before))
        assert made.left == tuple(sorted(before - now))
        assert len(made.changed) <= 2 * max(len(made.joined), len(made.left))
        for node, party in book.parties.items():
            assert serials.setdefault(party.serial, node) == node
            fresh = node in made.joined or node in made.changed
            assert (boxes.get(node) != party.sealed) is fresh
            assert own_key(book, next(each for each in keys if keyid(each.public) == node)).u == party.u
            boxes[node] = party.sealed
        before = now


def test_a_request_by_an_earlier_book_is_released_with_the_keys_of_that_book(world):
    campaign = opened(world.campaign)
    old = read_key_book(world.setup().raw, campaign)
    for version in range(2, 6):
        world.rekey(NODE_KEYS[: 2 + version % 4], version)
    release = read_release(world.dealer.release(world.request(IDS[:4])).raw, campaign)
    sums = Unmasking(MODULUS, ciphertexts_of(campaign))
    for each in NODE_KEYS[:4]:
        sums.add(mask_all([1] * ciphertexts_of(campaign), own_key(old, each).secret, campaign.id, PERIOD, MODULUS))
    assert set(sums.opened(release.elements)) == {4}


def test_only_signed_documents_for_this_dealer_are_set_up(world, tmp_path):
    publisher, setup = world.publisher, world.dealer.setup
    listed = signed_list(publisher, NODE_KEYS[:4])
    other = new_dealer(tmp_path / "other", entropy=lambda size: bytes([9]) * size)
    refused(InputError, "wrong_key", other.setup, world.campaign, listed, world.root)
    terms = TERMS._replace(dealer=world.dealer.public.key)
    number = next(each for each in count(MODULUS + 2, 2) if not unfit_modulus(each))
    modulus = publisher.sign("campaign", masked_payload(publisher, masked=terms._replace(modulus=number)))
    refused(InputError, "wrong_key", setup, modulus, listed, world.root)
    unmasked = publisher.sign("campaign", node_payload(publisher))
    refused(InputError, "campaign_not_masked", setup, unmasked, listed, world.root)
    refused(InputError, "campaign_not_masked", setup, publisher.campaign(), listed, world.root)
    refused(DocumentError, "other_name", setup, world.campaign, signed_list(publisher, name="x"), world.root)
    refused(InputError, "parties_too_few", setup, world.campaign, signed_list(publisher, NODE_KEYS[:1]), world.root)
    small = publisher.sign("campaign", masked_payload(publisher, masked=terms._replace(most_parties=3)))
    refused(InputError, "parties_too_many", setup, small, listed, world.root)
    late = Dealer.open(tmp_path / "dealer", clock=lambda: NOW + 400 * DAY)
    refused(DocumentError, "expired", late.setup, world.campaign, listed, world.root)
    assert world.dealer.served() == []
    listed = signed_list(world.publisher, NODE_KEYS[:4])
    payload = read_envelope(world.campaign, "campaign").payload
    forged = seal(PAYLOAD_TYPES["campaign"], payload, [key(50)])
    refused(DocumentError, "bad_signature", world.dealer.setup, forged, listed, world.root)
    strange = seal(PAYLOAD_TYPES["nodes"], read_envelope(listed, "nodes").payload, [key(50)])
    refused(DocumentError, "bad_signature", world.dealer.setup, world.campaign, strange, world.root)


def test_a_campaign_that_a_copy_does_not_know_gets_no_set_for_a_period_that_had_begun_at_the_adoption(world, tmp_path):
    """The copy is older than the campaign's setup; a second setup of the campaign makes other keys."""
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "dealer", copy)
    world.setup()
    world.dealer.release(world.request(IDS[:4]))
    listed = signed_list(world.publisher, NODE_KEYS[:4])
    with Dealer.adopt(copy, clock=lambda: NOW) as adopted:
        adopted.setup(world.campaign, listed, world.root)
        refused(PolicyError, "period_refused", adopted.release, world.request(IDS[:3]))
    with Dealer.open(copy, clock=lambda: NOW + DAY) as adopted:
        adopted.release(world.request(IDS[:3], PERIOD + 1))


def test_another_machine_is_noticed_and_another_place_is_none(world, tmp_path, monkeypatch):
    Dealer.open((tmp_path / "dealer").rename(tmp_path / "moved")).close()
    (tmp_path / "moved").rename(tmp_path / "dealer")
    monkeypatch.setattr("aggregator.nodes.dealer.dealer.machine_mark", lambda: bytes(32))
    refused(StorageError, "dealer_copied", Dealer.open, tmp_path / "dealer")


@pytest.mark.parametrize("where", ["in", "below", "above", "linked"])
@pytest.mark.parametrize("kind", ["workspace", "store"])
def test_a_dealer_is_apart_from_workspaces_and_stores(tmp_path, where, kind):
    other = tmp_path / "other"
    if where == "above":
        dealer = new_dealer(tmp_path / "dealer")
        dealer.close()
        other = tmp_path / "dealer" / "x" / "other"
    (other / "keys").mkdir(parents=True)
    if kind == "workspace":
        (other / "root.hst").write_bytes(b"")
    else:
        (other / "nodes.sqlite").write_bytes(b"")
    if where == "above":
        refused(InputError, "dealer_in_workspace", Dealer.open, tmp_path / "dealer")
        return
    if where == "in":
        refused(StorageError, "dealer_exists", new_dealer, other)
    if where == "linked":
        (tmp_path / "link").symlink_to(other)
        other = tmp_path / "link"
    refused(InputError, "dealer_in_workspace", new_dealer, other / "dealer")
    assert not (other / "dealer").exists()


def test_a_dealer_does_not_work_from_within_a_workspace(world, tmp_path, monkeypatch):
    (tmp_path / "work" / "keys" / "x").mkdir(parents=True)
    (tmp_path / "work" / "root.hst").write_bytes(b"")
    monkeypatch.chdir(tmp_path / "work" / "keys")
    refused(InputError, "dealer_in_workspace", Dealer.open, tmp_path / "dealer")


def test_the_secret_is_under_a_passphrase_and_a_wrong_one_records_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("aggregator.publishing.keys.COST", sealing.Cost(1, 8192))
    with new_dealer(tmp_path / "dealer", passphrase=b"right", entropy=lambda size: bytes([7]) * size) as dealer:
        publisher = Publisher()
        terms = TERMS._replace(dealer=dealer.public.key)
        campaign = publisher.sign("campaign", masked_payload(publisher, masked=terms))
        arguments = campaign, signed_list(publisher, NODE_KEYS[:4]), publisher.root()
        with Dealer.open(tmp_path / "dealer", b"wrong", clock=lambda: NOW) as wrong:
            refused(InputError, "passphrase_wrong", wrong.setup, *arguments)
        assert dealer.served() == []
        dealer.setup(*arguments)
    assert bytes([7]) * 32 not in (tmp_path / "dealer" / KEY_FILE).read_bytes()
    for name in (KEY_FILE, JOURNAL_FILE):
        assert (tmp_path / "dealer" / name).stat().st_mode & 0o077 == 0


def test_damage_is_refused(world, tmp_path):
    world.setup()
    world.dealer.release(world.request(IDS[:4]))
    world.dealer.close()
    connection = sqlite3.connect(tmp_path / "dealer" / JOURNAL_FILE, isolation_level=None)
    for statement in ("DELETE FROM releases", "UPDATE releases SET period = period + 1"):
        connection.execute(statement)
        with Dealer.open(tmp_path / "dealer", clock=lambda: NOW) as dealer:
            refused(StorageError, "dealer_damaged", dealer.release, world.request(IDS[:3]))
    connection.close()
    (tmp_path / "dealer" / PUBLIC_FILE).write_bytes(b"{}")
    refused(StorageError, "dealer_damaged", Dealer.open, tmp_path / "dealer")
    refused(StorageError, "not_a_dealer", Dealer.open, tmp_path)


def test_a_dealer_is_made_whole_or_not_at_all(tmp_path, monkeypatch):
    def broken(*_arguments):
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr("aggregator.nodes.dealer.dealer.create_journal", broken)
        refused(StorageError, "io_failed", new_dealer, tmp_path / "dealer")
    assert list(tmp_path.iterdir()) == []
    new_dealer(tmp_path / "dealer").close()


def test_secrets_differ_by_campaign_node_and_serial_and_fill_4224_bits():
    seed = bytes(32)
    made = [party_secret(seed, bytes([c]) * 32, bytes([n]) * 8, s) for c in (0, 1) for n in (0, 1) for s in (1, 2)]
    assert len(set(made)) == 8
    assert max(each.bit_length() for each in made) > 4200
    assert made[0] != party_secret(bytes([1]) * 32, bytes(32), bytes(8), 1)


def test_a_modulus_needs_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    assert "masked" in refused(InputError, "missing_extra", new_modulus).detail


# The numbers u of parties: the invariant n/2 < u ≤ n over joins and leaves, and what the printed algorithm does


SEQUENCES = st.lists(st.integers(min_value=-1, max_value=30), max_size=60)
"""−1: a join; another number: the party at this place, modulo n, leaves."""


def node_number(number):
    return number.to_bytes(8, "big")


def problems(numbers):
    """What is wrong with numbers of parties."""
    parties, holders = len(numbers), Counter(numbers.values())
    found = [f"{u} of {parties}" for u in numbers.values() if not parties < 2 * u <= 2 * parties]
    return found + [f"{u} has {held}" for u, held in holders.items() if held > ROOM]


def others_changed(before, after):
    return sum(before[each] != after[each] for each in before.keys() & after.keys())


class Printed(Numbering):
    """The algorithm as printed: without the case of a leaver who held the largest number with one other party."""

    def leave(self, node_number):
        parties, number = len(self._numbers), self._numbers[node_number]
        if parties % 2 == 0 and number == parties and len(self._holders[number]) == 2:
            del self._numbers[node_number]
            self._holders[number].remove(node_number)
            return
        super().leave(node_number)

    def _free(self, parties, freed=0):
        """The number that the case names, also if the broken invariant leaves it no room."""
        try:
            return super()._free(parties, freed)
        except StopIteration:
            return parties // 2 + 1


@examples(60)
@given(st.integers(min_value=0, max_value=9), SEQUENCES)
def test_joins_and_leaves_keep_the_invariant_and_change_two_others_at_most(start, steps):
    numbering, last = Numbering(first_numbers(map(node_number, range(start)))), start
    assert problems(numbering.numbers) == []
    for step in steps:
        before = numbering.numbers
        if step < 0 or not before:
            numbering.join(node_number(last))
            last += 1
        else:
            numbering.leave(sorted(before)[step % len(before)])
        assert problems(numbering.numbers) == []
        assert others_changed(before, numbering.numbers) <= 2


@examples(60)
@given(st.sets(st.integers(0, 40), max_size=25), st.sets(st.integers(0, 40), max_size=25))
def test_a_new_list_changes_two_others_for_each_join_or_leave_beyond_replacements(old, new):
    before = first_numbers(map(node_number, old))
    after = renumbered(before, map(node_number, new))
    assert after.keys() == set(map(node_number, new))
    assert problems(after) == []
    if old:
        assert others_changed(before, after) <= 2 * abs(len(old) - len(new))


def grown_and_shrunk(numbering, steps, seed):
    """Random joins and leaves; every second time that many leave, holders of the largest number go first.

    Returns:
        the first step with a broken invariant, 0 if there is none; and the last numbers.
    """
    generator, last, broken = random.Random(seed), 0, 0
    for step in range(1, steps + 1):
        numbers = numbering._numbers
        if generator.random() < (0.8 if step % 400 < 200 else 0.2) or len(numbers) < 2:
            numbering.join(node_number(last))
            last += 1
        else:
            largest = max(numbers.values())
            numbering.leave(generator.choice([each for each, u in numbers.items() if u == largest]))
        if not broken and problems(numbering._numbers):
            broken = step
    return broken, numbering.numbers


def test_the_invariant_holds_over_a_long_run_and_the_printed_algorithm_breaks_it():
    assert grown_and_shrunk(Numbering({}), 3_000, 1)[0] == 0
    broken, _ = grown_and_shrunk(Printed({}), 3_000, 1)
    assert 0 < broken < 50


def test_the_noise_of_the_printed_algorithm_falls_below_one_copy():
    """Divided noise: a party adds 1/u of a copy of the noise. With the invariant the sum Σ 1/u is at least one copy."""
    for kind, enough in ((Numbering, True), (Printed, False)):
        numbering = kind(first_numbers(map(node_number, range(64))))
        while len(numbering.numbers) > 8:
            numbers = numbering.numbers
            parties = len(numbers)
            leaver = min(numbers, key=lambda each: (numbers[each] != parties, numbers[each], each))
            numbering.leave(leaver)
        copies = sum(1 / u for u in numbering.numbers.values())
        assert (copies >= 1) is enough
        if not enough:
            assert copies < 0.15
