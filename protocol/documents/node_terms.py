"""The terms of a campaign for nodes: whose summaries count, and how large their numbers can be.

A node holds the records of many people and sends one summary of noisy sums per period. The campaign asks no questions.

Source: docs/formats.md, section 5 (map ``nodes``); decision 72.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.document import read_field, read_integer, read_text
from protocol.documents.asked import check_groups_asked
from protocol.epsilon import MICRO, PrivacyLoss
from protocol.errors import DocumentError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.document import Header
    from protocol.questions import Subject
    from protocol.schema import Schema

KEY = "nodes"
"""Key of the terms in a campaign's payload. It must be in ``crit`` too: an older reader then refuses the campaign."""
GLOBAL, SMOOTH = "global", "smooth"
SENSITIVITY_KINDS = (GLOBAL, SMOOTH)
"""What the noise of a summary is calibrated to: public bounds alone, or also the smooth sensitivity of the records."""
MAX_RECORDS = 1 << 40
MAX_NUMBERS = 1 << 19
"""Largest number of integers in one summary."""
_REASON = "invalid_campaign"
_KEYS = {"list", "max_records", "least_epsilon_micro", "sensitivity"}


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
        """The terms as the map that a campaign's payload contains."""
        return {
            "list": self.list_name,
            "max_records": self.max_records,
            "least_epsilon_micro": self.least_epsilon_micro,
            "sensitivity": self.sensitivity,
        }


def node_fields(nodes: NodeTerms | None) -> Mapping[str, Any]:
    """The field of a campaign's payload; none if ``nodes`` is None: a campaign for devices."""
    return {} if nodes is None else {KEY: nodes.to_dict()}


def parse_nodes(
    body: dict[str, Any], header: Header, schema: Schema, family: str, epsilon_micro: int
) -> NodeTerms | None:
    """Read the terms of a campaign for nodes from its payload; None if it is a campaign for devices.

    Args:
        body, header: of the payload.
        schema: all features that the payload states, with their groups.
        family: of the campaign's fit.
        epsilon_micro: the campaign's ε in millionths.

    Raises:
        DocumentError: ``invalid_campaign``: the map is wrong; it is not in ``crit``, or only there; the campaign also
            has questions, answers, a series or a model to evaluate; its ε is too small to be divided; it groups values
            that no released vector counts; a summary would have more than :data:`MAX_NUMBERS` integers.
    """
    if (KEY in body) != (KEY in header.crit):
        raise DocumentError(_REASON, "'nodes' is a key that 'crit' does not name, or the other way round")
    if KEY not in body:
        return None
    entry = read_field(body, KEY, dict, _REASON)
    if set(entry) != _KEYS:
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
    """Subjects of the released vectors of a campaign for nodes; its groups and their number are checked."""
    from protocol.sums.vectors import summed_subjects  # imported here, since devices never need it

    problem = ""
    try:
        subjects = summed_subjects(schema, family)
    except InputError as error:
        problem = error.detail
    if problem:
        raise DocumentError(_REASON, problem)
    check_groups_asked(schema, subjects, _REASON)
    if sum(subject.size for subject in subjects) > MAX_NUMBERS:
        raise DocumentError(_REASON, f"a summary would hold more than {MAX_NUMBERS} numbers")
    return subjects


def node_loss(schema: Schema, family: str, epsilon_micro: int) -> PrivacyLoss:
    """Exact worst loss of a node's summary, in nats: Q·⌊ε/Q⌋.

    The loss is for adding or removing one record; with the sensitivity ``smooth`` for changing the features of one.

    Args:
        schema: of the records, with its groups.
        family: of the campaign's fit.
        epsilon_micro: ε of the summary in millionths.
    """
    from fractions import Fraction

    from protocol.sums.vectors import summed_subjects

    vectors = len(summed_subjects(schema, family))
    return PrivacyLoss(Fraction(1), Fraction(epsilon_micro // vectors * vectors, MICRO))
