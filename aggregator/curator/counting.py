"""Counts of a pilot's or a curator's records for one campaign, which a model then takes with the devices' answers.

Out: a signed document without a record in it, with exact counts under a line of consent, or with noise paid from a
budget; and its statistics. Source: docs/formats.md, section 5 (counts); docs/math.md, section 1; decision 118.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from aggregator.common.arrays import Integers
from aggregator.common.files import read_file
from aggregator.common.tables import MISSING_TOKENS
from aggregator.curator.budget import BudgetFile, digest_of, record_bytes
from aggregator.curator.fitting import TAG, cost_of_fit, made_up_records
from aggregator.curator.methods.sums import exact_sums, vector_epsilons, vectors
from aggregator.curator.records import Records, read_records
from aggregator.curator.terms import TWO_TO_ONE, FitTerms, check_terms
from aggregator.estimates.homogeneity import LEAST_DEVICES
from aggregator.estimates.source import Origin, Source
from aggregator.estimates.statistics import Statistics
from aggregator.estimates.sums import NoisySum, of_sums
from aggregator.models.encoding import MISSING, feature_codes, label_codes, recognise
from aggregator.models.population import read_pilot
from aggregator.publishing.signatures import Signatures, check_signatures, header_for, seconds_of
from aggregator.publishing.workspace import Workspace
from protocol import SCALE, canonical
from protocol.documents.campaign import EVALUATION, Campaign
from protocol.documents.counts import MOST_RECORDS, ROLE, Counts, Noise, build_counts, parse_counts
from protocol.documents.envelope import SIZE_LIMITS, read_envelope
from protocol.documents.payload import is_text, quoted
from protocol.epsilon import format_micro
from protocol.errors import DocumentError, InputError
from protocol.features import Feature, is_missing
from protocol.noise.sums import laplace_variance, rate, summed_subjects, with_noise
from protocol.questions import ADD_REMOVE, CELL, CLASS, MOMENT, PRESENT, SENSITIVITIES
from protocol.schema import Label
from protocol.stream import Stream

LEAST_RECORDS = LEAST_DEVICES
"""Fewest records of exact counts. The test of one population needs as many, and fewer would show single people."""
METHOD = "sums"
_TAIL = 64
"""So many standard deviations of noise may a noisy number be beyond possible counts."""
_KEY = b"hearsay/1/counted-people"
_COUNTS_ID = b"hearsay/1/counts-statistics"
ESTIMATOR = "counts of records"
THREATS = (
    "Whoever counted the records saw them, and could state any counts; the signature says who did. Exact counts hide "
    "nobody who agreed: a reader who knows all of these records but one may learn that one from the model."
)


class CountedRecords(NamedTuple):
    """Signed counts of records.

    Attributes:
        raw: bytes of the file, ``standing``: its valid signatures, ``counts``: its content.
        left_out: number of records that no device would answer with: a label or value that the schema refuses; 0 with
            noise.
        substituted: number of cells, labels included, without a listed value that counted as the schema says.
        repeats: number of records that are equal to another one.
        query: number of the payment in the budget file; None for exact counts.
    """

    raw: bytes
    standing: Signatures
    counts: Counts
    left_out: int
    substituted: int
    repeats: int
    query: int | None


def count_records(
    workspace: Workspace,
    table: pd.DataFrame,
    campaign: Campaign,
    *,
    missing: Collection[str] = MISSING_TOKENS,
    **options: Any,
) -> CountedRecords:
    """``hearsay count``: count records by a campaign's questions, and sign the counts. Run by who may see the records.

    A record counts as a device's does: features, groups, projection and bins are the campaign's. Raises InputError:
    ``consent_missing``: neither a consent nor ε and a budget is given, or both are, or the consent is no line of text;
    ``not_fittable``: the campaign makes no model; ``pilot_too_small``: exact counts of fewer than
    :data:`LEAST_RECORDS` records; ``value_refused``: with noise, the schema refuses a cell (how many records are left
    out would be told without noise); ``epsilon_invalid``; and those of :func:`.read_pilot`. Raises PolicyError
    ``data_unknown``, ``budget_exceeded``; StorageError: the workspace or the budget can not be used.

    Args:
        workspace: its keys for models sign.
        table: the records as text, from :func:`aggregator.common.tables.read_table`, one per person, with the label.
        campaign: the campaign whose questions are counted.
        missing: texts of a missing value.
        options: the other arguments of :func:`count_frame`.
    """
    frame = read_pilot(table, campaign.schema, missing)
    return count_frame(workspace, frame, table, campaign, **options)


def count_frame(
    workspace: Workspace,
    frame: pd.DataFrame,
    table: pd.DataFrame,
    campaign: Campaign,
    *,
    name: str | None = None,
    consent: str = "",
    epsilon_micro: int | None = None,
    budget: BudgetFile | None = None,
    days: int = 365,
    now: int | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> CountedRecords:
    """Count the typed records ``frame`` of a ``table``, and sign the counts, as :func:`count_records`.

    Args:
        name: of the counts; by default the campaign's. Counts of different records need different names.
        consent: who agreed to exact counts, and to what.
        epsilon_micro, budget: in place of a consent: ε of the noise in millionths, and the open budget file that pays.
        days: lifetime of the counts. A model takes no counts that have expired.
        now: seconds since 1970; None asks the clock.
        random_bytes: ``random_bytes(n)`` returns n random bytes, for the noise.
    """
    if campaign.fit.family == EVALUATION or not campaign.schema.observed or campaign.ended:
        raise InputError(
            "not_fittable",
            "the campaign, or this last version of it, asks about no feature, so no model is made of its counts; name "
            "the version that was asked, NAME@VERSION",
        )
    if (budget is None) != (epsilon_micro is None) or (budget is None) != bool(consent):
        raise InputError(
            "consent_missing",
            "say who agreed to exact counts (--consent), or pay for noise (--private-epsilon, --budget), not both",
        )
    if consent and not is_text(consent):
        raise InputError("consent_missing", "the consent is one line of at most 1024 bytes of text")
    moment, lifetime = int(time.time()) if now is None else now, seconds_of(days)
    refused = _refused(frame, campaign)
    kept = frame[~refused]
    known = campaign.header.name if name is None else name

    def sign(found: _Content, *, rehearse: bool = False) -> bytes:
        def payload_for(version: int, _before: bytes | None) -> bytes:
            header = header_for(known, version, moment, lifetime)
            values = tuple(tuple(each) for each in found.vectors)
            return build_counts(Counts(header, campaign.id, found.records, values, found.people, consent, found.noise))

        return workspace.publish(ROLE, known, moment, payload_for, rehearse=rehearse)

    query = None
    if budget is None or epsilon_micro is None:
        records, found = _exactly(workspace, kept, table, campaign, random_bytes)
    else:
        if refused.any():
            raise InputError(
                "value_refused", "the schema refuses a label or value of the records; how many they are may not be told"
            )
        noise = Noise(epsilon_micro, budget.adjacency, TWO_TO_ONE, budget.state().name)
        sign(_made_up(campaign, noise, budget), rehearse=True)
        records = read_records(kept, campaign.schema)
        query = _pay(table, campaign, noise, budget, known)
        found = _noisily(records, campaign, noise, budget, Stream(random_bytes(32), TAG))
    raw = sign(found)
    counts = parse_counts(read_envelope(raw, ROLE).payload)
    standing = workspace.standing(ROLE, raw)
    repeats = int(table.duplicated().sum())
    return CountedRecords(raw, standing, counts, int(refused.sum()), _substituted(kept, records), repeats, query)


class _Content(NamedTuple):
    """What is counted: ``records``, ``vectors``, ``people`` and ``noise`` as in :class:`.Counts`."""

    records: int
    vectors: Sequence[Sequence[int]]
    people: bytes
    noise: Noise | None


def _exactly(
    workspace: Workspace,
    frame: pd.DataFrame,
    table: pd.DataFrame,
    campaign: Campaign,
    random_bytes: Callable[[int], bytes],
) -> tuple[Records, _Content]:
    """Return the records and their exact counts. Raise ``pilot_too_small``."""
    if not LEAST_RECORDS <= len(frame) <= MOST_RECORDS:
        raise InputError("pilot_too_small", f"exact counts are of at least {LEAST_RECORDS} people's records")
    records = read_records(frame, campaign.schema)
    names = [campaign.stated.label.name, *(feature.name for feature in campaign.stated.features)]
    columns = record_bytes(table[[each for each in names if each in table]])
    people = digest_of(columns, _people_key(workspace, random_bytes))
    exact = exact_sums(records, summed_subjects(campaign.schema, campaign.fit.family))
    return records, _Content(records.rows, exact, people, None)


def _made_up(campaign: Campaign, noise: Noise, budget: BudgetFile) -> _Content:
    """Return counts of made-up records: they are signed before the budget pays, so that signing can not fail later."""
    records = made_up_records(campaign.schema)
    exact = exact_sums(records, summed_subjects(campaign.schema, campaign.fit.family))
    return _Content(records.rows, exact, budget.digest([_KEY]), noise)


def _pay(table: pd.DataFrame, campaign: Campaign, noise: Noise, budget: BudgetFile, name: str) -> int:
    """Let the budget pay for counts with noise, and return the number of the payment."""
    terms = _terms(campaign, noise)
    epsilon = format_micro(noise.epsilon_micro)
    asked = f"counts {name!r}: {METHOD}, {terms.family}, ε = {epsilon} divided {noise.division}"
    return budget.spend(budget.digest(record_bytes(table)), asked, cost_of_fit(campaign.schema, terms))


def _noisily(records: Records, campaign: Campaign, noise: Noise, budget: BudgetFile, stream: Stream) -> _Content:
    """Return the counts of the records with noise from ``stream``."""
    noisy = [with_noise(exact, stream)[1] for exact in vectors(records, _terms(campaign, noise))]
    count = sum(noisy[0]) if noise.adjacency == ADD_REMOVE else records.rows
    return _Content(count, noisy, budget.digest([_KEY]), noise)


def _terms(campaign: Campaign, noise: Noise) -> FitTerms:
    return FitTerms(
        METHOD, noise.epsilon_micro, adjacency=noise.adjacency, family=campaign.fit.family, division=noise.division
    )


def _people_key(workspace: Workspace, random_bytes: Callable[[int], bytes]) -> bytes:
    """Return the key of the records' digest: from a model key here, so only its holder can test a guess."""
    keys = workspace.signing_keys("model")
    secret = keys[0].open(workspace.passphrase).seed if keys else random_bytes(32)
    return hmac.digest(secret, _KEY, "sha256")


