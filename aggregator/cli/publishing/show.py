"""``hearsay show``: print the content of a file, without verifying it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from aggregator.cards.card_words import sections
from aggregator.cli import options
from aggregator.cli.inputs import WHY_NOT
from aggregator.cli.nodes.describe import dealer_shown, node_facts, pieces_shown
from aggregator.cli.options import PATH
from aggregator.cli.output import KINDS, as_json, counted, lasting, print_json, print_sheet, warn, when
from aggregator.cli.totals import collectors_shown, total_shown
from aggregator.common.facts import Fact, Facts, Table, all_said, said, stated
from aggregator.common.files import read_file
from aggregator.nodes.campaigns.sheet import node_sheet, warning_of
from aggregator.publishing.privacy import most_answered, periods
from aggregator.publishing.series import shown_share
from aggregator.publishing.signatures import UNSIGNED
from aggregator.reports.decoding.content import Content
from protocol.batches import batch
from protocol.documents import campaign, counts, model, trust
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import Envelope, keyid, read_envelope, role_of
from protocol.documents.payload import Header, quoted, read_payload
from protocol.documents.shared_terms import ROLES
from protocol.epsilon import format_micro, format_pico
from protocol.errors import DocumentError, InputError
from protocol.features import Grouped, Joined, Numeric
from protocol.nodes.summary import parse_node_list
from protocol.schema import Schema
from protocol.words import to_words

MAX_FILE_BYTES = 1 << 30
"""The largest file that ``show`` and ``verify`` read."""

MAX_DAMAGE = 100
"""Most damaged byte ranges listed for one report file. All of them are counted."""


def document(envelope: Envelope, role: str) -> Facts:
    """Describe a document that keys of a root sign, without a check; the facts say if devices refuse it."""
    body, header = read_payload(envelope.payload)
    digest = sha256(envelope.payload).digest()
    signers = [pair[0].hex() for pair in envelope.signatures if pair != UNSIGNED]
    facts = [
        *_header(header),
        said("signed by", ", ".join(signers) or "nobody yet"),
        Fact("id", digest, digest.hex()),
        stated("signed_by", signers),
    ]
    refused, warning, parts = stated("refused", None), "", list[Facts]()
    try:
        if role == "root":
            facts += _root(trust.parse_root(body, header))
        elif role == "campaign":
            found = campaign.parse_campaign(envelope.payload)
            facts += all_said(_campaign(found))
            parts, warning = _features(found.schema), warning_of(found)
        elif role == "nodes":
            nodes = parse_node_list(envelope.payload).nodes
            facts.append(said("nodes", len(nodes)))
            rows = [(hint.hex(), public.hex()) for hint, public in sorted(nodes.items())]
            parts = [Facts("", table=Table(("node", "public key"), rows))] if rows else []
        elif role == "counts":
            facts += _counts(counts.parse_counts(envelope.payload))
        else:
            fitted = model.parse_model(envelope.payload)
            facts += _model(fitted)
            parts = [Facts(title, tuple(said(*pair) for pair in pairs)) for title, pairs in sections(fitted.card)]
            parts += _features(fitted.schema)
    except DocumentError as error:
        refused = Fact("refused", str(error), label="REFUSED BY DEVICES")
    facts += [refused, stated("payload", body)]
    return Facts(KINDS.get(role, role), tuple(facts), parts=tuple(parts), warning=warning)


def uncompressed(file: Path, raw: bytes) -> Content:
    """Return the content of a report file, decompressed with an ingest's limits. Raises InputError beyond them."""
    from aggregator.reports.intake.sources import Unreadable, decompressed

    found = decompressed(file, raw) if raw else raw
    if isinstance(found, Unreadable):
        raise InputError(found.reason, f"'{file}' can not be shown: {WHY_NOT.get(found.reason, 'the disk failed')}")
    return found


