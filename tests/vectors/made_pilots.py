"""Vectors of campaigns that state private results of pilots: optional, no part of ``crit``, checked where stated."""

from protocol import canonical
from protocol.documents.campaign import MOST
from vectors.makers import PUBLISHER, Collection, campaign, changed

INVALID = "invalid_campaign"
BODY = canonical.unpack(PUBLISHER.campaign_payload())
ENTRY = {"what": "projection", "epsilon_micro": 500_000, "delta": "0", "adjacency": "change", "budget": "ward 7"}


def signed(pilots, **changes):
    """A campaign that states these pilots."""
    return campaign(BODY, pilots=pilots, **changes)


cases = Collection()
for name, pilots in {
    "one": [ENTRY],
    "most": [ENTRY] * MOST,
    "least_epsilon": [{**ENTRY, "epsilon_micro": 1}],
    "largest_epsilon": [{**ENTRY, "epsilon_micro": 10**12 - 1}],
    "adjacency_of_another_name": [{**ENTRY, "adjacency": "any text"}],
}.items():
    cases.add(name, signed(pilots))
for name, pilots in {
    "no_list": ENTRY,
    "empty": [],
    "one_too_many": [ENTRY] * (MOST + 1),
    "entry_is_text": ["projection"],
    "epsilon_zero": [{**ENTRY, "epsilon_micro": 0}],
    "epsilon_too_large": [{**ENTRY, "epsilon_micro": 10**12}],
    "epsilon_is_text": [{**ENTRY, "epsilon_micro": "1"}],
    "what_is_empty": [{**ENTRY, "what": ""}],
    "delta_is_a_number": [{**ENTRY, "delta": 0}],
    "budget_with_a_line_break": [{**ENTRY, "budget": "a\n"}],
    "unknown_key": [{**ENTRY, "zz": 1}],
    **{f"without_{key}": [changed(ENTRY, **{key: ...})] for key in ENTRY},
}.items():
    cases.add(name, signed(pilots), reason=INVALID)
cases.add("named_in_crit", signed([ENTRY], crit=["pilots"]))