def _refused(frame: pd.DataFrame, campaign: Campaign) -> np.ndarray:
    """Return which records no device would answer with, (rows,) bool: a cell that the schema refuses."""
    found = np.zeros(len(frame), np.bool_)
    schema = campaign.schema
    columns: list[tuple[Label | Feature, Integers]] = [(schema.label, label_codes(frame, schema.label))]
    columns += [(each, feature_codes(frame[each.name], each)) for each in schema.features if each.name in frame.columns]
    for part, codes in columns:
        if part.unlisted == "refuse":
            named = np.array([not is_missing(cell) for cell in frame[part.name].astype(object)], np.bool_)
            found |= (codes == MISSING) & named
    return found


def _substituted(frame: pd.DataFrame, records: Records) -> int:
    """Return the number of cells without a listed value or number, labels included."""
    unknown = int((recognise(frame, records.schema).codes == MISSING).sum())
    return unknown + int((label_codes(frame, records.schema.label) == MISSING).sum())


@dataclass(frozen=True, eq=False)
class Counted(Source):
    """Source of statistics: signed counts of records in the clear.

    Attributes:
        file: bytes of the signed counts.
        content: what they say.
        of: the campaign whose questions were counted.
        weight: share of trust, in (0, 1].
    """

    batch_of: ClassVar[str] = "records"
    file: bytes
    content: Counts
    of: Campaign
    weight: float = 1.0
    campaign: None = None
    rejected: Mapping[str, int] = field(default_factory=dict)

    @property
    def counts_bytes(self) -> bytes:  # type: ignore[override] # a field of the base class
        """The signed counts."""
        return self.file

    @property
    def origin(self) -> Origin:
        """Digest, name and version of the counts, with the campaign's purpose; older than any campaign."""
        digest = sha256(read_envelope(self.file, ROLE).payload).digest()
        least = LEAST_RECORDS if self.content.noise is None else 0
        return Origin(digest, self.content.header.name, self.of.purpose, self.content.header.version, 0, least)

    @property
    def marks(self) -> tuple[object, ...]:
        """Digest of the counts, digest of the people, and name: versions of one name are of the same people."""
        return (self.origin.id, self.content.people, f"counts {self.content.header.name}")

    @property
    def reports(self) -> int:
        """Number of records, at least 1."""
        return max(self.content.records, 1)

    @property
    def stated_reports(self) -> int:
        """Number of records; with noise below 1 if the noisy counts say so."""
        return self.content.records

    @property
    def statistics_id(self) -> bytes:
        """A digest of the counts and of the share of trust, 32 bytes."""
        return sha256(_COUNTS_ID + canonical.pack([self.origin.id, repr(self.weight)])).digest()

    def counts(self, question: int) -> list[int]:
        """Return the numbers of a released vector."""
        return list(self.content.vectors[question])

    def populations(self) -> dict[str, Any]:
        """Return texts: who each of the two intervals is about, and what the second one assumes."""
        return {
            "devices": "these records",
            "population": "the population that these records are drawn from",
            "assumes": "the records are independent, one per person",
        }

    def facts(self) -> dict[str, int]:
        """Return an empty mapping: the counts hold no other number for people."""
        return {}

    @property
    def described(self) -> str:
        """Whose records these are, how many, and under which consent or ε, in a sentence."""
        header, noise = self.content.header, self.content.noise
        said = f"{quoted(header.name)}, version {header.version}: {self.content.records} records"
        if noise is None:
            said += f", counted exactly, by consent: {self.content.consent}"
        else:
            epsilon = f"ε = {format_micro(noise.epsilon_micro)} ({noise.adjacency})"
            said += f", counted with noise, {epsilon}, paid from the budget {quoted(noise.budget)}"
        return said if self.weight == 1 else f"{said}; share of trust {self.weight:g}"

    def card(self) -> dict[str, Any]:
        """Return entries for a model's card."""
        trust = "pilot" if self.content.noise is None else "central"
        return {"records": [self.described], "trust": trust, "estimator": ESTIMATOR, "threats": THREATS}

    def to_json(self) -> dict[str, Any]:
        """Return the part of the statistics' JSON that is about the records."""
        noise = self.content.noise
        return {
            "counts": self.origin.id.hex(),
            "name": self.content.header.name,
            "reports": self.stated_reports,
            "consent": self.content.consent or None,
            "epsilon": None if noise is None else format_micro(noise.epsilon_micro),
            "weight": self.weight,
            "statistics_id": self.statistics_id.hex(),
            "populations": self.populations(),
        }