def batches(raw: Content) -> Facts | None:
    """Describe the bytes of a report file: its batches, and damage up to :data:`MAX_DAMAGE`; None without a batch."""
    rows: list[list[object]] = []
    entries: list[dict[str, Any]] = []
    records = damaged = stretches = 0
    for piece in batch.read_batches(raw):
        if isinstance(piece, batch.Damage):
            damaged += piece.length
            stretches += 1
            if stretches <= MAX_DAMAGE:
                rows.append(["damage", piece.reason, f"{counted(piece.length, 'byte')} at {piece.position}"])
                entries.append({"damage": piece.reason, "position": piece.position, "length": piece.length})
            continue
        count = sum(number for _, number in piece.spans)
        records += count
        if piece.goes_on:
            entry, row = _last_batch(entries, rows)
            entry["reports"] += count
            row[2] = counted(entry["reports"], "report")
            continue
        state = "proven" if piece.proven else "cut" if piece.truncated else "wrong digest or count"
        rows.append([piece.header.campaign.hex(), state, counted(count, "report")])
        entries.append({**piece.header._asdict(), "proven": piece.proven, "reports": count})
    if not any("proven" in entry for entry in entries):
        return None
    if stretches > MAX_DAMAGE:
        rows.append(["damage", "more", f"{counted(stretches - MAX_DAMAGE, 'stretch', 'es')} of bytes"])
    facts = (
        Fact("reports", records),
        Fact("bytes", len(raw)),
        Fact("damaged_bytes", damaged),
        stated("damaged_stretches", stretches),
        stated("batches", entries),
    )
    return Facts("reports", facts, table=Table(("campaign", "standing", "holds"), rows))


def _last_batch(entries: list[dict[str, Any]], rows: list[list[object]]) -> tuple[dict[str, Any], list[object]]:
    """Return the last batch among the entries, and its row. Entries of damage are skipped."""
    place = next(place for place in reversed(range(len(entries))) if "proven" in entries[place])
    return entries[place], rows[place]


def _header(header: Header) -> list[Fact]:
    return [
        said("name", header.name),
        said("version", header.version),
        said("issued", when(header.issued_at)),
        said("not before", when(header.not_before)),
        said("expires", when(header.expires)),
    ]


def _root(root: trust.Root) -> list[Fact]:
    ids = {name: sorted(keyid(public).hex() for public in role.keys) for name, role in root.roles.items()}
    return [
        said(f"{name} role", f"{role.threshold} of {len(role.keys)}: {', '.join(ids[name])}")
        for name, role in root.roles.items()
    ]


def _campaign(found: Campaign) -> dict[str, object]:
    about: dict[str, object] = {
        "id in words": to_words(found.id),
        "purpose": found.purpose,
        "contact": found.contact,
        "label": f"{found.schema.label.name}: {', '.join(found.schema.label.classes)}",
    }
    if found.ended:
        return {**about, "ended": "it asks nothing: devices that accept it report to no version before it"}
    most = most_answered(found)
    about |= _asked(found)
    if found.nodes is not None:
        about |= {f"private pilot {number}": cost.shown for number, cost in enumerate(found.pilots, 1)}
        return {**about, **node_facts(found, node_sheet(found), most)}
    if found.model is not None:
        about["evaluates"] = f"model {found.model.hex()}, which decides what is read"
    for number, (name, digest) in enumerate(zip(found.model_names, found.models, strict=True), 1):
        about[f"compares, model {number}"] = f"{quoted(name)}, {digest.hex()}; it decides what is read about it"
    if found.series is not None:
        about["series"] = f"{found.series.name}, since {when(found.series.begins)}: a device answers once in all of it"
        about["share"] = shown_share(found.series)
    if found.memory is not None:
        about["memory"] = found.memory.in_words(found.epsilon_micro)
    for number, cost in enumerate(found.pilots, 1):
        about[f"private pilot {number}"] = cost.shown
    asked: dict[str, object] = {
        "questions": f"{len(found.questions)}, of which a device answers {found.answers} in a period"
    }
    mechanisms = ", ".join(sorted({question.mechanism.name for question in found.questions}))
    each_time = "period" if found.memory is None else "kept answer"
    each: dict[str, object] = {"ε per answer": format_micro(found.epsilon_per_answer_micro)}
    noise: dict[str, object] = {"mechanisms": mechanisms}
    if found.shared is not None:
        asked, each, noise = shared_facts(found), {}, {}
    return {
        **about,
        **asked,
        "period": lasting(found.time_precision),
        "ε total": f"{format_micro(found.epsilon_micro)} per device and {each_time}",
        **each,
        "ε over its life": f"{format_micro(found.life_micro(periods(found)))} in {counted(most, 'period')}",
        **noise,
        "report": f"{found.layout.record_length} bytes, layout {found.layout.kind}",
        "least batch": found.min_batch_size,
        "fit": ", ".join(f"{key} {value}" for key, value in sorted(found.fit.to_dict().items())),
    }


