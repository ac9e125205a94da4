"""Two processes forked from one parent never repeat noise; ids are the device's and do repeat.

The children are forked from a fresh interpreter, not from the test runner: that may have threads. What
differs by chance alone is stated: two honest answers of 64 bits at ε = 1 agree with probability
below 2·10⁻¹⁴.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.publisher import NOW, Publisher

from protocol.campaign import parse_campaign
from protocol.envelope import read_envelope
from protocol.features import Categorical
from protocol.report import decode_report
from protocol.schema import Label, build_schema

ROOT = Path(__file__).parents[2]
CHILDREN = 3
WIDE = Publisher(schema=build_schema(Label("label", ["e", "p"]), [Categorical("odor", [str(n) for n in range(31)])]))
"""The odor and class question has (31 + missing)·2 = 64 values, so its answer has 64 bits."""

FORKING = """
import os, random, sys
from edge_sdk import Device
from edge_sdk.entropy import system_entropy

def in_children(work):
    for _ in range({children}):
        ours, theirs = os.pipe()
        if os.fork() == 0:
            os.write(theirs, work().hex().encode())
            os._exit(0)
        os.close(theirs)
        print(os.read(ours, 4096).decode())
        os.close(ours)
        os.wait()

{work}
"""
DEVICE = """
inherited = random.Random(1)
entropy = {{"system": system_entropy, "inherited": inherited.randbytes}}[{entropy!r}]
device = Device.open(None, trust=bytes.fromhex({root!r}), clock=lambda: {now}, entropy=entropy)
campaign = device.enrol(bytes.fromhex({campaign!r}))
in_children(lambda: device.report(campaign.id, {{"odor": "7"}}, label="e"))
print(device.report(campaign.id, {{"odor": "7"}}, label="e").hex())
"""


def printed(work):
    """What the children wrote, then what the parent did."""
    program = FORKING.format(children=CHILDREN, work=work)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    return [bytes.fromhex(line) for line in run.stdout.split()]


def reports_of(entropy):
    """Campaign, and the reports of one in-memory device as each child and then the parent makes them."""
    raw = WIDE.campaign(mechanism="oue", answers=2, epsilon_micro=2_000_000)
    work = DEVICE.format(entropy=entropy, root=WIDE.root().hex(), now=NOW, campaign=raw.hex())
    return parse_campaign(read_envelope(raw, "campaign").payload), printed(work)


def test_the_system_s_entropy_differs_in_every_process():
    drawn = printed("in_children(lambda: system_entropy(32))\nprint(system_entropy(32).hex())")
    assert [len(seed) for seed in drawn] == [32] * (CHILDREN + 1)
    assert len(set(drawn)) == CHILDREN + 1


def split(campaign, reports):
    """(ids and questions, the answer to the question of 64 values) of the two reports of a period."""
    length = campaign.layout.record_length
    parts = [decode_report(campaign.layout, reports[start : start + length]) for start in (0, length)]
    assert [campaign.questions[number].size for _, _, number, _ in parts] == [2, 64]
    return [part[:3] for part in parts], parts[1][3]


def test_a_forked_device_has_its_ids_and_other_noise():
    campaign, found = reports_of("system")
    same, answers = zip(*(split(campaign, reports) for reports in found), strict=True)
    assert all(ids == same[0] for ids in same)
    assert len(set(answers)) == CHILDREN + 1


def test_noise_from_a_generator_that_the_children_inherit_would_be_seen():
    campaign, found = reports_of("inherited")
    answers = {split(campaign, reports)[1] for reports in found}
    assert len(answers) == 1


def test_the_chance_that_two_honest_answers_agree_is_as_stated():
    campaign = parse_campaign(WIDE.campaign_payload(mechanism="oue", answers=2, epsilon_micro=2_000_000))
    p, q = (float(chance) for chance in (campaign.questions[1].mechanism.p, campaign.questions[1].mechanism.q))
    assert (p * p + (1 - p) ** 2) * (q * q + (1 - q) ** 2) ** 63 < 2e-14