def open_counts(
    given: bytes | str | Path,
    campaigns: Sequence[Campaign],
    now: int,
    *,
    workspace: Workspace | None = None,
    trust: bytes | None = None,
    weight: float = 1.0,
) -> Statistics:
    """Verify signed counts, and return their statistics. Run by publisher and analyst.

        m = ⌊weight·n⌋, at least 1;   every count is taken m/n times, and every variance is that of m records

    n: the number of records. Raises InputError: ``argument_invalid``: no keys are given, or the weight is not in (0,
    1]; ``other_campaign``: the counts are of none of the campaigns. Raises DocumentError: ``bad_signature`` and the
    other reasons of reading; ``not_yet_valid``, ``expired``; ``rollback``: the workspace signed newer counts of this
    name for the same campaign, perhaps without people who do not agree any more; ``counts_invalid``: the counts do not
    fit the campaign, or can not be.

    Args:
        given: bytes or path of the file.
        campaigns: the campaigns of the stores that the counts are joined with.
        now: seconds since 1970.
        workspace, trust: whose signature the counts must have: the workspace, or the keys of a root.
        weight: share of trust. At 1 a record counts as much as a device that answers without noise.
    """
    if not 0 < weight <= 1:
        raise InputError("argument_invalid", "the share of trust (--weight) is above 0 and at most 1")
    raw = given if isinstance(given, bytes) else read_file(given, SIZE_LIMITS[ROLE])
    if workspace is not None:
        workspace.check_signed(raw, ROLE)
    elif trust is not None:
        check_signatures(trust, raw, ROLE)
    else:
        raise InputError("argument_invalid", "counts of records are read with --workspace or --trust, whose key signed")
    content = parse_counts(read_envelope(raw, ROLE).payload)
    if now < content.header.not_before:
        raise DocumentError("not_yet_valid", "the counts of records are not valid yet")
    if content.header.expires <= now:
        raise DocumentError("expired", "the counts of records have expired; count again if their people still agree")
    if workspace is not None and _is_replaced(content, workspace):
        raise DocumentError("rollback", f"there are newer counts {quoted(content.header.name)} of this campaign")
    asked = next((each for each in campaigns if each.id == content.campaign), None)
    if asked is None:
        raise InputError("other_campaign", "the counts of records are of another campaign than the stores")
    return _statistics(Counted(raw, content, asked, float(weight)))


