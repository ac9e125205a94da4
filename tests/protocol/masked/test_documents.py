"""Messages, key books, requests and releases: what is built is read, in one way only; sets of messages unite."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import failure
from support.masked import (
    DEALER,
    MODULUS,
    TERMS,
    any_ciphertexts,
    book,
    book_of,
    masked_campaign,
    message_of,
    secret_of,
)
from support.nodes import NODE_KEYS, PERIOD, node_campaign, plain_sums, summary_of
from support.nodes import TERMS as CLEAR
from support.publisher import NOW, Publisher, key

from protocol import canonical
from protocol.documents.campaign import DISCRETE
from protocol.documents.envelope import PAYLOAD_TYPES, SIZE_LIMITS, Envelope, keyid, seal, write_envelope
from protocol.documents.masked_terms import least_slot_bits
from protocol.errors import DocumentError, InputError
from protocol.masked import keys
from protocol.masked.costs import ciphertexts_of, ranges_of
from protocol.masked.fields import largest_file
from protocol.masked.keys import (
    MaskedKey,
    PartyKey,
    _sealed_bytes,
    build_key_book,
    open_key,
    own_key,
    parse_key_book,
    read_key_book,
    seal_key,
)
from protocol.masked.message import MessageSet, build_message, judge_message, parse_message, read_message
from protocol.masked.release import (
    MAX_REQUEST_BYTES,
    Request,
    build_release,
    build_request,
    check_answers,
    parse_request,
    read_release,
)
from protocol.nodes.summary import (
    MARK,
    SummarySet,
    build_node_list,
    build_summary,
    judge_summary,
    parse_node_list,
    read_summaries,
)
from protocol.nodes.terms import released_vectors

CAMPAIGN = masked_campaign()
OTHER = masked_campaign(DISCRETE)
IDS = [keyid(one.public) for one in NODE_KEYS]
WORDS = st.integers(0, (1 << 32) - 1)
ELEMENTS = st.integers(1, MODULUS**2 - 1).filter(lambda number: number % MODULUS)
PARTIES = st.sets(st.binary(min_size=8, max_size=8), min_size=1, max_size=30)
POOL = [
    *(message_of(CAMPAIGN, node, number) for node in range(3) for number in (1, 2, 3, 4)),
    message_of(CAMPAIGN, 0, 1, PERIOD + 1),
    message_of(OTHER, 0),
]


def refused(action, *arguments):
    error = failure(action, *arguments)
    return None if error is None else error.reason


def test_a_masked_campaign_takes_no_sums_in_the_clear_and_the_other_way_round():
    clear = node_campaign()
    assert refused(build_summary, CAMPAIGN, NODE_KEYS[0], PERIOD, plain_sums(CAMPAIGN)) == "unrecognized_campaign"
    assert refused(build_message, clear, NODE_KEYS[0], PERIOD, 1, [2]) == "campaign_not_masked"
    listed = parse_node_list(build_node_list(Publisher().header("wards"), [one.public for one in NODE_KEYS]))
    assert refused(judge_summary, summary_of(clear), CAMPAIGN, listed, NOW) == "unrecognized_campaign"
    assert refused(judge_message, POOL[0], clear, listed, book(CAMPAIGN), NOW) == "unrecognized_campaign"
    for action in (ciphertexts_of, ranges_of):
        assert refused(action, clear) == "campaign_not_masked"
    assert refused(read_key_book, book_of(CAMPAIGN), clear) == "campaign_not_masked"


@given(st.integers(1, 1 << 40), st.integers(2, 65536), st.integers(40, 10**9), st.sampled_from(["record", "party"]))
def test_the_least_slot_is_the_smallest_that_holds_every_total(records, parties, epsilon, unit):
    """Without the code: doubled sums of all parties at both ends, compared with powers of two."""
    subjects = list(released_vectors(CAMPAIGN))
    bits = least_slot_bits(subjects, unit=unit, max_records=records, most_parties=parties, epsilon_micro=epsilon)
    share = epsilon // 4
    scale = records if unit == "party" else 1
    largest = parties * (records * 65536 - (-64 * 10**6 * 65536 * scale) // share)
    assert bits % 8 == 0
    assert largest < 1 << bits - 1
    assert bits == 40 or largest >= 1 << bits - 9


@pytest.mark.parametrize("numbers", [[], [2, 3], [0], [MODULUS], [MODULUS**2], [-1], [1 << 4096]])
def test_a_message_of_bad_elements_is_not_built(numbers):
    assert refused(build_message, CAMPAIGN, NODE_KEYS[0], PERIOD, 1, numbers) in ("value_out_of_domain", "malformed")


@examples(30)
@given(WORDS, st.integers(1, (1 << 32) - 1), PARTIES, ELEMENTS)
def test_requests_and_releases_are_read_as_they_were_built(period, version, parties, element):
    raw = build_request(CAMPAIGN.id, period, version, [*parties, *parties])
    found = parse_request(raw)
    assert found == Request(CAMPAIGN.id, period, version, tuple(sorted(parties)))
    released = build_release(CAMPAIGN, DEALER, found, [element])
    assert released == build_release(CAMPAIGN, DEALER, found, [element])
    release = read_release(released, CAMPAIGN)
    check_answers(release, found)
    assert (release.request, release.elements) == (found, (element,))
    assert (
        refused(check_answers, release, found._replace(version=version % 9 + 1 + (version <= 9))) == "release_mismatch"
    )


def test_only_the_dealer_of_the_campaign_signs():
    request = Request(CAMPAIGN.id, PERIOD, 1, tuple(sorted(IDS)))
    elements = any_ciphertexts(CAMPAIGN)
    assert refused(build_release, CAMPAIGN, key(99), request, elements) == "wrong_key"
    assert refused(build_key_book, CAMPAIGN, key(99), 1, 1, {}) == "wrong_key"
    assert refused(build_release, OTHER, DEALER, request, any_ciphertexts(OTHER)) == "unrecognized_campaign"
    assert refused(build_release, CAMPAIGN, DEALER, request._replace(parties=()), elements) == "malformed"
    assert refused(build_release, CAMPAIGN, DEALER, request, [0]) == "invalid_release"


@pytest.mark.parametrize("number", [0, 127, 128, 255, 256, 65535, 65536, (1 << 32) - 1])
def test_the_length_of_a_box_follows_from_its_public_numbers(number):
    for serial, u in ((number, 5), (5, number)):
        sealed = seal_key(NODE_KEYS[0].public, CAMPAIGN.id, IDS[0], serial, u, secret_of(1))
        assert len(sealed) == _sealed_bytes(serial, u)


def test_a_key_shows_no_secret():
    assert repr(MaskedKey(3, 2, secret_of(1))) == "MaskedKey(serial=3, u=2)"


def test_a_key_book_is_read_as_it_was_built():
    found = book(CAMPAIGN)
    assert set(found.parties) == set(IDS)
    assert [own_key(found, one) for one in NODE_KEYS] == [(serial, 5, secret_of(serial)) for serial in range(1, 6)]
    again = build_key_book(CAMPAIGN, DEALER, found.version, found.list_version, found.parties)
    assert again == book_of(CAMPAIGN)
    twice = {node: party._replace(serial=1) for node, party in found.parties.items()}
    assert refused(build_key_book, CAMPAIGN, DEALER, 1, 1, twice) == "invalid_keys"
    assert refused(build_key_book, CAMPAIGN, DEALER, 0, 1, found.parties) == "malformed"
    small = masked_campaign(masked=TERMS._replace(most_parties=4))
    assert refused(build_key_book, small, DEALER, 1, 1, found.parties) == "invalid_keys"


def test_sets_of_messages_and_of_summaries_are_never_equal_and_take_only_their_own():
    assert MessageSet() != SummarySet()
    mixed = POOL[0] + summary_of(node_campaign(terms=CLEAR)) + POOL[4]
    assert len(MessageSet.from_bytes(mixed)) == 2
    assert len(SummarySet.from_bytes(mixed)) == 1
    assert [piece.reason for piece in read_summaries(mixed, "masked")] == [None, "invalid_message", None]


def test_errors_say_no_secret_and_have_one_line():
    for action in (
        lambda: seal_key(bytes(32), CAMPAIGN.id, IDS[0], 1, 1, secret_of(1)),
        lambda: seal_key(NODE_KEYS[0].public, CAMPAIGN.id, IDS[0], 1, 1, secret_of(1) << 8),
        lambda: open_key(b"x" * 700, NODE_KEYS[0], CAMPAIGN.id),
    ):
        with pytest.raises((DocumentError, InputError)) as error:
            action()
        assert str(secret_of(1))[:20] not in str(error.value)
        assert "\n" not in str(error.value)
        assert error.value.__cause__ is None
        assert error.value.__context__ is None


# Files of strangers: refused in time and memory that their length, or the campaign, bounds


KIND = PAYLOAD_TYPES["keys"]
LARGE = masked_campaign(masked=TERMS._replace(most_parties=2000))
LARGEST = masked_campaign(masked=TERMS._replace(most_parties=65536, slot_bits=48))


def reading(function, *arguments):
    """Reason of the refusal, None if there is none, and the largest memory that it took, in bytes."""
    tracemalloc.start()
    error = failure(function, *arguments)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return None if error is None else error.reason, peak


def boxes(count):
    """The parties of a book, with boxes of the right length that nobody can open."""
    return {
        number.to_bytes(8, "big"): PartyKey(number, count, bytes(keys._sealed_bytes(number, count)))
        for number in range(count)
    }


@pytest.mark.parametrize("campaign", [CAMPAIGN, LARGEST])
def test_a_key_book_of_64_mebibytes_is_refused_before_anything_is_copied(campaign):
    for raw in (bytes(SIZE_LIMITS["keys"]), MARK + bytes(SIZE_LIMITS["keys"])):
        reason, peak = reading(read_key_book, raw, campaign)
        assert reason == "too_large"
        assert peak < 100_000


def test_the_largest_book_that_a_campaign_allows_is_read():
    """Serial numbers of five bytes make the longest entries."""
    count = 2000
    first = (1 << 32) - count
    parties = {
        number.to_bytes(8, "big"): PartyKey(first + number, count, bytes(keys._sealed_bytes(first + number, count)))
        for number in range(count)
    }
    raw = build_key_book(LARGE, DEALER, 1, 1, parties)
    assert len(read_key_book(raw, LARGE).parties) == count
    assert 0.96 * largest_file("keys", LARGE) < len(raw) < largest_file("keys", LARGE)


def test_memory_is_a_small_multiple_of_a_book_whoever_signed_it():
    payload = canonical.pack({"x": bytes(1_300_000)})
    forged = write_envelope(Envelope(KIND, payload, ((keyid(DEALER.public), bytes(64)),)))
    honest = build_key_book(LARGE, DEALER, 1, 1, boxes(1500))
    for raw, expected in (
        (seal(KIND, payload, [key(99)]), "malformed"),
        (forged, "bad_signature"),
        (seal(KIND, payload, [DEALER]), "malformed"),
        (honest, None),
    ):
        reason, peak = reading(read_key_book, raw, LARGE)
        assert reason == expected
        assert peak < 6.5 * len(raw)


@pytest.mark.parametrize("filling", [b"\x80", b"\x90", b"\xc0", b"\xa0"])
def test_a_payload_of_very_many_values_is_refused_before_they_are_made(filling):
    """A million empty maps take a megabyte in a file and a hundred in memory."""
    array = b"\xdd" + (1_000_000).to_bytes(4, "big") + filling * 1_000_000
    for raw, parse in (
        (array, parse_key_book),
        (b"\x82\xa1a" + array + b"\xa1b\xc0", parse_key_book),
        (array, parse_message),
    ):
        reason, peak = reading(parse, raw)
        assert reason == "malformed"
        assert peak < 100_000


def test_a_request_or_release_that_is_too_long_is_refused_before_it_is_read():
    for function, raw in (
        (parse_request, bytes(MAX_REQUEST_BYTES + 1)),
        (lambda data: read_release(data, CAMPAIGN), bytes(SIZE_LIMITS["release"])),
    ):
        reason, peak = reading(function, raw)
        assert reason == "too_large"
        assert peak < 100_000


def test_the_largest_request_is_read():
    ids = [number.to_bytes(8, "big") for number in range(65536)]
    raw = build_request(CAMPAIGN.id, (1 << 32) - 1, 1, ids)
    assert len(raw) < MAX_REQUEST_BYTES
    assert parse_request(raw).parties == tuple(ids)
    assert failure(build_request, CAMPAIGN.id, 1, 1, [*ids, b"\xff" * 8]).reason == "malformed"


def test_the_longest_message_takes_memory_in_proportion():
    body = canonical.unpack(read_message(message_of(CAMPAIGN))[0].payload)
    for count, expected in ((16_000, None), (16_001, "malformed")):
        raw = canonical.pack({**body, "ciphertexts": bytes(511) + b"\x02" + bytes(512) * (count - 1)})
        reason, peak = reading(parse_message, raw)
        assert reason == expected
        assert peak < 4.5 * len(raw)


def test_books_cut_or_changed_anywhere_are_refused():
    raw = book_of(CAMPAIGN, NODE_KEYS[:2])
    reasons = {"malformed", "bad_signature", "unsupported_version", "wrong_role"}
    for place in range(0, len(raw), 5):
        changed = raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :]
        assert failure(read_key_book, changed, CAMPAIGN).reason in reasons
        assert failure(read_key_book, raw[:place], CAMPAIGN).reason == "malformed"
