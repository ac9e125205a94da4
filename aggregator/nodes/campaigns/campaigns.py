"""Campaigns for nodes: what is summed, at what ε, by the nodes of which list. Run by the analyst; the workspace signs.

A node holds many records. Per period it sends one signed summary: sums over its records, with noise that hides whether
any one record is among them. Source: docs/math.md, section 5; docs/formats.md, sections 5 and 6.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from aggregator.models.postprocess.methods import check_postprocess
from aggregator.nodes.campaigns.dealer_file import DealerPublic, read_dealer
from aggregator.nodes.campaigns.lists import current_list
from aggregator.nodes.campaigns.sheet import masked_warnings, node_warnings
from aggregator.publishing.ask_table import Ask, Asked, ask_of, resolve
from aggregator.publishing.campaigns import check_seen, gaussian_fields, parse_duration
from aggregator.publishing.decisions.kept import keep
from aggregator.publishing.lifetimes import MAX_DAYS, header_for, seconds_of
from aggregator.publishing.naming import opened
from aggregator.publishing.privacy import refusal_warning
from aggregator.publishing.schemas.projection_file import load_pilots, load_projection
from aggregator.publishing.schemas.schema_doubts import alike_in
from aggregator.publishing.schemas.schema_file import SchemaFile, load_schema
from aggregator.publishing.signed_campaign import SignedCampaign
from aggregator.publishing.workspace import Workspace
from protocol.document import DAY_SECONDS
from protocol.documents import campaign
from protocol.documents.campaign import DISCRETE, GAUSSIAN, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.documents.masked_terms import (
    DIVIDED,
    MAX_DELTA_PICO,
    MAX_PARTIES,
    MOST_SLOT_BITS,
    NOISES,
    RECORD,
    UNITS,
    MaskedTerms,
    least_slot_bits,
)
from protocol.documents.node_terms import GLOBAL, MAX_RECORDS, NodeTerms
from protocol.documents.pilots import PilotCost
from protocol.epsilon import MICRO, micro_epsilon, pico_delta
from protocol.errors import InputError
from protocol.schema import Schema
from protocol.shown import quoted
from protocol.sums.vectors import summed_subjects

POSTPROCESS = "floored"
"""Post-processing of a campaign that names no other: it takes the known size of the noise into account."""
VARIANCE_FLOOR = "0.0001"
"""Smallest variance of a scaled number, if the publisher names no other (decision 75)."""
PERIOD = "30d"
"""Length of a period, if the publisher names no other: a node sends one summary in it."""


class NodeParameters(NamedTuple):
    """The parameters of a campaign for nodes, apart from its schema.

    Attributes:
        name: name of the campaign. A later campaign of the same name is its next version.
        epsilon_micro: ε of one summary for adding or removing one record, in millionths. A changed record costs twice
            as much.
        nodes: the terms for nodes: name of the list, most records of a node, least ε, kind of sensitivity.
        family: ``discrete`` (numbers count by bins) or ``gaussian`` (numbers are summed, and their squares).
        purpose, contact: sentences for the owner of a node. An empty purpose becomes a standard sentence.
        period_seconds: length of a period. A node sends at most one summary per period.
        lifetime_seconds: time from signing to expiry.
        min_batch_size: fewest nodes from which estimates or models are published.
        postprocess: name of the method that makes probabilities from sums.
        variance_floor_micro: smallest variance of a scaled number, in millionths; Gaussian only.
        pilots: private results of pilots that the schema holds, and what they cost.
        masked: the terms of encrypted sums; None for sums in the clear.
    """

    name: str
    epsilon_micro: int
    nodes: NodeTerms
    family: str
    purpose: str = ""
    contact: str = "not stated"
    period_seconds: int = 30 * DAY_SECONDS
    lifetime_seconds: int = 30 * DAY_SECONDS
    min_batch_size: int = 1
    postprocess: str = POSTPROCESS
    variance_floor_micro: int = 100
    pilots: tuple[PilotCost, ...] = ()
    masked: MaskedTerms | None = None


def make_node_campaign(
    workspace: Workspace | str | Path,
    schema: SchemaFile | Schema | str | Path,
    *,
    epsilon: str | float,
    nodes: str,
    max_records: int,
    least_epsilon: str | float | None = None,
    sensitivity: str = GLOBAL,
    family: str | None = None,
    projection: str | Path | None = None,
    ask: str | Sequence[str] | Ask | None = None,
    variance_floor: str | None = None,
    name: str | None = None,
    purpose: str = "",
    contact: str = "not stated",
    period: str | int = PERIOD,
    days: int = 30,
    min_batch_size: int = 1,
    postprocess: str = POSTPROCESS,
    masking: Masking | None = None,
    now: int | None = None,
) -> SignedCampaign:
    """``hearsay nodes campaign``: sign the next version of a campaign for nodes, and record it in the workspace.

    Args:
        workspace: the workspace that signs, or its folder.
        schema: a schema file, its path, or a schema, which then needs a ``name``.
        epsilon: ε of one summary, for adding or removing one record. A changed record costs twice as much.
        nodes: name of the node list: only nodes on the newest version of that list count.
        max_records: a public limit on the records of one node, 1 to 2^40. It bounds what one node can claim.
        least_epsilon: smallest ε of a summary, for nodes whose owners want more noise; None means ``epsilon``.
        sensitivity: ``global``, or ``smooth``.
        family: ``discrete`` or ``gaussian``; None means gaussian, or discrete for a schema without numbers.
        projection: a file of ``hearsay projection``, to embed.
        ask: the features or components to sum (:func:`aggregator.operations.campaigns.plan_campaign`); the campaign
        states no others.
        variance_floor: smallest variance of a number scaled to [−1, 1], as decimal text; Gaussian only; None: 0.0001.
        name: name of the campaign; by default the name in the schema file.
        purpose, contact: texts for the owners of nodes.
        period: seconds of a period, or text such as ``12h`` or ``30d``.
        days: lifetime of the campaign.
        min_batch_size: number of nodes below which nothing is published.
        postprocess: name of the post-processing of the model.
        masking: nodes encrypt their sums, and only the total of a set of nodes is decrypted
            (:class:`aggregator.nodes.campaigns.campaigns.Masking`); None: summaries in the clear.
        now: the time of issue in seconds since 1970; None means the present time.

    Raises:
        InputError: the schema or projection file can not be read; ``name_invalid``, there is no name;
            ``epsilon_invalid``; ``ask_invalid``; ``family_unknown``; ``no_numbers``; ``floor_invalid``;
            ``period_invalid``; ``terms_invalid``: another term is out of range; ``postprocess_unknown``;
            of a masked campaign also ``delta_invalid``, and ``dealer_invalid`` or the reasons of an unreadable file.
        DocumentError: ``invalid_campaign``: devices and nodes would refuse a value.
        InputError, DocumentError, StorageError: the campaign can not be signed or recorded (:meth:`Workspace.publish`).
    """
    if isinstance(schema, str | Path):
        schema = load_schema(schema)
    file = schema if isinstance(schema, SchemaFile) else SchemaFile("", schema)
    if name is None and not file.name:
        raise InputError("name_invalid", "a campaign of a schema without a file needs a name")
    described = file.schema if projection is None else load_projection(Path(projection), file.schema)
    asked = _asked(resolve(described, ask_of(ask, file.ask)))
    chosen = family or (GAUSSIAN if asked.numeric else DISCRETE)
    micro = micro_epsilon(epsilon)
    terms = NodeTerms(nodes, max_records, micro if least_epsilon is None else micro_epsilon(least_epsilon), sensitivity)
    parameters = NodeParameters(
        file.name if name is None else name,
        micro,
        terms,
        chosen,
        purpose,
        contact,
        parse_duration(str(period)),
        seconds_of(days),
        min_batch_size,
        postprocess,
        pilots=file.pilots + (() if projection is None else load_pilots(projection)),
        masked=None if masking is None else masked_terms(masking, terms, asked, chosen, micro),
        **gaussian_fields(
            chosen, VARIANCE_FLOOR if variance_floor is None and chosen == GAUSSIAN else variance_floor, None
        ),
    )
    signer = opened(workspace)
    moment = int(time.time()) if now is None else now
    raw = publish_node_campaign(signer, asked, parameters, moment)
    made = parse_campaign(read_envelope(raw, "campaign").payload)
    keep(signer.path, made.id, file.decision if ask is None else {})
    listed = current_list(signer, nodes)
    masked = masked_warnings(made, None if listed is None else len(listed.nodes))
    warnings = (*node_warnings(made), *masked, refusal_warning(asked), alike_in(asked), _unlisted(signer, nodes))
    return SignedCampaign(raw, made, signer.standing("campaign", raw), warnings=tuple(filter(None, warnings)))


def publish_node_campaign(workspace: Workspace, schema: Schema, parameters: NodeParameters, now: int) -> bytes:
    """Build the next version of a campaign for nodes, check it, sign it and record it.

    Args:
        workspace: the workspace that signs.
        schema: label and features that are summed, with groups of values.
        parameters: the other parameters.
        now: seconds since 1970, the time of issue.

    Returns:
        The bytes of the ``.hsc`` file. It is a draft if the workspace has too few keys (:meth:`Workspace.publish`).

    Raises:
        InputError: ``postprocess_unknown``, ``schema_invalid``, ``family_unknown``, ``no_numbers``, ``ask_invalid``,
            ``terms_invalid``.
        DocumentError: ``invalid_campaign``: the finished payload has a value that nodes would refuse.
        InputError, DocumentError, StorageError: as :meth:`Workspace.publish`.
    """
    _check(schema, parameters)

    def payload_for(version: int, _before: bytes | None) -> bytes:
        return campaign.build_payload(
            header_for(parameters.name, version, now, parameters.lifetime_seconds),
            schema,
            (),
            epsilon_micro=parameters.epsilon_micro,
            purpose=parameters.purpose
            or f"learn to predict '{schema.label.name}' from {len(schema.features)} features",
            contact=parameters.contact,
            time_precision=parameters.period_seconds,
            min_batch_size=parameters.min_batch_size,
            fit=campaign.Fit(parameters.family, parameters.postprocess, parameters.variance_floor_micro),
            pilots=parameters.pilots,
            nodes=parameters.nodes,
            masked=parameters.masked,
        )

    return workspace.publish("campaign", parameters.name, now, payload_for)


def _asked(asked: Asked) -> Schema:
    """The asked features as a schema, which is all that a campaign for nodes states.

    Raises:
        InputError: ``ask_invalid``: a feature has a share; every sum has the same part of ε.
    """
    if any(share != 1 for share in asked.shares.values()):
        raise InputError(
            "ask_invalid", "a campaign for nodes sums every feature, so shares make no difference; leave them out"
        )
    return asked.schema


def _check(schema: Schema, parameters: NodeParameters) -> None:
    """Refuse parameters that no campaign for nodes can have, with the reasons of :func:`publish_node_campaign`."""
    check_postprocess(parameters.postprocess)
    check_seen(schema, parameters.name)
    if parameters.family not in (DISCRETE, GAUSSIAN):
        raise InputError("family_unknown", "a family is discrete or gaussian")
    if parameters.family == GAUSSIAN:
        if not schema.numeric:
            raise InputError("no_numbers", "a Gaussian model needs a numeric feature; this schema has none")
        if any(schema.groups and schema.groups[place] is not None for place in schema.numeric):
            raise InputError("ask_invalid", "a Gaussian campaign sums numbers, not bins; leave bins out")
    if not 1 <= parameters.lifetime_seconds <= MAX_DAYS * DAY_SECONDS:
        raise InputError("terms_invalid", f"a campaign lives for at most {MAX_DAYS} days")
    if not 1 <= parameters.period_seconds <= campaign.MAX_PERIOD_SECONDS:
        raise InputError("terms_invalid", f"a period has 1 to {campaign.MAX_PERIOD_SECONDS} seconds")
    terms = parameters.nodes
    if type(terms.max_records) is not int or not 1 <= terms.max_records <= MAX_RECORDS:
        raise InputError("terms_invalid", f"the most records of a node are a whole number from 1 to {MAX_RECORDS}")
    if not 1 <= terms.least_epsilon_micro <= parameters.epsilon_micro:
        raise InputError("terms_invalid", "the least ε of a summary is above 0 and at most the campaign's ε")


def _unlisted(workspace: Workspace, name: str) -> str:
    """A warning if the workspace has signed no node list of a name; otherwise empty."""
    if workspace.latest("nodes", name) is not None:
        return ""
    return (
        f"the workspace has signed no node list {quoted(name)} yet, and without one no summary counts: "
        "hearsay nodes new makes it"
    )


_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,18})?(e-[0-9]{1,2})?", re.ASCII)


class Masking(NamedTuple):
    """What the publisher of a masked campaign chooses. Numbers are decimal text such as ``0.8`` or ``1e-5``.

    Attributes:
        dealer: the dealer's public file, or what was read from it.
        honest_share: γ, the share of the parties that surely add their noise and do not reveal it; above 0, at most 1.
        most_parties: largest number of parties, 2 to 65536. It decides the size of slots.
        colluding_share: κ, the share of parties that may reveal their noise to the aggregator. γ + κ ≤ 1.
        noise: ``divided``, or ``diluted`` as in the paper.
        delta: δ of a message for one record, or party, more or less: for ``diluted`` noise only, at most 0.001.
        unit: what the noise hides: one ``record``, or all records of one ``party``.
    """

    dealer: DealerPublic | str | Path
    honest_share: str
    most_parties: int
    colluding_share: str = "0"
    noise: str = DIVIDED
    delta: str | None = None
    unit: str = RECORD


def masked_terms(masking: Masking, nodes: NodeTerms, schema: Schema, family: str, epsilon_micro: int) -> MaskedTerms:
    """The terms of a masked campaign, with the smallest slots in which no total of expected size overflows.

    Args:
        masking: the publisher's choices.
        nodes: the campaign's terms for nodes.
        schema: label and features that are summed.
        family: of the campaign's fit.
        epsilon_micro: ε of one message, in millionths.

    Raises:
        InputError: ``dealer_invalid``, or the file can not be read; ``terms_invalid``: a choice is out of range, or the
            terms for nodes have a least ε or smooth sensitivity; ``delta_invalid``; ``epsilon_invalid``: ε is too small
            to be divided.
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
    """δ in multiples of 10^−12.

    Raises:
        InputError: ``delta_invalid``.
    """
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
    """A decimal text in millionths, exactly.

    Raises:
        InputError: ``terms_invalid``: it is no decimal number, or no whole number of millionths.
    """
    value = Fraction(text) * MICRO if _DECIMAL.fullmatch(str(text)) else None
    if value is None or value.denominator != 1:
        raise InputError("terms_invalid", f"{what} is a decimal number such as 0.8, of at most 6 places")
    return value.numerator