def _is_replaced(content: Counts, workspace: Workspace) -> bool:
    """Return whether the workspace has signed newer counts of the same name for the same campaign."""
    newer = [
        each
        for each in workspace.history()
        if (each.role, each.name) == (ROLE, content.header.name) and each.version > content.header.version
    ]
    copies = (read_envelope(workspace.copy(each), ROLE).payload for each in newer)
    return any(parse_counts(payload).campaign == content.campaign for payload in copies)


def untrusting(statistics: Statistics) -> Statistics:
    """Return the statistics of counts of records with the share of trust 1; all other statistics unchanged."""
    source = statistics.sources[0]
    if not isinstance(source, Counted) or source.weight == 1:
        return statistics
    return _statistics(replace(source, weight=1.0))


def check_counts(content: Counts, campaign: Campaign) -> list[float]:
    """Return the noise variance of each vector. Raise ``counts_invalid`` if the counts can not be of the campaign.

    Exact counts of n records add up: those of each vector to n, and over a feature's values to the classes' counts.
    Noisy numbers may be 64(1 + √K) standard deviations of noise beyond possible counts, K numbers in their vector.
    """
    schema, noise, n = campaign.schema, content.noise, content.records
    subjects = summed_subjects(schema, campaign.fit.family)
    classes = len(schema.label.classes)
    if [len(each) for each in content.vectors] != [subject.size for subject in subjects]:
        raise DocumentError("counts_invalid", "the counts have other vectors than the campaign's questions")
    variances = [0.0] * len(subjects)
    if noise is not None:
        variances = _variances(campaign, noise)
        if noise.adjacency == ADD_REMOVE and n != sum(content.vectors[0]):
            raise DocumentError("counts_invalid", "the number of records is not the sum of the noisy class counts")
    for subject, values, variance in zip(subjects, content.vectors, variances, strict=True):
        counted = subject.kind in (CLASS, CELL, PRESENT)
        tail = _TAIL * variance**0.5 * (1 + subject.size**0.5)
        most = max(n, 1) if counted else max(n, 1) * SCALE
        least = 0 if counted or subject.power != 1 else -most
        fits = least - tail <= min(values) and max(values) <= most + tail
        if noise is None and counted:
            sums = [sum(values[place::classes]) for place in range(classes)]
            fits = fits and sums == list(content.vectors[0])
        if not variance and counted:
            fits = fits and sum(values) == n
        if not fits:
            what = "the classes" if subject.feature is None else quoted(schema.observed[subject.feature].name)
            raise DocumentError("counts_invalid", f"the counts of {what} can not be those of {n} records")
    return variances


