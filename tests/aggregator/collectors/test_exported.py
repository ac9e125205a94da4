"""A collector's own shares for other programs."""

from __future__ import annotations

import json
import random
import runpy
import stat
from pathlib import Path

import pytest
from support.commands import run

from aggregator import create_workspace
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