def shared_facts(found: Campaign) -> dict[str, object]:
    """Return what the terms of a shared campaign say: who gets shares, of what, and the noise of each collector."""
    terms = found.shared
    assert terms is not None
    blocks = found.blocks
    cells = f"{counted(len(blocks), 'feature')} with the class, {sum(block.size for block in blocks)} cells"
    delta = f"δ = {format_pico(terms.delta_pico)} per device and period" if terms.delta_pico else "no δ"
    return {
        "trust": "shared: two collectors, of which one must be honest; the two together see every record",
        **{
            role: f"{one.name} ({one.contact}), key {one.key.hex()}"
            for role, one in zip(ROLES, terms.collectors, strict=True)
        },
        "record": f"{cells}; exact, in two shares with a proof",
        "noise": f"{terms.noise} noise of each collector in every cell; {delta}",
    }


def _asked(found: Campaign) -> dict[str, object]:
    """Return what a campaign leaves out or coarsens: its features that are not asked about, and groups of values."""
    names = {feature.name for feature in found.schema.features}
    rest = ", ".join(feature.name for feature in found.stated.features if feature.name not in names)
    about: dict[str, object] = {"not asked": rest} if rest else {}
    about |= _joined(found.schema)
    grouped = (feature for feature in found.schema.single if isinstance(feature, Grouped))
    return about | {f"groups of {feature.name}": " / ".join(feature.labels()) for feature in grouped}


def _joined(schema: Schema) -> dict[str, object]:
    """Return the features that are asked about, or tabulated, as one; empty if there are none."""
    names = [feature.name for feature in schema.observed if isinstance(feature, Joined)]
    return {"joined": "; ".join(names)} if names else {}


def _counts(found: counts.Counts) -> list[Fact]:
    noise = found.noise
    paid = "none" if noise is None else f"ε = {format_micro(noise.epsilon_micro)}, {noise.adjacency}, {noise.budget}"
    return [
        said("campaign", found.campaign.hex()),
        said("records", found.records),
        said("consent", found.consent or "not needed"),
        said("noise", paid),
        said("numbers", sum(map(len, found.vectors))),
    ]


def _model(found: model.Model) -> list[Fact]:
    return [
        said("label", f"{found.schema.label.name}: {', '.join(found.schema.label.classes)}"),
        *(said(name, value) for name, value in _joined(found.schema).items()),
        said("campaign", found.campaign.hex()),
        said("statistics", found.statistics_id.hex()),
        said("replaces", found.previous.hex() if found.previous else "nothing"),
    ]


def _features(schema: Schema) -> list[Facts]:
    """Return a table of the features, then of the projection's components. A projected feature has no codes."""
    projected = () if schema.projection is None else schema.projection.inputs
    rows: list[list[object]] = [
        [feature.name, f"{feature.kind}, projected", "", f"{feature.low} to {feature.high}"]
        if isinstance(feature, Numeric) and index in projected
        else [feature.name, feature.kind, feature.size, ", ".join(feature.labels())]
        for index, feature in enumerate(schema.features)
    ]
    parts = () if schema.projection is None else schema.projection.components
    rows += [[part.name, part.kind, part.size, ", ".join(part.labels())] for part in parts]
    return [Facts("", table=Table(("feature", "kind", "codes", "values"), rows))] if rows else []


@click.command()
@click.argument("file", type=PATH)
@options.json
def show(file: Path) -> None:
    """Print what a trust root, campaign, model, node list, report file or file of summaries says. Nothing is verified.

    Also of masked sums: messages, key books, requests, releases, and a dealer's public file; of shared answers: the
    total of a period, a collector's public file and a pair. A report file may be compressed by gzip or zstd, as for
    hearsay ingest.

    \b
    Example:
      hearsay show c.hsc
    """  # noqa: D301
    raw = read_file(file, MAX_FILE_BYTES)
    role = role_of(raw)
    shown = dealer_shown(raw, role)
    if role == "total":
        shown = total_shown(raw)
    if shown is None and role is not None and role != "node":
        shown = document(read_envelope(raw, role), role)
    elif shown is None:
        shown = _of_reports(file, raw, role)
    if as_json():
        print_json({"kind": shown.title, "verified": False, **shown.to_json()})
    else:
        click.echo(f"UNVERIFIED {shown.title}: what this file says, whoever wrote it")
        print_sheet(shown)
    if shown.warning:
        warn(shown.warning)


def _of_reports(file: Path, raw: bytes, role: str | None) -> Facts:
    """Describe a file of reports or summaries. ``role`` is ``node`` if it begins with a node's envelope, else None."""
    content = uncompressed(file, raw)
    shown = pieces_shown(bytes(content[:])) if role == "node" else batches(content)
    if shown is None and role is None:
        shown = pieces_shown(bytes(content[:]))
    if shown is None and role is None:
        shown = collectors_shown(raw)
    if shown is None:
        raise InputError("unknown_file", f"'{file}' is no file of Hearsay that can be shown")
    return shown
