"""The terms of campaigns for nodes, and of masked campaigns.

A node holds the records of many people and sends one summary of noisy sums per period. A campaign for nodes asks no
questions. A masked campaign is one whose nodes (here *parties*) encrypt their sums, so that only the sum of all can be
decrypted. Source: docs/formats.md, section 5 (maps ``nodes`` and ``masked``); docs/math.md, section 6.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import SCALE
from protocol.documents.asked import check_asked
from protocol.documents.payload import read_field, read_integer, read_text
from protocol.epsilon import MICRO, PrivacyLoss
from protocol.errors import DocumentError, InputError
from protocol.questions import MOMENT, SQUARE

if TYPE_CHECKING:
    from protocol.documents.payload import Header
    from protocol.questions import Subject
    from protocol.schema import Schema

NODES_KEY = "nodes"
"""Key of the nodes' terms in a campaign's payload. It must be in ``crit`` too, so that an older reader refuses it."""
GLOBAL, SMOOTH = "global", "smooth"
SENSITIVITY_KINDS = (GLOBAL, SMOOTH)
"""What the size of a summary's noise follows from: public bounds alone, or also the records' smooth sensitivity."""
MAX_RECORDS = 1 << 40
MAX_NUMBERS = 1 << 19
"""Largest number of integers in one summary."""
_NODES_KEYS = {"list", "max_records", "least_epsilon_micro", "sensitivity"}


class NodeTerms(NamedTuple):
    """The map ``nodes`` of a campaign.

    Attributes:
        list_name: name of the list of nodes whose summaries count.
        max_records: public upper limit for a node's records. It only limits the range of released numbers.
        least_epsilon_micro: smallest ε that a summary may state, in millionths.
        sensitivity: one of :data:`SENSITIVITY_KINDS`.
    """

    list_name: str
    max_records: int
    least_epsilon_micro: int
    sensitivity: str = GLOBAL

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as the map that a campaign's payload contains."""
        return {
            "list": self.list_name,
            "max_records": self.max_records,
            "least_epsilon_micro": self.least_epsilon_micro,
            "sensitivity": self.sensitivity,
        }


def parse_nodes(
    body: dict[str, Any], header: Header, schema: Schema, family: str, epsilon_micro: int
) -> NodeTerms | None:
    """Read the terms of a campaign for nodes from its payload, or return None if it is a campaign for devices.

    ``schema`` has all stated features with their groups; ``family`` is that of the campaign's fit.

    Raises:
        DocumentError: ``invalid_campaign``: the map is wrong; ``nodes`` is a key without being in ``crit``, or the
            reverse; the campaign also has questions, answers, a series or a model to evaluate; its ε is too small to be
            divided; it groups values that no released vector counts; a summary would have more than :data:`MAX_NUMBERS`
            integers.
    """
    if (NODES_KEY in body) != (NODES_KEY in header.crit):
        raise DocumentError(_REASON, "'nodes' is a key that 'crit' does not name, or the other way round")
    if NODES_KEY not in body:
        return None
    entry = read_field(body, NODES_KEY, dict, _REASON)
    if set(entry) != _NODES_KEYS:
        raise DocumentError(_REASON, f"'nodes' has other keys than {', '.join(sorted(_KEYS))}")
    if body.get("questions") != [] or body.get("answers") != 0 or "series" in body or family == "outcome":
        raise DocumentError(
            _REASON, "a campaign for nodes has no questions, 0 answers, no series and no model to evaluate"
        )
    sensitivity = read_text(entry, "sensitivity", _REASON)
    if sensitivity not in SENSITIVITY_KINDS:
        raise DocumentError(_REASON, f"'sensitivity' is not one of {', '.join(SENSITIVITY_KINDS)}")
    vectors = len(_released(schema, family))
    least = read_integer(entry, "least_epsilon_micro", 1, max(epsilon_micro, 1), _REASON)
    if least < vectors:
        raise DocumentError(_REASON, f"an ε is less than a millionth for each of {vectors} released vectors")
    return NodeTerms(
        list_name=read_text(entry, "list", _REASON),
        max_records=read_integer(entry, "max_records", 1, MAX_RECORDS, _REASON),
        least_epsilon_micro=least,
        sensitivity=sensitivity,
    )


