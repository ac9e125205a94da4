"""Files of strangers for masked campaigns: refused in time and memory that their length, or the campaign, bounds."""

import tracemalloc

import pytest
from support.failures import failure
from support.masked import DEALER, TERMS, book_of, masked_campaign, message_of
from support.nodes import NODE_KEYS
from support.publisher import key

from protocol import canonical
from protocol.documents.envelope import PAYLOAD_TYPES, SIZE_LIMITS, Envelope, keyid, seal, write_envelope
from protocol.masked import keys
from protocol.masked.fields import largest_file
from protocol.masked.keys import PartyKey, build_key_book, parse_key_book, read_key_book
from protocol.masked.message import parse_message, read_message
from protocol.masked.release import MAX_REQUEST_BYTES, build_request, parse_request, read_release
from protocol.nodes.summary import MARK

KIND = PAYLOAD_TYPES["keys"]
SMALL = masked_campaign()
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


@pytest.mark.parametrize("campaign", [SMALL, LARGEST])
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
        (lambda data: read_release(data, SMALL), bytes(SIZE_LIMITS["release"])),
    ):
        reason, peak = reading(function, raw)
        assert reason == "too_large"
        assert peak < 100_000


def test_the_largest_request_is_read():
    ids = [number.to_bytes(8, "big") for number in range(65536)]
    raw = build_request(SMALL.id, (1 << 32) - 1, 1, ids)
    assert len(raw) < MAX_REQUEST_BYTES
    assert parse_request(raw).parties == tuple(ids)
    assert failure(build_request, SMALL.id, 1, 1, [*ids, b"\xff" * 8]).reason == "malformed"


def test_the_longest_message_takes_memory_in_proportion():
    body = canonical.unpack(read_message(message_of(SMALL))[0].payload)
    for count, expected in ((16_000, None), (16_001, "malformed")):
        raw = canonical.pack({**body, "ciphertexts": bytes(511) + b"\x02" + bytes(512) * (count - 1)})
        reason, peak = reading(parse_message, raw)
        assert reason == expected
        assert peak < 4.5 * len(raw)


def test_books_cut_or_changed_anywhere_are_refused():
    raw = book_of(SMALL, NODE_KEYS[:2])
    reasons = {"malformed", "bad_signature", "unsupported_version", "wrong_role"}
    for place in range(0, len(raw), 5):
        changed = raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :]
        assert failure(read_key_book, changed, SMALL).reason in reasons
        assert failure(read_key_book, raw[:place], SMALL).reason == "malformed"