def _variances(campaign: Campaign, noise: Noise) -> list[float]:
    """Return the variance of the noise in one number of each vector."""
    terms = _terms(campaign, noise)
    try:
        check_terms(terms)
        shares = vector_epsilons(campaign.schema, terms)
    except InputError as error:
        raise DocumentError("counts_invalid", error.detail) from None
    found = []
    for subject, share in zip(summed_subjects(campaign.schema, campaign.fit.family), shares, strict=True):
        sensitivity = SENSITIVITIES[subject.kind, subject.power][noise.adjacency]
        found.append(laplace_variance(Fraction(rate(share, sensitivity))) if sensitivity else 0.0)
    return found


def _statistics(source: Counted) -> Statistics:
    content, campaign = source.content, source.of
    n = source.reports
    effective = max(1, int(Fraction(repr(source.weight)) * n))
    part = effective / n
    sums = []
    subjects = summed_subjects(campaign.schema, campaign.fit.family)
    for subject, values, variance in zip(subjects, content.vectors, check_counts(content, campaign), strict=True):
        unit = part / (SCALE if subject.kind == MOMENT else 1)
        sums.append(
            NoisySum(
                subject,
                np.array(values, np.float64) * unit,
                np.full(len(values), variance * unit**2),
                values,
                is_repeated=content.noise is None and subject.kind != CLASS,
                kurtosis=0.0 if content.noise is None else 3.0,
            )
        )
    is_counted = content.noise is None or content.noise.adjacency != ADD_REMOVE
    return of_sums(sums, campaign.schema, campaign.fit, source, is_counted=is_counted, records=effective)
