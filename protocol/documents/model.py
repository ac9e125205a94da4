"""The model: a signed document with the parameters of a Naive Bayes classifier.

The aggregator makes the model; the device classifies with it. An evaluation campaign asks whether models' predictions
are right, so it asks about the models' features, and a device must read the models before it answers
(:func:`missing_models`, :func:`evaluated_models`). Source: docs/formats.md, section 5 (model; evaluations).
"""

from __future__ import annotations

import sys
from array import array
from math import erf, exp, isfinite, log, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from protocol import canonical
from protocol.documents.asked import JOINS, MAX_MODELS, parse_joins, without_members
from protocol.documents.payload import HEADER_KEYS, Header, quoted, read_field, read_payload, read_text
from protocol.errors import DocumentError, InputError
from protocol.schema import Schema, parse_schema
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from protocol.documents.campaign import Campaign
    from protocol.documents.payload import Header
    from protocol.schema import Check, Schema

_REASON = "invalid_model"
TRUNCATED_GAUSSIAN = "truncated-gaussian"
"""Family of models with normal distributions that are cut to [−1, 1]. A curator's fit may have it, a campaign not."""
_DIGEST_BYTES = 32
UNDERSTOOD = frozenset(
    (
        *HEADER_KEYS,
        "campaign",
        "card",
        "family",
        "features",
        JOINS,
        "label",
        "parameters",
        "previous",
        "projection",
        "statistics_id",
    )
)


class Normal(NamedTuple):
    """Mean and variance of a numeric feature in each of k classes, for numbers scaled to [−1, 1]. Shape (k,) each."""

    mean: tuple[float, ...]
    variance: tuple[float, ...]


def log_mass(mean: float, variance: float) -> float:
    """Return ln Z, where Z is the mass in [−1, 1] of the normal distribution with mean μ, |μ| ≤ 1, and variance σ² > 0.

        Z = ½ erf((1 − μ)/√(2σ²)) + ½ erf((1 + μ)/√(2σ²))

    Z is at least ½ erf(2/√(2σ²)) > 0, so the logarithm is finite. Device and aggregator use this function for models of
    the family ``truncated-gaussian``.
    """
    scale = sqrt(2 * variance)
    return log(erf((1 - mean) / scale) / 2 + erf((1 + mean) / scale) / 2)


