"""Vectors of masked campaigns: which are refused, what follows from their terms, and what older readers do."""

from functools import partial

from support.masked import MODULUS, NODES, TERMS, P, masked_payload
from support.nodes import node_payload
from support.publisher import NOW

from protocol import canonical
from protocol.documents.campaign import DISCRETE
from research.products import PRIME
from vectors.makers import PUBLISHER, THREE_CLASSES, Collection, campaign, changed, many

INVALID = "invalid_campaign"
BODY = canonical.unpack(masked_payload(PUBLISHER))
signed = partial(campaign, BODY)
MAP = TERMS.to_dict()
MAP_OF_NODES = NODES.to_dict()


def with_terms(**changes):
    """A masked campaign with some of its terms replaced."""
    return signed(masked=changed(MAP, **changes))


def _bytes(number, length=256):
    return number.to_bytes(length, "big")


def _multiple(divisor):
    small = [number for number in range(3, 1 << 16, 2) if number != divisor]
    factor = (1 << 2047) // divisor + 2 | 1
    while any(factor % number == 0 for number in small):
        factor += 2
    return factor * divisor


def _power(degree):
    low, high = 1 << 16, 1 << 2048 // degree + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if middle**degree >= 1 << 2047 else (middle + 1, high)
    root = low | 1
    while any(root % number == 0 for number in range(3, min(1 << 16, root), 2)):
        root += 2
    assert (root**degree).bit_length() == 2048
    return root**degree


def _of(records, **changes):
    nodes, fit = {**MAP_OF_NODES, "max_records": records}, {"family": DISCRETE, "postprocess": "posterior"}
    return signed(nodes=nodes, masked={**MAP, **changes}, fit=fit)


def _range(cases, name, data, ciphertexts, vectors):
    expect = {"ciphertexts": ciphertexts, "vectors": vectors}
    cases.case(name, "masked_ranges", campaign=cases.keep(name, data), expect=expect)


cases = Collection()

cases.add("gaussian", signed())
cases.add("discrete", PUBLISHER.sign("campaign", masked_payload(PUBLISHER, DISCRETE)))
for name, changes in {
    "diluted": {"noise": "diluted", "delta_pico": 10_000_000},
    "least_delta": {"noise": "diluted", "delta_pico": 1},
    "largest_delta": {"noise": "diluted", "delta_pico": 10**9},
    "least_honest": {"honest_micro": 1},
    "honest_and_colluding_are_all": {"honest_micro": 400_000, "colluding_micro": 600_000},
    "two_parties": {"most_parties": 2},
    "65536_parties": {"most_parties": 65536, "slot_bits": 48},
    "unit_party": {"unit": "party", "slot_bits": 48},
    "slots_of_200_bits": {"slot_bits": 200},
    "dealer_of_zeros": {"dealer": bytes(32)},
}.items():
    cases.add(name, with_terms(**changes))
end = {"version": 2, "nodes": ..., "masked": ..., "crit": [], "epsilon_micro": 0}
cases.add("its_end_has_no_terms", signed(**end), before=(("campaign", signed(), NOW),))
clear = {"version": 2, "masked": ..., "crit": ["nodes"]}
cases.add("later_version_in_the_clear", signed(**clear), before=(("campaign", signed(), NOW),))

for name, changes in {
    "dealer_of_31_bytes": {"dealer": bytes(31)},
    "dealer_is_text": {"dealer": "a" * 32},
    "another_noise": {"noise": "none"},
    "noise_is_nil": {"noise": None},
    "divided_with_a_delta": {"delta_pico": 1},
    "diluted_without_a_delta": {"noise": "diluted"},
    "delta_above_a_thousandth": {"noise": "diluted", "delta_pico": 10**9 + 1},
    "delta_is_negative": {"delta_pico": -1},
    "delta_is_false": {"delta_pico": False},
    "nobody_is_honest": {"honest_micro": 0},
    "more_than_all_are_honest": {"honest_micro": 1_000_001},
    "colluding_negative": {"colluding_micro": -1},
    "honest_and_colluding_above_all": {"honest_micro": 500_000, "colluding_micro": 500_001},
    "one_party": {"most_parties": 1},
    "65537_parties": {"most_parties": 65537, "slot_bits": 200},
    "another_unit": {"unit": "class"},
    "unit_is_a_number": {"unit": 1},
    "slots_of_32_bits": {"slot_bits": 32},
    "slots_of_208_bits": {"slot_bits": 208},
    "slots_of_44_bits": {"slot_bits": 44},
    "slots_are_text": {"slot_bits": "40"},
    "unknown_key": {"zz": 1},
    **{f"without_{key}": {key: ...} for key in MAP},
}.items():
    cases.add(name, with_terms(**changes), reason=INVALID)
for name, fields in {
    "key_is_not_in_crit": {"crit": ["nodes"]},
    "crit_without_the_key": {"masked": ...},
    "nil": {"masked": None},
    "a_list": {"masked": [MAP]},
    "smooth": {"nodes": {**MAP_OF_NODES, "sensitivity": "smooth"}},
    "a_smaller_epsilon_is_allowed": {"nodes": {**MAP_OF_NODES, "least_epsilon_micro": 999_999}},
    "not_for_nodes": {"nodes": ..., "crit": ["masked"], "epsilon_micro": 0},
}.items():
    cases.add(name, signed(**fields), reason=INVALID)
