"""Properties of what collectors read: each other's files, totals, public files and pairs.

A file between collectors is sealed by the target, as the other collector would: nobody else can. So an input is a
canonical map of the head's fields, ``rows`` and ``end``.
"""

import io
import tempfile
from collections import Counter
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
from fuzz.refusing import PAYLOAD_REASONS, refused, taken_by
from nacl import bindings
from support.collectors import PERIOD, SEEDS, Two
from support.shared import COLLECTOR_KEYS, shared_campaign, shared_payload

from aggregator.collectors.exchange import ANSWER, REFUSALS, REQUEST, VERDICT_BYTES, Reader, RequestRow, rows_of
from aggregator.collectors.helping import Judge
from aggregator.collectors.intake import Task
from aggregator.collectors.leading import kept_length, total_of
from aggregator.collectors.noise import noisy, variance_of
from aggregator.collectors.pair import (
    common_secret,
    private_box_key,
    read_pair,
    read_public,
    role_in,
    write_pair,
    write_public,
)
from aggregator.collectors.total import TAIL, parse_total, read_total, sign_total
from aggregator.collectors.verification import Workers
from protocol import canonical
from protocol.documents.campaign import parse_campaign
from protocol.documents.payload import SPEC

FILE_REASONS = {"malformed", "share_unreadable", "collector_fault"}
CAMPAIGN = shared_campaign(min_batch_size=2)
SECRET = common_secret(COLLECTOR_KEYS[0], COLLECTOR_KEYS[1].public)
HEAD = ("campaign", "kind", "period", "reports", "spec")
OUTPUTS = 12
FIELD_BYTES = 16
REPORTS = 4


def task_of(role):
    """What a collector of the tests does."""
    own = COLLECTOR_KEYS[role]
    return Task(CAMPAIGN, role, role_in(CAMPAIGN.shared, own)[1], own, private_box_key(own), SECRET)


@lru_cache(maxsize=1)
def honest():
    """The rows of an honest request and answer with the answer's end, the leader's rows, and the total's payload."""
    with tempfile.TemporaryDirectory() as folder:
        two = Two(Path(folder))
        two.check(two.honest(range(REPORTS)))
        (kept,) = (two.folder / "leader" / "periods").glob("*.shares")
        shares = np.frombuffer(kept.read_bytes(), np.uint8).reshape(REPORTS, kept_length(task_of(0).prio3))
        two.answer()
        total = two.finish()
        contents = []
        for name in (REQUEST, ANSWER):
            with (two.folder / name).open("rb") as file:
                contents.append(b"".join(Reader(file, name).contents(SECRET)))
    asked, said = contents
    step = len(asked) // REPORTS
    border = REPORTS * VERDICT_BYTES
    return (
        [asked[at : at + step] for at in range(0, len(asked), step)],
        [said[at : at + VERDICT_BYTES] for at in range(0, border, VERDICT_BYTES)],
        said[border:],
        shares,
        total,
    )


def exchanged_seeds(kind):
    """The honest file of a kind, as an input, and files that say other things of it."""
    asked, said, end, _, _ = honest()
    rows, end = (asked, b"") if kind == REQUEST else (said, end)
    good = {"campaign": CAMPAIGN.id, "kind": kind, "period": PERIOD, "reports": REPORTS, "spec": SPEC}
    good |= {"rows": rows, "end": end}
    bad = [{**good, "rows": rows[:2], "reports": 2}, {**good, "rows": rows[::-1]}, {**good, "end": end + b"\0"}]
    return {canonical.pack(each) for each in (good, *bad)}


def _sealed(data):
    """The file that an input describes, with all contents in one box; None if it describes none."""
    try:
        tree = canonical.unpack(data)
    except Exception:  # noqa: BLE001 - a mutation may be no canonical value at all
        return None
    if not isinstance(tree, dict) or not isinstance(tree.get("rows"), list):
        return None
    head = canonical.pack({name: tree[name] for name in HEAD if name in tree})
    content = b"".join(row for row in [*tree["rows"], tree.get("end")] if isinstance(row, bytes))
    box = bindings.crypto_box_afternm(sha256(head).digest() + bytes(4) + content, bytes(24), SECRET)
    return b"".join([len(head).to_bytes(4, "big"), head, (24 + len(box)).to_bytes(4, "big"), bytes(24), box])


def _read(data, kind, length, tail):
    """Head, rows and end of a file, as its reader takes them."""
    reader = Reader(io.BytesIO(data), kind)
    found = list(rows_of(reader.contents(SECRET), length, reader.head.reports, tail))
    return reader.head, *((b"".join(found[:-1]), found[-1]) if tail else (b"".join(found), b""))