def log_sum(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return ln Σ exp(r) over the entries r of each column of ``rows``, which are logarithms of probabilities.

    Device and aggregator so score a joined feature of which a record has some of the values only: the sum is over all
    combinations that agree with the record (:meth:`protocol.features.Joined.matching`).
    """
    found = []
    for column in zip(*rows, strict=True):
        most = max(column)
        found.append(most + log(sum(exp(each - most) for each in column)))
    return found


class DiscreteModel(NamedTuple):
    """A discrete Naive Bayes model with k classes whose values were checked.

    Attributes:
        header: name, version and dates.
        campaign: id of the campaign whose reports the model was made from.
        schema: label and features, as in that campaign, without groups.
        log_prior: shape (k,), log P(class).
        log_likelihood: per observed feature a table of shape (value codes, k): log P(code | class).
        statistics_id: SHA-256 of the bytes of the counts (tally) that the model was made from.
        previous: digest of the model that this one replaces, or None.
        card: facts about the making of the model, for people.
    """

    header: Header
    campaign: bytes
    schema: Schema
    log_prior: tuple[float, ...]
    log_likelihood: tuple[tuple[tuple[float, ...], ...], ...]
    statistics_id: bytes
    previous: bytes | None
    card: dict[str, Any]


class GaussianModel(NamedTuple):
    """A Naive Bayes model with normal distributions for numeric features and tables for categorical features.

    Attributes:
        terms: per observed feature a :class:`Normal`, or a table as in ``DiscreteModel.log_likelihood``.
        is_truncated: whether the normal distributions are cut to [−1, 1] (:func:`log_mass`): the family
            ``truncated-gaussian``.

    The other attributes are those of :class:`DiscreteModel`.
    """

    header: Header
    campaign: bytes
    schema: Schema
    log_prior: tuple[float, ...]
    terms: tuple[Normal | tuple[tuple[float, ...], ...], ...]
    statistics_id: bytes
    previous: bytes | None
    card: dict[str, Any]
    is_truncated: bool = False


Model = DiscreteModel | GaussianModel


def float_array(values: Sequence[float], shape: Sequence[int]) -> dict[str, Any]:
    """Encode ``values``, row by row, as a typed array of little-endian 32-bit floats of shape ``shape``."""
    packed = array("f", values)
    if sys.byteorder == "big":
        packed.byteswap()
    return {"dt": "<f4", "sh": list(shape), "b": packed.tobytes()}


def read_float_array(entry: object, shape: Sequence[int]) -> tuple[float, ...]:
    """Decode ``entry``, a typed array of 32-bit floats. Return its numbers, row by row.

    Raises:
        DocumentError: ``invalid_model``: another type, a shape other than ``shape``, or a number that is not finite.
    """
    count = 1
    for side in shape:
        count *= side
    if (
        not isinstance(entry, dict)
        or set(entry) != {"dt", "sh", "b"}
        or entry["dt"] != "<f4"
        or entry["sh"] != list(shape)
        or not isinstance(entry["b"], bytes)
        or len(entry["b"]) != 4 * count
    ):
        raise DocumentError(_REASON, "a parameter is not an array of 32-bit floats of its shape")
    values = array("f")
    values.frombytes(entry["b"])
    if sys.byteorder == "big":
        values.byteswap()
    if not all(map(isfinite, values)):
        raise DocumentError(_REASON, "a parameter is not a finite number")
    return tuple(values)


def build_payload(model: Model) -> bytes:
    """Encode ``model`` as the payload to be signed, and check it by :func:`parse_model`. The aggregator runs this.

    Raises:
        InputError: ``not_canonical``: the card holds a value without a canonical form, for example a float.
        DocumentError: ``malformed``, ``invalid_model``: a value that :func:`parse_model` refuses.
    """
    family, parameters = _parameters(model)
    schema = model.schema
    joins = {JOINS: [list(join) for join in schema.joins]} if schema.joins else {}
    payload = canonical.pack(
        {
            **model.header._replace(crit=tuple(dict.fromkeys((*model.header.crit, *joins)))).to_dict(),
            **joins,
            "campaign": model.campaign,
            "family": family,
            "label": schema.label.to_dict(),
            "features": [feature.to_dict() for feature in schema.features],
            "projection": None if schema.projection is None else schema.projection.to_dict(),
            "parameters": {"log_prior": float_array(model.log_prior, [len(model.log_prior)]), **parameters},
            "statistics_id": model.statistics_id,
            "previous": model.previous,
            "card": model.card,
        }
    )
    parse_model(payload)
    return payload


def _parameters(model: Model) -> tuple[str, dict[str, Any]]:
    classes = len(model.log_prior)
    if isinstance(model, DiscreteModel):
        return "discrete", {"log_likelihood": [_table(rows, classes) for rows in model.log_likelihood]}
    normals = [term if isinstance(term, Normal) else None for term in model.terms]
    return TRUNCATED_GAUSSIAN if model.is_truncated else "gaussian", {
        "log_likelihood": [None if isinstance(term, Normal) else _table(term, classes) for term in model.terms],
        "mean": [None if normal is None else float_array(normal.mean, [classes]) for normal in normals],
        "variance": [None if normal is None else float_array(normal.variance, [classes]) for normal in normals],
    }


def _table(rows: Sequence[Sequence[float]], classes: int) -> dict[str, Any]:
    return float_array([value for row in rows for value in row], [len(rows), classes])


def parse_model(payload: bytes) -> Model:
    """Parse the payload of a model and check types, shapes and ranges of its values.

    The caller must have verified signatures, ``spec`` and ``crit``. Parameters must be finite and variances positive.
    It is not checked that probabilities sum to 1, and any map is accepted as card.

    Raises:
        DocumentError: ``malformed``: the payload or its header can not be read; ``invalid_model``: any other value.
    """
    body, header = read_payload(payload)
    schema = without_members(parse_joins(body, header, parse_schema(body, _REASON), _REASON))
    joined = [index for join in schema.joins for index in join]
    family = read_text(body, "family", _REASON)
    if family not in ("discrete", "gaussian", TRUNCATED_GAUSSIAN):
        raise DocumentError(_REASON, "its family is not one that this software knows")
    if schema.joins and (family != "discrete" or len(set(joined)) < len(joined)):
        raise DocumentError(_REASON, "it joins features, but is not discrete, or joins one feature twice")
    parameters = read_field(body, "parameters", dict, _REASON)
    prior = read_float_array(parameters.get("log_prior"), [len(schema.label.classes)])
    common = {
        "header": header,
        "campaign": _digest(body, "campaign"),
        "schema": schema,
        "log_prior": prior,
        "statistics_id": _digest(body, "statistics_id"),
        "previous": None if body.get("previous", b"") is None else _digest(body, "previous"),
        "card": read_field(body, "card", dict, _REASON),
    }
    if family == "discrete":
        return DiscreteModel(log_likelihood=_read_tables(parameters, schema), **common)
    is_truncated = family == TRUNCATED_GAUSSIAN
    terms = _read_terms(parameters, schema)
    if is_truncated and any(abs(mean) > 1 for term in terms if isinstance(term, Normal) for mean in term.mean):
        raise DocumentError(_REASON, "a truncated normal distribution has its mean outside [−1, 1]")
    return GaussianModel(terms=terms, is_truncated=is_truncated, **common)


def _entries(parameters: dict[str, Any], key: str, schema: Schema) -> list[Any]:
    entries: list[Any] = read_field(parameters, key, list, _REASON)
    if len(entries) != len(schema.observed):
        raise DocumentError(_REASON, f"it has not one '{key}' per observed feature")
    return entries


def _read_tables(parameters: dict[str, Any], schema: Schema) -> tuple[tuple[tuple[float, ...], ...], ...]:
    classes = len(schema.label.classes)
    tables = zip(_entries(parameters, "log_likelihood", schema), schema.observed, strict=True)
    return tuple(_rows(read_float_array(table, [feature.size, classes]), classes) for table, feature in tables)


def _read_terms(parameters: dict[str, Any], schema: Schema) -> tuple[Normal | tuple[tuple[float, ...], ...], ...]:
    """Read a normal distribution for each numeric feature and a table for each categorical feature."""
    classes = len(schema.label.classes)
    tables, means, variances = (_entries(parameters, key, schema) for key in ("log_likelihood", "mean", "variance"))
    terms: list[Normal | tuple[tuple[float, ...], ...]] = []
    for index, feature in enumerate(schema.observed):
        if index in schema.numeric:
            normal = Normal(read_float_array(means[index], [classes]), read_float_array(variances[index], [classes]))
            if tables[index] is not None or min(normal.variance) <= 0:
                raise DocumentError(_REASON, "a number has a table, or a variance that is not positive")
            terms.append(normal)
        else:
            if means[index] is not None or variances[index] is not None:
                raise DocumentError(_REASON, "a category has a mean or a variance")
            terms.append(_rows(read_float_array(tables[index], [feature.size, classes]), classes))
    return tuple(terms)


def _rows(values: tuple[float, ...], width: int) -> tuple[tuple[float, ...], ...]:
    """Cut values, (rows·width,), into a tuple of rows of ``width`` values each."""
    return tuple(values[start : start + width] for start in range(0, len(values), width))


def _digest(body: dict[str, Any], key: str) -> bytes:
    digest: bytes = read_field(body, key, bytes, _REASON)
    if len(digest) != _DIGEST_BYTES:
        raise DocumentError(_REASON, f"'{key}' is not a SHA-256 digest")
    return digest


class Evaluated(NamedTuple):
    """A model that a campaign evaluates, without its parameters: a device may have 16 models of 4 MiB each.

    Attributes:
        header: name, version and dates of the model.
        schema: label and features that the model reads.
    """

    header: Header
    schema: Schema


def missing_models(campaign: Campaign, payload_of: Callable[[bytes], bytes | None]) -> tuple[str, ...]:
    """Return the models that a campaign evaluates and a device does not have; none for a campaign that has ended.

    A model is returned by its name, or by the first 16 hexadecimal digits of its digest if the campaign states no name.
    ``payload_of`` returns the verified payload of a digest's model, or None if the device has no such model.
    """
    if campaign.ended:
        return ()
    names = campaign.model_names or tuple(digest.hex()[:16] for digest in campaign.evaluated)
    return tuple(name for name, digest in zip(names, campaign.evaluated, strict=True) if payload_of(digest) is None)


def evaluated_models(
    campaign: Campaign, payload_of: Callable[[bytes], bytes | None], read: dict[bytes, Evaluated]
) -> tuple[Evaluated, ...]:
    """Return the models that a campaign evaluates, in the order of their indices; none for a campaign that has ended.

    ``payload_of`` is as in :func:`missing_models`. ``read`` is a cache of models by digest, since reading a model takes
    longer than all the rest of a report; at most ``MAX_MODELS`` are kept in it.

    Raises:
        InputError: ``model_unknown``: the device lacks one of the models.
        DocumentError: ``invalid_campaign``: a model has other classes than the campaign, or another name than the
            campaign states; or as :func:`parse_model`.
    """
    if campaign.ended:
        return ()
    missing = missing_models(campaign, payload_of)
    if missing:
        raise InputError("model_unknown", _missing_text(campaign, missing))
    found = []
    for place, digest in enumerate(campaign.evaluated):
        model = read.get(digest)
        if model is None:
            parsed = parse_model(payload_of(digest) or b"")
            model = read[digest] = Evaluated(parsed.header, parsed.schema)
        if model.schema.label.classes != campaign.schema.label.classes:
            raise DocumentError("invalid_campaign", "its classes are not those of the model that it evaluates")
        if campaign.model_names and campaign.model_names[place] != model.header.name:
            raise DocumentError("invalid_campaign", "it evaluates a model under another name than the model's own")
        found.append(model)
    while len(read) > MAX_MODELS:
        del read[next(iter(read))]
    return tuple(found)


def _missing_text(campaign: Campaign, missing: Sequence[str]) -> str:
    """Return the text of the error ``model_unknown``: which models are not installed, and what the owner can do."""
    ended = "this campaign is over here: its publisher can ask about the newer version"
    if not campaign.models:
        return (
            "the campaign evaluates a model that is not installed here, and what it asks about is what that model "
            "reads; install that very model first (to explain, give it by --model). If a newer version of it is "
            f"installed, {ended}"
        )
    return (
        f"the campaign compares {len(campaign.models)} models, and these are not installed here in the version that it "
        f"names: {', '.join(map(quoted, missing))}; only a device that has all of them takes part. Install them first "
        f"(to explain, give each by --model). If a newer version of one is installed, {ended}"
    )


def payloads_given(campaign: Campaign, given: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return digest → payload of the models, as verified payloads, that a user gave to explain a campaign.

    Raises:
        InputError: ``model_unknown``: the campaign evaluates models, but not one of those given.
    """
    found = {sha256(payload).digest(): payload for payload in given}
    if campaign.evaluated and not campaign.ended and not found.keys() <= set(campaign.evaluated):
        raise InputError("model_unknown", "the campaign evaluates another model than the one that was given")
    return found


def schema_read(campaign: Campaign, evaluated: Sequence[Evaluated]) -> Schema:
    """Return the label and features that a device reads of a record for a campaign.

    In an evaluation these are the features of all its models; a shared campaign may ask about features too. A feature
    that several models read is there once for each of them, since models may define it differently.
    """
    if not evaluated:
        return campaign.schema
    own = () if all(block.feature is None for block in campaign.blocks) else campaign.schema.features
    return campaign.schema._replace(
        features=(*own, *(feature for model in evaluated for feature in model.schema.features))
    )


def named_once(check: Check) -> Check:
    """Return the check of a record with every name and hint once, since several models may read one feature."""
    missing, unlisted, hints = (tuple(dict.fromkeys(names)) for names in (check.missing, check.unlisted, check.hints))
    return check._replace(missing=missing, unlisted=unlisted, hints=hints)
