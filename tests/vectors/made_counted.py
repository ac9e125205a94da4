"""Vectors of signed counts of records (``.hsu``): two classes, and a feature of two values."""

from protocol import canonical
from vectors.makers import PUBLISHER, Collection, changed

INVALID = "counts_invalid"
NOISE = {"epsilon_micro": 500_000, "adjacency": "change", "division": "equal", "budget": "ward 7"}
EXACT = {
    **PUBLISHER.header("pilot").to_dict(),
    "crit": ["campaign", "noise", "records", "vectors"],
    "campaign": bytes(range(32)),
    "records": 3,
    "vectors": [[1, 2], [1, 0, 0, 2]],
    "people": bytes(range(32, 64)),
    "consent": "the people of the spring pilot",
    "noise": None,
}
NOISY = {**EXACT, "consent": "", "noise": NOISE, "vectors": [[-1, 4], [0, 2, -3, 4]]}
ADDED = {**NOISY, "noise": {**NOISE, "adjacency": "add-remove"}}
MOST = 2**53 - 1

cases = Collection()


def add(name, body, *, accepted=True, **changes):
    """One case: the signed payload with some fields replaced or left out, and what a reader must say."""
    made = changed(body, **changes)
    outcome = {"reason": INVALID}
    if accepted:
        said = {key: made[key] for key in ("records", "vectors", "consent")}
        said |= {key: made[key].hex() for key in ("campaign", "people")}
        outcome = {"expect": {**said, "noise": made["noise"] and list(made["noise"].values())}}
    data = cases.keep(name, PUBLISHER.sign("counts", canonical.pack(made)))
    cases.case(name, "counts_of_records", spec="formats 5", data=data, **outcome)


add("exact", EXACT)
add("exact_most_records", EXACT, records=2**32, vectors=[[1, 2**32 - 1], [1, 0, 0, 2**32 - 1]])
add("noisy", NOISY)
add("noisy_largest_numbers", NOISY, vectors=[[MOST, -MOST], [0, 0, 0, 0]])
add("noisy_least_epsilon", NOISY, noise={**NOISE, "epsilon_micro": 1})
add("noisy_largest_epsilon", NOISY, noise={**NOISE, "epsilon_micro": 10**12 - 1})
add("add_remove_no_records", ADDED, records=0, vectors=[[-4, 4], [0, 2, -3, 4]])
add("add_remove_least_records", ADDED, records=-(2**32), vectors=[[-(2**32), 0], [0, 2, -3, 4]])
for key in ("campaign", "records", "vectors", "people", "noise"):
    add(f"without_{key}", EXACT, accepted=False, **{key: ...})
for key in EXACT["crit"]:
    add(f"crit_without_{key}", EXACT, accepted=False, crit=[each for each in EXACT["crit"] if each != key])
for key in NOISE:
    add(f"noise_without_{key}", NOISY, accepted=False, noise=changed(NOISE, **{key: ...}))
for name, changes in {
    "without_consent": {"consent": ...},
    "consent_is_empty": {"consent": ""},
    "consent_with_a_line_break": {"consent": "a\n"},
    "consent_beside_noise": {"noise": NOISE},
    "campaign_of_31_bytes": {"campaign": bytes(31)},
    "people_of_33_bytes": {"people": bytes(33)},
    "no_records": {"records": 0},
    "one_record_too_many": {"records": 2**32 + 1},
    "records_is_true": {"records": True},
    "vector_is_a_number": {"vectors": [3]},
    "number_too_large": {"vectors": [[MOST + 1]]},
    "number_too_small": {"vectors": [[-MOST - 1]]},
    "number_is_true": {"vectors": [[True]]},
}.items():
    add(name, EXACT, accepted=False, **changes)
for name, changes in {
    "epsilon_zero": {"epsilon_micro": 0},
    "epsilon_too_large": {"epsilon_micro": 10**12},
    "unknown_adjacency": {"adjacency": "swap"},
    "unknown_key": {"zz": 1},
}.items():
    add(f"noise_{name}", NOISY, accepted=False, noise={**NOISE, **changes})
add("change_no_records", NOISY, accepted=False, records=0)
add("add_remove_below_the_least", ADDED, accepted=False, records=-(2**32) - 1)
