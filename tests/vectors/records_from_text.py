"""From a record to its reports, and to a class, once more: written from docs/formats.md and docs/math.md alone.

It imports nothing of this project. The expectations of ``generated/records.json`` are computed with it.
"""

import hmac
import re
import struct
from fractions import Fraction
from hashlib import sha256
from itertools import product
from math import erf, exp, floor, inf, isinf, isnan, log, pi, prod, sqrt

import msgpack

from vectors.from_text import OF_NUMBERS, S, answer_field, numbers, perturbed

DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class RefusedError(Exception):
    """The record or the device gives no report."""


def array(entry):
    """A typed array as nested lists."""
    code, shape = {"<i4": "i", "<i8": "q", "<f4": "f"}[entry["dt"]], entry["sh"]
    flat = list(struct.unpack(f"<{prod(shape)}{code}", entry["b"]))
    for width in reversed(shape[1:]):
        flat = [flat[start : start + width] for start in range(0, len(flat), width)]
    return flat


# Values ---------------------------------------------------------------------------------------------


def is_missing(value):
    """Absent, null, the empty text, NaN."""
    return value is None or value == "" or (isinstance(value, float) and isnan(value))


def listed_as(value):
    """The text that a listed value must be to match."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if not isnan(value) and not isinf(value) and value == int(value) else None
    return str(value) if isinstance(value, str | int) else None


def number_of(value):
    """The number that a value is, exactly; an infinity as it is; None for every other value."""
    if isinstance(value, bool) or is_missing(value):
        return None
    if isinstance(value, float) and isinf(value):
        return value
    if isinstance(value, str):
        return Fraction(value) if DECIMAL.fullmatch(value) else None
    return Fraction(value) if isinstance(value, int | float) else None


def scaled(feature, number):
    """u = (x − low)/(high − low)·2S − S, rounded half to even, clipped."""
    if number in (inf, -inf):
        return S if number > 0 else -S
    low, high = Fraction(feature["low"]), Fraction(feature["high"])
    exact = (Fraction(number) - low) / (high - low) * 2 * S - S
    below = floor(exact)
    rest = exact - below
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1)
    return max(-S, min(S, below + int(up)))


def bin_of(edges, u):
    """The number of edges ≤ u."""
    return sum(1 for edge in edges if edge <= u)


def known(feature, value):
    """Code and u of a value that is listed, other, or a number; None for a missing or unlisted one."""
    if feature["kind"] == "numeric":
        number = number_of(value)
        if number is None:
            return None
        u = scaled(feature, number)
        return bin_of(feature["edges"], u), u
    values = feature["values"]
    if listed_as(value) in values:
        return values.index(listed_as(value)), None
    if feature["unlisted"] == "other" and not is_missing(value):
        return len(values) + (feature["substitute"] is None), None
    return None


def reading(feature, value):
    """Code and u of any value, for a report."""
    found = known(feature, value)
    if found is not None:
        return found
    if feature["unlisted"] == "refuse" and not is_missing(value):
        raise RefusedError("value_refused")
    substitute = feature.get("substitute")
    if feature["kind"] == "numeric":
        edges = feature["edges"]
        return (len(edges) + 1, None) if substitute is None else (bin_of(edges, substitute), substitute)
    return (len(feature["values"]) if substitute is None else substitute), None


def observed(body, found):
    """Readings of the observed features from those of all features; of a component None where an input is missing."""
    projection = body["projection"]
    if projection is None:
        return found
    kept = [each for place, each in enumerate(found) if place not in projection["inputs"]]
    inputs = [None if found[place] is None else found[place][1] for place in projection["inputs"]]
    rows, offsets = array(projection["matrix"]), array(projection["offsets"])
    for component, row, offset in zip(projection["components"], rows, offsets, strict=True):
        if None in inputs:
            kept.append(None)
            continue
        total = sum(weight * u for weight, u in zip(row, inputs, strict=True)) + offset
        output = max(component["low"], min(component["high"], total // 2 ** projection["shift"]))
        kept.append((bin_of(component["edges"], output), output))
    return kept


def observation(body, record):
    """Code, or group, and u of every observed feature, for a report. The code of a missing component is its last."""
    found = observed(body, [reading(feature, record.get(feature["name"])) for feature in body["features"]])
    if body["projection"] is not None:
        components = body["projection"]["components"]
        first = len(found) - len(components)
        for place, component in enumerate(components):
            if found[first + place] is None:
                found[first + place] = (len(component["edges"]) + 1, None)
    for entry in body.get("groups", []):
        code, u = found[entry["feature"]]
        found[entry["feature"]] = (entry["group_of"][code], u)
    return with_joins(body, found) if "joins" in body else found


def sizes(body):
    """The number of codes of every observed feature, before groups and joins."""
    found = []
    for feature in body["features"]:
        listed = feature["values"] if feature["kind"] == "categorical" else [*feature["edges"], "one more"]
        found.append(len(listed) + (feature["substitute"] is None) + (feature["unlisted"] == "other"))
    return found


def joined(codes, counts):
    """(a₁·K₂ + a₂)·K₃ + a₃ for the codes a and the numbers of codes K."""
    code = 0
    for own, count in zip(codes, counts, strict=True):
        code = code * count + own
    return code


def with_joins(body, found):
    """The readings of the features that the questions are about: single ones, then joins."""
    counts = sizes(body)
    for entry in body.get("groups", []):
        counts[entry["feature"]] = max(entry["group_of"]) + 1
    more = [(joined([found[i][0] for i in join], [counts[i] for i in join]), None) for join in body["joins"]]
    return found + more


def class_of(label, value):
    """The code of a label: read as a category is, with a substitute for what is missing or unlisted."""
    return reading({**label, "kind": "categorical", "values": label["classes"]}, value)[0]


# Questions and reports ------------------------------------------------------------------------------


def numeric_places(body):
    """Places of the observed features that are numbers."""
    kinds = [feature["kind"] == "numeric" for feature in body["features"]]
    if body["projection"] is None:
        return [place for place, each in enumerate(kinds) if each]
    kept = [each for place, each in enumerate(kinds) if place not in body["projection"]["inputs"]]
    kept += [True] * len(body["projection"]["components"])
    return [place for place, each in enumerate(kept) if each]


def moment(question, u):
    """v: u, or ⌊u²/S⌋; 0 for a missing number."""
    if u is None:
        return 0
    return u if question["power"] == 1 else u * u // S


def input_of(body, question, found, c, predicted):
    """The table "input" of formats 5."""
    kind, k = question["kind"], len(body["label"]["classes"])
    if kind == "class":
        return c
    if kind == "outcome":
        return c * k + predicted[0]
    if kind == "right":
        return 1 if predicted[question["model"]] == c else 0
    if kind == "moments":
        places = numeric_places(body)
        vector = [0] * (len(places) * k)
        for i, place in enumerate(places):
            vector[i * k + c] = moment(question, found[place][1])
        return vector
    code, u = found[question["feature"]]
    if kind == "cell":
        return code * k + c
    if kind == "present":
        return k + c if u is not None else c
    v = moment(question, u)
    if "class" not in question:
        return [v if place == c else 0 for place in range(k)]
    v = v if question["class"] == c else 0
    return 2 * v - S if question["power"] == 2 else v


def assigned(questions, stratum, identifier):
    """The question with B_{j−1} ≤ u < B_j in the stratum."""
    u = int.from_bytes(identifier[:4], "big")
    return next(i for i, each in enumerate(questions) if each["stratum"] == stratum and u < each["bound"])


def field_of(layout, width, question, value, seed):
    """The perturbed answer in the layout of the campaign, with zeros to its end."""
    mechanism, size = question["mechanism"], question["size"]
    name = mechanism["name"]
    if name in OF_NUMBERS:
        answer = numbers(name, mechanism, size, value if isinstance(value, list) else [value], seed)
        answer = answer[0] if name in ("bit", "piecewise", "hybrid") else answer
    else:
        answer = perturbed(name, mechanism, size, value, seed)
    raw = answer.to_bytes(4, "big") if layout == 3 and isinstance(answer, int) else answer_field(name, answer)
    return raw + bytes(width - len(raw))


def placed(identifier, ends):
    """The id with its first four bytes in the interval of a question."""
    low, high = ends
    return (low + int.from_bytes(identifier[:4], "big") * (high - low) // 2**32).to_bytes(4, "big") + identifier[4:]


def again(layout, question, keep, field, seed):
    """The field of a report on a kept answer: one value kept with chance F/2^32, or each bit."""
    if question["mechanism"]["name"] == "direct":
        kept = {**question, "mechanism": {**question["mechanism"], "keep": keep}}
        return field_of(layout, len(field), kept, int.from_bytes(field[:2], "big"), seed)
    blocks = b"".join(
        sha256(b"\x0fhearsay/1/fresh" + seed + index.to_bytes(4, "big")).digest() for index in range(len(field))
    )
    bits = int.from_bytes(field, "big")
    for place in range(question["size"]):
        if int.from_bytes(blocks[4 * place : 4 * place + 4], "big") >= keep:
            bits ^= 1 << 8 * len(field) - 1 - place
    return bits.to_bytes(len(field), "big")


def head_of(layout, record_length):
    """The header of the msgpack value, and the length of the answer field."""
    for head_length in (2, 3, 4):
        length = record_length - head_length
        if head_length == 2 and length in (1, 2, 4, 8, 16):
            return bytes([{1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}[length], layout]), length - 14
        if head_length == 3 and length < 256 and length not in (1, 2, 4, 8, 16):
            return bytes([0xC7, length, layout]), length - 14
    return b"\xc8" + (record_length - 4).to_bytes(2, "big") + bytes([layout]), record_length - 18


def answers(payload, secret, period, seeds, record, label, models):
    """All that follows from a record: codes, numbers, class, and per answer the question, its input and the report."""
    body = msgpack.unpackb(payload, strict_map_key=False)
    series = body.get("series")
    if series is not None:
        message = b"hearsay/1/series" + sha256(series["name"].encode()).digest()
        u = int.from_bytes(hmac.digest(secret, message, "sha256")[:4], "big")
        if not series["from"] <= u < series["to"]:
            raise RefusedError("series_not_member")
    found, c = observation(body, record), class_of(body["label"], label)
    predicted = [body["label"]["classes"].index(classified(model, record)) for model in models]
    head, width = head_of(body["layout"], body["record_length"])
    given = []
    for index in range(body["answers"]):
        message = b"hearsay/1/id" + sha256(payload).digest() + period.to_bytes(4, "big") + index.to_bytes(2, "big")
        identifier = hmac.digest(secret, message, "sha256")[:8]
        fixed = identifier
        if "memory" in body:
            fixed = hmac.digest(secret, b"hearsay/1/memory" + sha256(payload).digest(), "sha256")
        number = assigned(body["questions"], index, fixed)
        question = body["questions"][number]
        value = input_of(body, question, found, c, predicted)
        field = field_of(body["layout"], width, question, value, seeds[index])
        if "memory" in body:
            identifier = placed(identifier, [0, *(each["bound"] for each in body["questions"])][number:][:2])
            field = again(body["layout"], question, body["memory"]["fresh"][number], field, seeds[1])
        fixed = identifier + period.to_bytes(4, "big") + number.to_bytes(2, "big")
        given.append({"question": number, "input": value, "report": (head + fixed + field).hex()})
    if "joins" in body:
        found = [found[place] for place in sorted({each["feature"] for each in body["questions"] if "feature" in each})]
    return {"codes": [code for code, _ in found], "numbers": [u for _, u in found], "class": c, "answers": given}


# Classes --------------------------------------------------------------------------------------------


def scores(payload, record):
    """The score of every class: the prior, and one term for every observed feature that is not missing."""
    body = msgpack.unpackb(payload, strict_map_key=False)
    parameters, k = body["parameters"], len(body["label"]["classes"])
    found = observed(body, [known(feature, record.get(feature["name"])) for feature in body["features"]])
    totals = list(array(parameters["log_prior"]))
    joins = body.get("joins", [])
    alone = [each for place, each in enumerate(found) if not any(place in join for join in joins)]
    for join, table in zip(joins, parameters["log_likelihood"][len(alone) :], strict=True):
        counts, rows = [sizes(body)[place] for place in join], array(table)
        own = [None if found[place] is None else found[place][0] for place in join]
        agreeing = [
            rows[joined(codes, counts)]
            for codes in product(*map(range, counts))
            if all(known in (None, code) for known, code in zip(own, codes, strict=True))
        ]
        if own.count(None) < len(own):
            summed = [log(sum(exp(row[c]) for row in agreeing)) for c in range(k)]
            totals = [total + term for total, term in zip(totals, summed, strict=True)]
    for place, each in enumerate(alone):
        if each is None:
            continue
        code, u = each
        table = parameters["log_likelihood"][place]
        if table is not None:
            totals = [total + term for total, term in zip(totals, array(table)[code], strict=True)]
            continue
        means, variances = array(parameters["mean"][place]), array(parameters["variance"][place])
        for c in range(k):
            m, v, x = means[c], variances[c], u / S
            totals[c] += -log(2 * pi * v) / 2 - (x - m) ** 2 / (2 * v)
            if body["family"] == "truncated-gaussian":
                totals[c] -= log((erf((1 - m) / sqrt(2 * v)) + erf((1 + m) / sqrt(2 * v))) / 2)
    return totals


def classified(payload, record):
    """The class with the largest score, the first of equal ones."""
    body = msgpack.unpackb(payload, strict_map_key=False)
    totals = scores(payload, record)
    return body["label"]["classes"][totals.index(max(totals))]
