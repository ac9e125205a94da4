"""Campaigns for nodes: signed orders that say what the nodes of a list sum, and at what ε. Run by the analyst.

A node holds many records. In each period it sends one signed summary: noisy sums over its records. Source:
docs/math.md, section 5; docs/formats.md, sections 5 and 6.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from aggregator.estimates.sums import OF_SUMS
from aggregator.nodes.campaigns.dealer_file import DealerPublic, read_dealer
from aggregator.nodes.campaigns.lists import current_list
from aggregator.nodes.campaigns.sheet import masked_warnings, node_warnings
from aggregator.publishing.ask_table import AskedSchema
from aggregator.publishing.campaigns import StatedTerms, publish_campaign
from aggregator.publishing.decisions import keep
from aggregator.publishing.naming import SignedCampaign, opened
from aggregator.publishing.privacy import refusal_warning
from aggregator.publishing.schemas.schema_doubts import alike_in
from aggregator.publishing.schemas.schema_file import SchemaFile
from aggregator.publishing.workspace import Workspace
from protocol.documents.campaign import DISCRETE, GAUSSIAN, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.masked_terms import (
    DIVIDED,
    GLOBAL,
    MAX_DELTA_PICO,
    MAX_PARTIES,
    MOST_SLOT_BITS,
    NOISES,
    RECORD,
    UNITS,
    MaskedTerms,
    NodeTerms,
    least_slot_bits,
)
from protocol.documents.payload import DAY_SECONDS, quoted
from protocol.epsilon import MICRO, micro_epsilon, pico_delta
from protocol.errors import InputError
from protocol.noise.sums import summed_subjects
from protocol.schema import Schema

VARIANCE_FLOOR = "0.0001"
"""Default of the smallest variance of a scaled number (decision 75)."""
PERIOD = "30d"
"""Default length of a period. A node sends one summary in each period."""


NODE_FIELDS: dict[str, Any] = {
    "period_seconds": 30 * DAY_SECONDS,
    "postprocess": OF_SUMS,
    "variance_floor_micro": 100,
}
"""The defaults above as fields of :class:`aggregator.publishing.campaigns.CampaignParameters`."""


@dataclass(frozen=True, kw_only=True)
class NodeCampaignTerms(StatedTerms):
    """What the publisher of a campaign for nodes states. ``hearsay nodes campaign --help`` says more of each field.

    ``epsilon``: of one summary, for adding or removing one record. ``nodes``: name of the node list. ``max_records``:
    public limit on the records of one node, 1 to 2^40. ``least_epsilon``: for nodes whose owners want more noise.
    ``family``: None means gaussian, or discrete for a schema without numbers. ``masking``: None for summaries in the
    clear.
    """

    nodes: str
    max_records: int
    least_epsilon: str | float | None = None
    sensitivity: str = GLOBAL
    family: str | None = None
    period: str | int = PERIOD
    postprocess: str = OF_SUMS
    masking: Masking | None = None


def make_node_campaign(
    workspace: Workspace | str | Path,
    schema: SchemaFile | Schema | str | Path,
    *,
    now: int | None = None,
    **stated: Any,
) -> SignedCampaign:
    """``hearsay nodes campaign``: sign the next version of a campaign for nodes, and record it in the workspace.

    ``schema``: a schema file, its path, or a schema, which then needs a ``name``. ``now``: the time of issue in seconds
    since 1970; None means the present. ``stated``: the fields of :class:`NodeCampaignTerms`, else TypeError. Raises
    InputError: a file can not be read; ``name_invalid``, ``epsilon_invalid``, ``ask_invalid``, ``family_unknown``,
    ``no_numbers``, ``floor_invalid``, ``period_invalid``, ``terms_invalid``, ``postprocess_unknown``; also the errors
    of :func:`masked_terms`. Raises DocumentError ``invalid_campaign``: devices and nodes would refuse a value; also the
    errors of :meth:`Workspace.publish`, if the campaign can not be signed or recorded.
    """
    terms = NodeCampaignTerms(**stated)
    subject = terms.subject(schema)
    asked = _asked(subject.asked)
    family = terms.family or (GAUSSIAN if asked.numeric else DISCRETE)
    if terms.variance_floor is None and family == GAUSSIAN:
        terms = replace(terms, variance_floor=VARIANCE_FLOOR)
    parameters = terms.parameters(subject, family)
    micro, least = parameters.epsilon_micro, terms.least_epsilon
    nodes = NodeTerms(
        terms.nodes, terms.max_records, micro if least is None else micro_epsilon(least), terms.sensitivity
    )
    masked = None if terms.masking is None else masked_terms(terms.masking, nodes, asked, family, micro)
    signer = opened(workspace)
    moment = int(time.time()) if now is None else now
    raw = publish_campaign(signer, asked, parameters._replace(nodes=nodes, masked=masked), moment)
    made = parse_campaign(read_envelope(raw, "campaign").payload)
    keep(signer.path, made.id, terms.decision(subject))
    listed = current_list(signer, terms.nodes)
    of_masked = masked_warnings(made, None if listed is None else len(listed.nodes))
    warnings = (*node_warnings(made), *of_masked, refusal_warning(asked), alike_in(asked))
    shown = tuple(filter(None, (*warnings, _unlisted(signer, terms.nodes))))
    return SignedCampaign(raw, made, signer.standing("campaign", raw), warnings=shown)


def _asked(asked: AskedSchema) -> Schema:
    """Return the schema of the asked features alone. Raise an error if features have different shares of questions."""
    if any(share != 1 for share in asked.shares.values()):
        raise InputError(
            "ask_invalid", "a campaign for nodes sums every feature, so shares make no difference; leave them out"
        )
    return asked.schema


def _unlisted(workspace: Workspace, name: str) -> str:
    if workspace.latest("nodes", name) is not None:
        return ""
    return (
        f"the workspace has signed no node list {quoted(name)} yet, and without one no summary counts: "
        "hearsay nodes new makes it"
    )


_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,18})?(e-[0-9]{1,2})?", re.ASCII)


class Masking(NamedTuple):
    """What the publisher of a masked campaign chooses. Numbers are decimal text such as ``0.8`` or ``1e-5``.

    ``honest_share``: γ > 0, the share of the parties (nodes with keys) that surely add their noise and do not reveal
    it; ``colluding_share``: κ, the share that may reveal it to the aggregator, γ + κ ≤ 1. ``most_parties``: 2 to 65536.
    ``noise``: ``divided``, or ``diluted`` as in Shi et al. 2011 (docs/math.md, section 6), alone with ``delta``: δ of a
    message, at most 0.001. ``unit``: what the noise hides: one ``record``, or all records of one ``party``.
    """

    dealer: DealerPublic | str | Path
    honest_share: str
    most_parties: int
    colluding_share: str = "0"
    noise: str = DIVIDED
    delta: str | None = None
    unit: str = RECORD


def masked_terms(masking: Masking, nodes: NodeTerms, schema: Schema, family: str, epsilon_micro: int) -> MaskedTerms:
    """Return the terms of a masked campaign, with the fewest bits per number in which no expected total overflows.

    ``epsilon_micro`` is ε of one message. Raises InputError: ``dealer_invalid``, or the file can not be read;
    ``terms_invalid``: a choice is out of range, or the terms have a least ε or smooth sensitivity; ``delta_invalid``;
    ``epsilon_invalid``: too small to be divided.
    """
    dealer = masking.dealer if isinstance(masking.dealer, DealerPublic) else read_dealer(masking.dealer)
    if nodes.sensitivity != GLOBAL or nodes.least_epsilon_micro != epsilon_micro:
        raise InputError("terms_invalid", "a masked campaign has global sensitivity, and one ε for all parties")
    if masking.noise not in NOISES or masking.unit not in UNITS:
        raise InputError(
            "terms_invalid", f"noise is one of {', '.join(NOISES)}, and the unit one of {', '.join(UNITS)}"
        )
    honest = _share(masking.honest_share, "the honest share")
    colluding = _share(masking.colluding_share, "the colluding share")
    if not 1 <= honest <= MICRO - colluding:
        raise InputError("terms_invalid", "the honest share is above 0, and with the colluding share at most 1")
    if type(masking.most_parties) is not int or not 2 <= masking.most_parties <= MAX_PARTIES:
        raise InputError("terms_invalid", f"the most parties are a whole number from 2 to {MAX_PARTIES}")
    subjects = summed_subjects(schema, family)
    if epsilon_micro < len(subjects):
        raise InputError("epsilon_invalid", f"ε is less than a millionth for each of {len(subjects)} released vectors")
    bits = least_slot_bits(
        subjects,
        unit=masking.unit,
        max_records=nodes.max_records,
        most_parties=masking.most_parties,
        epsilon_micro=epsilon_micro,
    )
    if bits > MOST_SLOT_BITS:
        raise InputError(
            "terms_invalid", "a total would not fit into any slot: fewer parties, fewer records, or more ε"
        )
    return MaskedTerms(
        dealer=dealer.key,
        modulus=dealer.modulus,
        noise=masking.noise,
        delta_pico=_delta(masking),
        honest_micro=honest,
        colluding_micro=colluding,
        most_parties=masking.most_parties,
        unit=masking.unit,
        slot_bits=bits,
    )


def _delta(masking: Masking) -> int:
    """Return δ as a whole number of 10^−12."""
    if masking.noise == DIVIDED:
        if masking.delta is not None and pico_delta(masking.delta) != 0:
            raise InputError("delta_invalid", "divided noise has δ = 0; leave δ out, or choose diluted noise")
        return 0
    if masking.delta is None:
        raise InputError("delta_invalid", "diluted noise needs a δ: with that probability no honest party adds noise")
    found = pico_delta(masking.delta)
    if not 1 <= found <= MAX_DELTA_PICO:
        raise InputError("delta_invalid", "δ is from 1e-12 to 0.001")
    return found


def _share(text: str, what: str) -> int:
    """Return a share that is given as decimal text in millionths, exactly."""
    value = Fraction(text) * MICRO if _DECIMAL.fullmatch(str(text)) else None
    if value is None or value.denominator != 1:
        raise InputError("terms_invalid", f"{what} is a decimal number such as 0.8, of at most 6 places")
    return value.numerator