def _released(schema: Schema, family: str) -> list[Subject]:
    """Return what each released vector of a campaign for nodes sums. Raise DocumentError for too many numbers."""
    from protocol.noise.sums import summed_subjects  # imported here, since devices never need it

    problem = ""
    try:
        subjects = summed_subjects(schema, family)
    except InputError as error:
        problem = error.detail
    if problem:
        raise DocumentError(_REASON, problem)
    check_asked(schema, subjects, _REASON)
    if sum(subject.size for subject in subjects) > MAX_NUMBERS:
        raise DocumentError(_REASON, f"a summary would hold more than {MAX_NUMBERS} numbers")
    return subjects


def node_loss(schema: Schema, family: str, epsilon_micro: int) -> PrivacyLoss:
    """Return the exact worst privacy loss of a node's summary, in nats: Q·⌊ε/Q⌋ for Q released vectors.

    The loss is for adding or removing one record; with the sensitivity ``smooth`` for changing the features of one.
    """
    from fractions import Fraction

    from protocol.noise.sums import summed_subjects

    vectors = len(summed_subjects(schema, family))
    return PrivacyLoss(Fraction(1), Fraction(epsilon_micro // vectors * vectors, MICRO))


KEY = "masked"
"""Key of the masked terms in a campaign's payload. ``crit`` must name it too, so that older readers refuse it."""
DIVIDED, DILUTED = "divided", "diluted"
NOISES = (DIVIDED, DILUTED)
"""How the parties share the noise of a sum: each adds a negative binomial part, or each adds it all with a chance."""
RECORD, PARTY = "record", "party"
UNITS = (RECORD, PARTY)
"""What the noise protects: one record, or all records of one party."""
MODULUS_BYTES = 256
DEALER_BYTES = 32
MAX_PARTIES = 1 << 16
MAX_DELTA_PICO = 10**9
LEAST_SLOT_BITS, MOST_SLOT_BITS = 40, 200
PLAINTEXT_BITS = 2000
"""Number of bits of a plaintext that slots may fill. The modulus has 2048, so the sum of all slots stays below it."""
MAX_CIPHERTEXTS = 16_000
"""Largest number of ciphertexts in one message: 512 bytes each, less than 8 MiB together."""
TAIL = 64
"""The largest noise is taken as this multiple of 1/rate; a sum of noise exceeds it with probability below e^{−60}."""
_REASON = "invalid_campaign"
_KEYS = {
    "colluding_micro",
    "dealer",
    "delta_pico",
    "honest_micro",
    "modulus",
    "most_parties",
    "noise",
    "slot_bits",
    "unit",
}


class MaskedTerms(NamedTuple):
    """The map ``masked`` of a campaign.

    Attributes:
        dealer: Ed25519 public key of the dealer, who makes the parties' keys and releases sums; 32 bytes.
        modulus: N, an odd number of exactly 2048 bits. Ciphertexts are numbers below N².
        noise: one of :data:`NOISES`.
        delta_pico: δ of the whole release for adding or removing a unit, in 10^−12; 0 for ``divided`` noise.
        honest_micro: γ, the share of parties that is assumed to add its noise, in millionths.
        colluding_micro: κ, the share of parties that may reveal its noise to the aggregator, in millionths.
        most_parties: largest number of parties.
        unit: what the noise protects, one of :data:`UNITS`.
        slot_bits: w, the number of bits of a slot, the part of a plaintext that holds one number.
    """

    dealer: bytes
    modulus: int
    noise: str
    delta_pico: int
    honest_micro: int
    colluding_micro: int
    most_parties: int
    unit: str
    slot_bits: int

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as the map that a campaign's payload contains."""
        return {**self._asdict(), "modulus": self.modulus.to_bytes(MODULUS_BYTES, "big")}


def parse_masked(
    body: dict[str, Any], header: Header, nodes: NodeTerms | None, schema: Schema, family: str, epsilon_micro: int
) -> MaskedTerms | None:
    """Read the terms of a masked campaign from its payload, or return None if the campaign is not masked.

    The arguments are those of :func:`parse_nodes`, and its result: None for a campaign for devices. Raises
    DocumentError ``invalid_campaign``: the map is wrong; ``masked`` is a key without being in ``crit``, or the reverse;
    the campaign is not for nodes, has noise for smooth sensitivity, or allows an ε below its own; a slot could
    overflow; a message would have more than :data:`MAX_CIPHERTEXTS` ciphertexts.
    """
    if (KEY in body) != (KEY in header.crit):
        raise DocumentError(_REASON, "'masked' is a key that 'crit' does not name, or the other way round")
    if KEY not in body:
        return None
    if nodes is None or nodes.sensitivity != GLOBAL or nodes.least_epsilon_micro != epsilon_micro:
        raise DocumentError(
            _REASON, "a masked campaign is for nodes, with the sensitivity 'global' and one ε for all of them"
        )
    terms = _parse_terms(read_field(body, KEY, dict, _REASON))
    _check_slots(terms, nodes, schema, family, epsilon_micro)
    return terms


def _parse_terms(entry: dict[str, Any]) -> MaskedTerms:
    if set(entry) != _KEYS:
        raise DocumentError(_REASON, f"'masked' has other keys than {', '.join(sorted(_KEYS))}")
    dealer, modulus = (read_field(entry, key, bytes, _REASON) for key in ("dealer", "modulus"))
    if len(dealer) != DEALER_BYTES or len(modulus) != MODULUS_BYTES:
        raise DocumentError(_REASON, f"'dealer' has not {DEALER_BYTES} bytes, or 'modulus' not {MODULUS_BYTES}")
    number = int.from_bytes(modulus, "big")
    problem = unfit_modulus(number)
    if problem:
        raise DocumentError(_REASON, problem)
    noise = _one_of(entry, "noise", NOISES)
    least, most = (0, 0) if noise == DIVIDED else (1, MAX_DELTA_PICO)
    honest = read_integer(entry, "honest_micro", 1, MICRO, _REASON)
    bits = read_integer(entry, "slot_bits", LEAST_SLOT_BITS, MOST_SLOT_BITS, _REASON)
    if bits % 8:
        raise DocumentError(_REASON, "'slot_bits' is no multiple of 8")
    return MaskedTerms(
        dealer=dealer,
        modulus=number,
        noise=noise,
        delta_pico=read_integer(entry, "delta_pico", least, most, _REASON),
        honest_micro=honest,
        colluding_micro=read_integer(entry, "colluding_micro", 0, MICRO - honest, _REASON),
        most_parties=read_integer(entry, "most_parties", 2, MAX_PARTIES, _REASON),
        unit=_one_of(entry, "unit", UNITS),
        slot_bits=bits,
    )


def _one_of(entry: dict[str, Any], key: str, words: tuple[str, ...]) -> str:
    word = read_text(entry, key, _REASON)
    if word not in words:
        raise DocumentError(_REASON, f"'{key}' is not one of {', '.join(words)}")
    return word


@lru_cache(maxsize=8)
def unfit_modulus(number: int) -> str:
    """Return why a number is no modulus N of a masked campaign, as a sentence, or the empty text if it may be one.

    N has exactly 2048 bits and no divisor below 2^16; N is neither prime nor a power. Under a prime modulus two sums
    reveal a party's number (docs/math.md, section 8.7). Nobody can see whether N has two large prime divisors that
    nobody kept: the dealer vouches for that.
    """
    if number.bit_length() != 8 * MODULUS_BYTES or number % 2 == 0:
        return f"the modulus is no odd number of {8 * MODULUS_BYTES} bits"
    if gcd(number, _product_of_small_primes()) != 1:
        return "the modulus has a divisor below 65536"
    if any(_root(number, degree) ** degree == number for degree in range(2, MODULUS_BYTES * 8 // 16 + 1)):
        return "the modulus is a power"
    return "the modulus is prime" if pow(2, number - 1, number) == 1 else ""


@lru_cache(maxsize=1)
def _product_of_small_primes() -> int:
    sieve = bytearray([1]) * (1 << 16)
    for number in range(3, 1 << 8, 2):
        if sieve[number]:
            sieve[number * number :: 2 * number] = bytes(len(range(number * number, 1 << 16, 2 * number)))
    return prod(number for number in range(3, 1 << 16, 2) if sieve[number])


def _root(number: int, degree: int) -> int:
    """Return ⌊number^(1/degree)⌋ by Newton's method, from above."""
    guess = 1 << -(-number.bit_length() // degree)
    while True:
        better = ((degree - 1) * guess + number // guess ** (degree - 1)) // degree
        if better >= guess:
            return guess
        guess = better


def sensitivity(subject: Subject, unit: str, max_records: int) -> int:
    """Return Δ, the sensitivity of a released vector to adding or removing one unit, one of :data:`UNITS`.

    One record changes counts by 1 and sums by at most S = 65536 in all. A party changes them by ``max_records`` times
    as much.
    """
    per_record = SCALE if subject.kind == MOMENT else 1
    return per_record * (max_records if unit == PARTY else 1)


def reaches(subject: Subject, unit: str, max_records: int, epsilon_micro: int) -> tuple[int, int, int]:
    """Return the smallest and largest exact number of a party in a released vector, and the reach of the noise.

    The reach ⌈64·Δ/ε_q⌉ is what noise hardly ever exceeds; Δ is :func:`sensitivity`, ε_q the ε of the vector.
    """
    high = max_records * (SCALE if subject.kind == MOMENT else 1)
    low = 0 if subject.kind != MOMENT or subject.power == SQUARE else -high
    return low, high, -(-TAIL * MICRO * sensitivity(subject, unit, max_records) // epsilon_micro)


def least_slot_bits(
    subjects: list[Subject], *, unit: str, max_records: int, most_parties: int, epsilon_micro: int
) -> int:
    """Return the smallest number of bits of a slot, a multiple of 8, in which no total of expected size overflows.

    A total fits into w bits if ``most_parties``·(largest |exact number| + reach), with the reach of :func:`reaches`, is
    below 2^(w−1) for every released vector; ``epsilon_micro`` is for all of them together. The publisher runs this, and
    every reader as a check. The result is at least 40; above 200 it is no allowed size.
    """
    share = epsilon_micro // len(subjects)
    largest = max(high + reach for _, high, reach in (reaches(each, unit, max_records, share) for each in subjects))
    return max(LEAST_SLOT_BITS, -(-((most_parties * largest).bit_length() + 1) // 8) * 8)


def ciphertexts_needed(numbers: int, slot_bits: int) -> int:
    """Return the number of ciphertexts of a message: ⌈numbers / ⌊2000/w⌋⌉, with w = ``slot_bits``."""
    return -(-numbers // (PLAINTEXT_BITS // slot_bits))


def _check_slots(terms: MaskedTerms, nodes: NodeTerms, schema: Schema, family: str, epsilon_micro: int) -> None:
    from protocol.noise.sums import summed_subjects  # imported here, since devices never need it

    subjects = summed_subjects(schema, family)
    least = least_slot_bits(
        subjects,
        unit=terms.unit,
        max_records=nodes.max_records,
        most_parties=terms.most_parties,
        epsilon_micro=epsilon_micro,
    )
    if terms.slot_bits < least:
        raise DocumentError(_REASON, f"a total may overflow a slot of {terms.slot_bits} bits; {least} are needed")
    needed = ciphertexts_needed(sum(subject.size for subject in subjects), terms.slot_bits)
    if needed > MAX_CIPHERTEXTS:
        raise DocumentError(_REASON, f"a message would hold {needed} ciphertexts, above {MAX_CIPHERTEXTS}")
