"""Processes that were forked from one parent answer a period once: by one shared ledger, or not at all.

The children are forked from a fresh interpreter, because the test runner may have threads.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.publisher import NOW, Publisher

from protocol.features import Categorical
from protocol.schema import Label, build_schema

ROOT = Path(__file__).parents[2]
CHILDREN = 3
WIDE = Publisher(schema=build_schema(Label("label", ["e", "p"]), [Categorical("odor", [str(n) for n in range(31)])]))
"""The odor and class question has (31 + missing)·2 = 64 values, so its answer has 64 bits."""

FORKING = """
import os
from edge_sdk import Device, HearsayError
from edge_sdk.arguments import system_entropy

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
device = Device.provision({place!r}, trust=bytes.fromhex({root!r}), clock=lambda: {now})
campaign = device.enrol(bytes.fromhex({campaign!r}))

def answer(act=lambda: device.report(campaign.id, {{"odor": "7"}}, label="e")):
    try:
        return act()
    except HearsayError as error:
        return error.reason.encode()

{work}
"""


def printed(work):
    """The output of the children, then that of the parent."""
    program = FORKING.format(children=CHILDREN, work=work)
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    return [bytes.fromhex(line) for line in run.stdout.split()]


def of_a_device(place, work):
    """The output of children, then of the parent, that share a device."""
    raw = WIDE.campaign(mechanism="oue", answers=2, epsilon_micro=2_000_000)
    return printed(DEVICE.format(place=place, root=WIDE.root().hex(), now=NOW, campaign=raw.hex(), work=work))


def test_the_system_s_entropy_differs_in_every_process():
    drawn = printed("in_children(lambda: system_entropy(32))\nprint(system_entropy(32).hex())")
    assert [len(seed) for seed in drawn] == [32] * (CHILDREN + 1)
    assert len(set(drawn)) == CHILDREN + 1


@pytest.mark.parametrize(
    "act",
    ["answer()", "answer(lambda: device.campaigns() and b'')", "answer(lambda: device.status() and b'')"],
)
def test_a_state_in_memory_is_its_makers_alone(act):
    """A child would answer under the same ids with other noise, and no ledger would count its ε."""
    *children, parent = of_a_device(None, f"in_children(lambda: {act})\nprint(answer().hex())")
    assert children == [b"state_forked"] * CHILDREN
    assert len(parent) > 18


def test_a_state_on_disk_answers_once_for_parent_and_children(tmp_path):
    found = of_a_device(str(tmp_path / "state"), "in_children(answer)\nprint(answer().hex())")
    assert len(found) == CHILDREN + 1
    assert len(set(found)) == 1


IN_THE_MIDDLE = """
forked = []

def entropy(count):
    if not forked:
        forked.append(os.fork())
    return os.urandom(count)

device._entropy = entropy
said = answer()
if forked == [0]:
    with open({told!r}, "wb") as file:
        file.write(said)
    os._exit(0)
assert os.waitpid(forked[0], 0)[1] == 0
print(said.hex())
print(answer().hex())
"""


@pytest.mark.parametrize("memory", [True, False])
def test_a_fork_in_the_middle_of_a_report_ends_the_childs(tmp_path, memory):
    """Every argument of the application may fork: its clock, its entropy, a record that computes its values."""
    told = tmp_path / "told"
    place = None if memory else str(tmp_path / "state")
    first, second = of_a_device(place, IN_THE_MIDDLE.format(told=str(told)))
    assert told.read_bytes() == b"state_forked"
    assert first == second


IN_A_THREAD = """
import threading, time
inside = threading.Event()

def slow_entropy(count):
    inside.set()
    time.sleep(0.3)
    return os.urandom(count)

device._entropy = slow_entropy
answers = []
thread = threading.Thread(target=lambda: answers.append(answer()))
thread.start()
inside.wait()
in_children(answer)
thread.join()
print(answers[0].hex())
in_children(lambda: device.close() or b"closed")  # the parent's connection stays
print((b"%d" % device.status().spooled).hex())
"""


def test_a_fork_while_another_thread_reports_does_not_hang(tmp_path):
    *answers, kept = of_a_device(str(tmp_path / "state"), IN_A_THREAD)
    assert [each for each in answers if each != b"closed"] == [answers[0]] * (CHILDREN + 1)
    assert (answers.count(b"closed"), kept) == (CHILDREN, b"2")


STALE = """
place = {place!r}
older = open(place, "rb").read()
in_children(answer)
with open(place, "r+b") as file:
    file.write(older)
    file.truncate(len(older))
print(answer().hex())
"""


def test_a_parent_notices_an_older_copy_though_only_its_child_had_answered(tmp_path):
    folder = tmp_path / "state"
    first, *others, parent = of_a_device(str(folder), STALE.format(place=str(folder / "state.db")))
    assert len(first) > len(b"state_lost")
    assert others == [first] * (CHILDREN - 1)
    assert parent == b"state_lost"
