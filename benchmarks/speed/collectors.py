"""Speed of the two collectors' checks: reports per second of processor time, beside two baselines of the same run.

    python benchmarks/speed/collectors.py [reports]

Reports have 240 cells in 30 blocks. The baselines are the code of devices (the same check in plain integers) and the
opening of one box of libsodium (X25519) for each report. A few records are shared; their shares are sealed anew for
every report's id, so each report takes the whole work of a check.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from nacl import bindings

from aggregator.collectors.exchange import RequestRow
from aggregator.collectors.helping import Judge
from aggregator.collectors.intake import Reports, Task, open_shares
from aggregator.collectors.leading import check_all, kept_length, total_of
from aggregator.collectors.pair import common_secret, new_pair, private_box_key, verify_key_of
from aggregator.collectors.verification import Workers
from protocol.batches.batch import Header, write_batch
from protocol.batches.report import encode_report
from protocol.documents.campaign import Campaign, Fit, build_payload, parse_campaign
from protocol.documents.envelope import SigningKey
from protocol.documents.payload import Header as Of
from protocol.documents.shared_terms import Collector, SharedTerms, best_chunk
from protocol.features import Categorical
from protocol.schema import Label, build_schema
from protocol.shared.report import box_key, context_of, variant_of
from protocol.stream import sha256

FEATURES, CODES, DISTINCT, DAY = 30, 4, 16, 86_400
CELLS = 2 * FEATURES * CODES


def campaign_of(keys: list[SigningKey]) -> Campaign:
    """Return a campaign about 30 features of three values and *missing*, and a label of two classes."""
    collectors = [Collector(f"c{number}", "nobody", key.public) for number, key in enumerate(keys)]
    made = new_pair(keys[0], *collectors, bytes(32))
    schema = build_schema(Label("l", ["a", "b"]), [Categorical(f"f{at}", ["x", "y", "z"]) for at in range(FEATURES)])
    terms = SharedTerms(made.collectors, made.salt, made.verify_key, best_chunk(CELLS))
    header, fit = Of("bench", 1, 0, 0, 365 * DAY), Fit("discrete", "posterior")
    said = {"purpose": "speed", "contact": "nobody", "time_precision": DAY, "min_batch_size": 1}
    return parse_campaign(build_payload(header, schema, (), epsilon_micro=10**6, fit=fit, shared=terms, **said))


def reports_of(campaign: Campaign, count: int) -> list[bytes]:
    """Return reports of some records."""
    prio3, keys = variant_of(campaign), [box_key(one.key) for one in campaign.shared.collectors]
    shared = []
    for number in range(DISTINCT):
        nonce, vector = os.urandom(16), prio3.circuit.encoded([number % (2 * CODES)] * FEATURES)
        shared.append((nonce, prio3.shard(context_of(campaign.id), vector, nonce, os.urandom(prio3.random_bytes))))
    found = []
    for number in range(count):
        nonce, shards = shared[number % DISTINCT]
        identifier, (sender, private) = number.to_bytes(8, "big"), bindings.crypto_box_keypair()
        field = nonce + shards.public + sender
        for role, share in enumerate(shards.inputs):
            bound = campaign.id + bytes(4) + identifier + bytes([role]) + sha256(nonce + shards.public).digest()
            field += bindings.crypto_box(bound + share, bytes([role]).ljust(24, b"\0"), keys[role], private)
        found.append(encode_report(campaign.layout, identifier, 0, 0, field))
    return found


def main() -> None:
    """Measure, and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    keys = [SigningKey.from_seed(bytes([number]) * 32) for number in (1, 2)]
    campaign = campaign_of(keys)
    prio3, key = variant_of(campaign), verify_key_of(keys[0], campaign.shared.collectors, bytes(32))
    tasks = [
        Task(
            campaign,
            role,
            key,
            keys[role],
            private_box_key(keys[role]),
            common_secret(keys[role], keys[1 - role].public),
        )
        for role in (0, 1)
    ]
    with tempfile.TemporaryDirectory() as name:
        folder, layout = Path(name), campaign.layout
        header = Header(campaign.id, layout.kind, layout.record_length)
        (folder / "in").write_bytes(write_batch(header, reports_of(campaign, count)))
        with (
            Reports(campaign, 0, folder) as reports,
            (folder / "s").open("w+b") as sent,
            (folder / "k").open("w+b") as kept,
        ):
            print(f"{count} reports of {CELLS} cells, {layout.record_length} bytes each")
            took = {}
            started = time.process_time()
            reports.read([folder / "in"])
            took["read"] = time.process_time() - started
            started = time.process_time()
            fields = reports.fields(reports.ids())
            for one in fields:
                bindings.crypto_box_beforenm(one[1].sender, tasks[0].private)
            took["X25519 alone"] = time.process_time() - started
            started = time.process_time()
            opened = list(open_shares(tasks[0], 0, fields[:DISTINCT]))
            for one in opened:
                share = prio3.share(tasks[0].context, 0, one.share)
                prio3.prepared(key, tasks[0].context, 0, one.field.nonce, one.field.public, share)
            took["plain integers, leader"] = (time.process_time() - started) * count / DISTINCT
            del fields, opened
            started = time.process_time()
            rows, refused = check_all(tasks[0], 0, reports, (sent, kept), Workers(1), lambda _: None)
            assert (rows, refused) == (count, Counter())
            took["leader checks"] = time.process_time() - started
            started, length = time.process_time(), RequestRow.length(prio3)
            sent.seek(0)
            judge = Judge(tasks[1], 0)
            judge.read(iter(lambda: sent.read(length * 4096), b""), Workers(1), lambda _: None)
            assert judge.accepted == count
            took["helper checks"] = time.process_time() - started
            started = time.process_time()
            kept.flush()
            end = prio3.circuit.field.encode(judge.sums()) + judge.accepted.to_bytes(4, "big") + judge.ids()
            mapped = np.memmap(folder / "k", np.uint8, "r").reshape(count, kept_length(prio3))
            total_of(tasks[0], 0, mapped, (b"".join(judge.verdicts), end), Counter(), bytes(32))
            took["leader adds"] = time.process_time() - started
    for what, seconds in took.items():
        ratio = took["plain integers, leader"] / seconds
        print(
            f"{what:24} {1e6 * seconds / count:8.0f} µs a report {count / seconds:8.0f} a second {ratio:8.1f} × plain"
        )


if __name__ == "__main__":
    main()