devices = canonical.unpack(PUBLISHER.campaign_payload())
cases.add("of_devices", campaign(devices, masked=MAP, crit=["masked"]), reason=INVALID)
cases.add("another_key_in_crit", signed(crit=["masked", "nodes", "zz"]), reason="unknown_crit")

cases.add("modulus_divisible_by_65537", with_terms(modulus=_bytes(_multiple(65537))))
for name, raw in {
    "modulus_of_255_bytes": _bytes(MODULUS >> 8, 255),
    "modulus_of_257_bytes": _bytes(MODULUS, 257),
    "modulus_is_text": "a" * 256,
    "modulus_of_2047_bits": _bytes(MODULUS >> 1 | 1),
    "modulus_0": bytes(256),
    "modulus_even": _bytes(MODULUS + 1),
    "modulus_divisible_by_3": _bytes(_multiple(3)),
    "modulus_divisible_by_65521": _bytes(_multiple(65521)),
    "modulus_a_square": _bytes(P**2),
    "modulus_a_cube": _bytes(_power(3)),
    "modulus_a_power_of_31": _bytes(_power(31)),
    "modulus_a_power_of_127": _bytes(_power(127)),
    "modulus_a_prime": _bytes(PRIME),
}.items():
    cases.add(name, with_terms(modulus=raw), reason=INVALID)

most = (1 << 38) - 194
cases.add("largest_total_of_40_bits", _of(most, most_parties=2))
cases.add("total_of_2_to_the_39", _of(most + 1, most_parties=2), reason=INVALID)
cases.add("total_of_2_to_the_39_in_48_bits", _of(most + 1, most_parties=2, slot_bits=48))
# A party: (1 + 192.0002)·R rounded up, 100 parties: R·19300.0192 < 2^39.
limit = (1 << 39) * 333_333 // (100 * 64_333_333)
assert 100 * (limit + -(-64_000_000 * limit // 333_333)) < 1 << 39 <= 100 * 64_333_333 * (limit + 1) / 333_333
cases.add("largest_party_of_40_bits", _of(limit, unit="party"))
cases.add("larger_party", _of(limit + 1, unit="party"), reason=INVALID)
# Gaussian, four vectors: sums reach R·S + 256·S of 100 parties.
fits = (1 << 39) // (100 * 65536) - 256
for name, records, reason in (("largest_sum_of_40_bits", fits, None), ("larger_sum", fits + 1, INVALID)):
    cases.add(name, signed(nodes={**MAP_OF_NODES, "max_records": records}), reason=reason)
fields = many(BODY, 7)
# 459,008 numbers: 31 slots of 64 bits and 14,807 ciphertexts; 27 slots of 72 bits and 17,001.
cases.add("14807_ciphertexts", signed(masked={**MAP, "slot_bits": 64}, **fields))
cases.add("17001_ciphertexts", signed(masked={**MAP, "slot_bits": 72}, **fields), reason=INVALID)
clear = (PUBLISHER.sign("campaign", node_payload(PUBLISHER)), "wards")
cases.older("masked", {"older_reader": signed()}, {"older_reader_of_a_campaign_in_the_clear": clear})

s = 65536
of_record = [["class", 2, 0, 1000, 256], ["cell", 8, 0, 1000, 256]]
of_record += [["moment", 2, -1000 * s, 1000 * s, 256 * s], ["moment", 2, 0, 1000 * s, 256 * s]]
_range(cases, "ranges", signed(), 1, of_record)
of_party = [[kind, size, low, high, 1000 * reach] for kind, size, low, high, reach in of_record]
_range(cases, "ranges_of_a_party", with_terms(unit="party", slot_bits=48), 1, of_party)
discrete = PUBLISHER.sign("campaign", masked_payload(PUBLISHER, DISCRETE))
three = [["class", 2, 0, 1000, 193], ["cell", 8, 0, 1000, 193], ["cell", 4, 0, 1000, 193]]
_range(cases, "ranges_discrete", discrete, 1, three)
missing = THREE_CLASSES.sign("campaign", masked_payload(THREE_CLASSES, masked=TERMS._replace(slot_bits=200)))
vectors = [[kind, size, 0, 1000, 320] for kind, size in (("class", 3), ("cell", 9), ("present", 6))]
vectors += [["moment", 3, -1000 * s, 1000 * s, 320 * s], ["moment", 3, 0, 1000 * s, 320 * s]]
_range(cases, "ranges_in_slots_of_200_bits", missing, 3, vectors)
clear = cases.keep("clear", PUBLISHER.sign("campaign", node_payload(PUBLISHER)))
cases.case("ranges_in_the_clear", "masked_ranges", campaign=clear, reason="campaign_not_masked")
for name, honest, colluding, least in (
    ("least_set_of_all", 1_000_000, 0, [2, 3, 10, 65536]),
    ("least_set_of_a_third", 333_333, 0, [1, 1, 4, 21846]),
    ("least_set_with_colluders", 500_000, 250_000, [1, 2, 7, 49152]),
    ("least_set_of_a_millionth", 1, 0, [1, 1, 1, 1]),
):
    data = cases.keep(name, with_terms(honest_micro=honest, colluding_micro=colluding))
    cases.case(name, "least_set", campaign=data, parties=[2, 3, 10, 65536], expect=least)
