"""A collector's own shares for other programs, and shards for a task of DAP."""

from __future__ import annotations

import json
import random
import runpy
import stat
from pathlib import Path

import pytest
from support.commands import run
from support.vdaf import of_file

from aggregator import create_workspace
from aggregator.collectors.others import context_of_task, task_shards, task_variant
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.errors import DocumentError, InputError
from protocol.shared.prio3 import confirmed
from protocol.shared.shape import variant

EXAMPLE = Path(__file__).parents[3] / "examples" / "shared" / "run.py"
DAY = 86_400
DEVICES = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two collectors, a campaign and the reports of a few devices, by the functions of the example."""
    folder = tmp_path_factory.mktemp("shared")
    steps = runpy.run_path(str(EXAMPLE), run_name="shared")
    steps["answer"].__globals__["DEVICES"] = DEVICES
    work = create_workspace(folder / "work", name="ward", now=DAY)
    for name in ("publisher", "devices"):
        (folder / name).mkdir()
    leader, helper = steps["found"](folder)
    with leader, helper:
        steps["ask"](folder / "publisher", work, leader, helper, DAY)
        keys = [one.public.key.hex() for one in (leader, helper)]
    campaign = (folder / "publisher" / "ward.hsc").read_bytes()
    steps["answer"](folder / "devices", work.root_bytes, campaign, keys, random.Random(1), DAY + 10)
    return folder


def exported(folder, name, *more, status=0):
    terms = ("--trust", folder / "work" / "root.hst", "--period", "1", "-o", folder / f"{name}.json", "--force")
    files = sorted((folder / "devices").glob("*.hsr"))
    return run("collector", "export", folder / name, folder / "publisher" / "ward.hsc", *files, *terms, *more,
               status=status)  # fmt: skip


def test_another_program_gets_the_same_verifier_shares_from_the_file_alone_and_both_files_together_confirm(folder):
    """The other program is the code of devices, which reads nothing but the files."""
    data = []
    for name in ("leader", "helper"):
        assert json.loads(exported(folder, name, "--json").stdout)["reports"] == DEVICES
        assert stat.S_IMODE((folder / f"{name}.json").stat().st_mode) == 0o600
        data.append(json.loads((folder / f"{name}.json").read_text()))
    prio3 = variant(data[0]["block_lengths"], data[0]["chunk_length"])
    assert data[0]["algorithm_id"] == prio3.algorithm
    context, key = bytes.fromhex(data[0]["ctx"]), bytes.fromhex(data[0]["verify_key"])
    kept = {}
    for number, one in enumerate(data):
        assert [step["report_index"] for step in one["operations"]] == list(range(DEVICES))
        for step in one["operations"]:
            report = one["reports"][step["report_index"]]
            assert step["aggregator_id"] == number
            assert report["input_shares"][1 - number] is report["verifier_shares"][0][1 - number] is None
            share = prio3.share(context, number, bytes.fromhex(report["input_shares"][number]))
            public = bytes.fromhex(report["public_share"])
            found = prio3.prepared(key, context, number, bytes.fromhex(report["nonce"]), public, share)
            assert prio3.encode_verifier(found.verifier).hex() == report["verifier_shares"][0][number]
            kept.setdefault(step["report_index"], []).append(found)
    for both in kept.values():
        message = prio3.message(context, [one.verifier for one in both])
        shares = [confirmed(one, message) for one in both]
        vector = [sum(each) % prio3.circuit.field.modulus for each in zip(*shares, strict=True)]
        assert sorted(vector) == [0] * (len(vector) - 2) + [1, 1]


def test_a_record_is_sharded_for_a_task_by_the_drafts_multihot_variant_under_the_tasks_context(folder):
    campaign = parse_campaign(read_envelope((folder / "publisher" / "ward.hsc").read_bytes(), "campaign").payload)
    task, nonce, key = bytes(range(32)), b"n" * 16, b"k" * 32
    context = b"dap-18" + task
    assert context_of_task(task) == context
    prio3 = task_variant(campaign)
    data, known = of_file("Prio3MultihotCountVec_0.json")
    assert (prio3.algorithm, type(prio3.circuit)) == (known.algorithm, type(known.circuit))
    assert data["shares"] == prio3.shares
    assert (prio3.circuit.outputs, prio3.circuit.most) == (14, 2)
    shards = task_shards(campaign, task, [3, 5], nonce, bytes(range(128)))
    both = []
    for number, share in enumerate(shards.inputs):
        both.append(prio3.prepared(key, context, number, nonce, shards.public, prio3.share(context, number, share)))
    message = prio3.message(context, [one.verifier for one in both])
    vector = [sum(each) % prio3.circuit.field.modulus for each in zip(*(confirmed(one, message) for one in both),
              strict=True)]  # fmt: skip
    assert [at for at, one in enumerate(vector) if one] == [3, 8 + 5]
    other = prio3.prepared(key, b"dap-17" + task, 0, nonce, shards.public, prio3.share(context, 0, shards.inputs[0]))
    with pytest.raises(DocumentError, match="proof_invalid"):
        prio3.message(context, [other.verifier, both[1].verifier])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"task": bytes(31)}, "shape_invalid"),
        ({"cells": [3]}, "shape_invalid"),
        ({"cells": [3, 6]}, "value_out_of_domain"),
        ({"report_id": bytes(15)}, "shape_invalid"),
        ({"random": bytes(127)}, "shape_invalid"),
    ],
)
def test_wrong_shards_for_a_task_are_refused(folder, change, reason):
    campaign = parse_campaign(read_envelope((folder / "publisher" / "ward.hsc").read_bytes(), "campaign").payload)
    right = {"task": bytes(32), "cells": [3, 5], "report_id": bytes(16), "random": bytes(128)}
    with pytest.raises(InputError, match=reason):
        task_shards(campaign, **{**right, **change})
