"""Sentences that say why records are not counted: for each reason the first column of docs/reference/reasons.md.

A test compares the sentences with that page.
"""

from __future__ import annotations

from typing import Final

MEANINGS: Final = {
    "unrecognized_campaign": "The header of the report's batch names another campaign.",
    "question_unknown": "The campaign has no question of that number.",
    "question_not_assigned": "The report's id is assigned another question: the device chose what it answered.",
    "report_too_late": "The report's period begins at or after the campaign's end.",
    "period_forgotten": (
        "The report's period was forgotten (`hearsay forget`): its counts are final, and whether this report "
        "is among them is no longer known."
    ),
    "report_too_early": "The report's period ended before the campaign began, or has not begun yet.",
    "id_not_enrolled": (
        "The fleet is closed, and none of its devices has this id in this period for a question of this stratum."
    ),
    "report_replayed": "A copy of a report that is counted already. Harmless.",
    "report_conflict": "Different reports with one id, and their copies: a fault or a lie. None of them is counted.",
    "not_in_sum": (
        "A masked message of a decrypted period whose party is not in the sum: it came after the request, or "
        "its key is of another key book."
    ),
    "summary_replayed": "A copy of a node's summary that is in the store already. Harmless.",
    "summary_conflict": "Two different summaries of one node and period. Neither counts.",
    "invalid_message": "Bytes that are no report, header or trailer; or a header whose layout is not its campaign's.",
    "truncated": "A report, header or trailer begins, but the file or batch ends in it.",
    "malformed": "It is not a whole, canonical document: cut, damaged, extended, or written by something else.",
    "bad_signature": (
        "Too few of the keys that this device trusts for the role have signed it, or a root between the "
        "stored one and this is missing."
    ),
    "unsupported_version": "It follows another version of the formats.",
    "node_not_listed": "A summary of a node that is not on the newest list of nodes.",
    "epsilon_out_of_range": (
        "A summary states an ε above its campaign's, or below the smallest that its campaign allows."
    ),
    "value_out_of_domain": (
        "An input is not one the mechanism can perturb. In a node's summary: too many or too few numbers, or "
        "a number outside its range. In a report: an answer that its question does not have or that no device gives, "
        "an integer beyond its mechanism's bounds, or padding that is not zero."
    ),
    "stale_key": (
        "A masked message is encrypted with a key that is not in the newest key book: the node used an older "
        "book, or is no party."
    ),
    "other_campaign": "Counts, statistics, a store or a node's file of summaries belong to another campaign.",
    "wrong_role": "It is a signed document of another kind, for example a model where a campaign is expected.",
    "not_canonical": "Something to be signed has no canonical form: a float, too deep, a key that is no text.",
    "too_large": (
        "The file is above the limit of its kind: root 64 KiB, campaign 1 MiB, model and list of nodes 4 MiB,"
        " node summary and masked message 8 MiB, key book 64 MiB, release 16 MiB, request 1 MiB; a report "
        "file 1 TiB; a table 1 GiB, 2 GiB or 100 times as much unpacked, or 50,000,000 cells."
    ),
    "node_without_key": "The key book of a masked campaign holds no key for this node.",
    "mask_mismatch": (
        "Ciphertexts do not decrypt: set of nodes, release, period and campaign do not belong together, or a "
        "ciphertext was changed."
    ),
}


def meaning(reason: str) -> str:
    """Return the sentence of a reason; for a reason that files of reports do not have, where to find it."""
    return MEANINGS.get(reason, "See docs/reference/reasons.md.")