def asked(data):
    """A helper accepts no row but those that an honest leader made of honest reports, each once, and judges all."""
    raw = _sealed(data)
    if raw is None:
        return "no file"
    task = task_of(1)
    length = RequestRow.length(task.prio3)
    reason = refused(_read, raw, REQUEST, length, 0, reasons=FILE_REASONS)
    if reason is not None:
        return reason
    head, rows, _ = _read(raw, REQUEST, length, 0)
    judge = Judge(task, head.period)
    reason = refused(judge.read, [rows], Workers(1), lambda _: None, reasons={"collector_fault"})
    if reason is not None:
        return reason
    verdicts = b"".join(judge.verdicts)
    each = [rows[at : at + length] for at in range(0, len(rows), length)]
    taken = [row for row, verdict in zip(each, verdicts[::VERDICT_BYTES], strict=True) if verdict == 0]
    assert len(verdicts) == head.reports * VERDICT_BYTES
    assert judge.accepted + judge.refused.total() == head.reports
    assert len(taken) == judge.accepted == len(set(taken))
    assert judge.ids() == sha256(b"".join(row[:8] for row in taken)).digest()
    assert set(taken) <= set(honest()[0])
    assert not taken or (head.period, head.campaign) == (PERIOD, CAMPAIGN.id) or head.campaign != CAMPAIGN.id
    assert set(judge.refused) <= set(REFUSALS)
    return "accepted" if taken else "all refused"


def said(data):
    """A leader takes an answer only over what it sent, and its total is both sums with both noises, or none at all."""
    raw = _sealed(data)
    if raw is None:
        return "no file"
    _, _, _, kept, _ = honest()
    task, tail = task_of(0), OUTPUTS * FIELD_BYTES + 36
    reason = refused(_read, raw, ANSWER, VERDICT_BYTES, tail, reasons=FILE_REASONS)
    if reason is not None:
        return reason
    head, verdicts, end = _read(raw, ANSWER, VERDICT_BYTES, tail)
    if head.reports != REPORTS:
        return "another number"
    seed = bytes([SEEDS[0]]) * 32
    reason = refused(total_of, task, PERIOD, kept, (verdicts, end), Counter(), seed, reasons={"collector_fault"})
    if reason is not None:
        return reason
    found = total_of(task, PERIOD, kept, (verdicts, end), Counter(), seed)
    p = task.prio3.circuit.field.modulus
    taken = [row for row, verdict in zip(kept, verdicts[::VERDICT_BYTES], strict=True) if verdict == 0]
    assert found.accepted == len(taken) >= CAMPAIGN.min_batch_size
    assert found.accepted + sum(found.refused.values()) == REPORTS
    own = [0] * OUTPUTS
    for row in taken:
        numbers = task.prio3.circuit.field.decode(row[40:].tobytes())
        own = [one + other for one, other in zip(own, numbers, strict=True)]
    other = task.prio3.circuit.field.decode(end[:-36])
    for number, mine, theirs in zip(found.numbers, noisy(CAMPAIGN, own, seed), other, strict=True):
        assert (number - mine - theirs) % p == 0
    signed = sign_total(found, COLLECTOR_KEYS[0])
    reason = refused(read_total, signed, CAMPAIGN, reasons={"collector_fault"})
    assert reason is not None or read_total(signed, CAMPAIGN) == found
    return reason or "accepted"


@taken_by(parse_total, PAYLOAD_REASONS)
def total(found, data):
    """An accepted total is written in one way only, and what is read of it can be added up in 64 bits."""
    body = {**found._asdict(), "numbers": list(found.numbers), "refused": dict(found.refused), "spec": SPEC}
    assert canonical.pack(body) == data
    assert all(reason.isascii() and reason.isprintable() for reason in found.refused)
    reasons = {"collector_fault", "malformed", "unrecognized_campaign", "report_too_early", "report_too_late"}
    signed = sign_total(found, COLLECTOR_KEYS[0])
    reason = refused(read_total, signed, CAMPAIGN, reasons=reasons)
    if reason is not None:
        return "refused"
    reach = TAIL * (1 + variance_of(CAMPAIGN) ** 0.5)
    assert all(-reach <= number <= found.accepted + reach for number in found.numbers)
    assert found.accepted >= CAMPAIGN.min_batch_size
    return "accepted"


@taken_by(read_pair, {"collectors_invalid", "key_invalid"})
def pair(found, data):
    """An accepted pair is of two different keys, and is written in one way only."""
    assert write_pair(found) == data
    assert len({one.key for one in found.collectors}) == 2


@taken_by(read_public, {"collectors_invalid", "key_invalid"})
def collector(found, data):
    """An accepted public file is written in one way only, and a campaign takes the collector."""
    assert write_public(found) == data
    campaign = canonical.unpack(shared_payload())
    campaign["shared"]["collectors"][1] = found._asdict()
    if found.key != COLLECTOR_KEYS[0].public:
        assert parse_campaign(canonical.pack(campaign)).shared.collectors[1] == found


TARGETS = {"asked": asked, "said": said, "total": total, "pair": pair, "collector": collector}
