"""Hostile documents on a real device: it gives the documented reason, uses bounded memory, and keeps its state.

Most documents that no device may accept are in tests/vectors; they are handed to a device here.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tracemalloc
from itertools import permutations
from pathlib import Path

import msgpack
import pytest
from support.failures import reason
from support.publisher import CAMPAIGN_KEY, DAY, MODEL_KEY, NOW, ROOT_KEY, Publisher, key
from support.sources import Source
from vectors.runner import load_all

from edge_sdk import Device, Policy
from edge_sdk.sync import sync
from protocol import canonical
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import PAYLOAD_TYPES, SIZE_LIMITS, read_envelope, seal
from protocol.documents.payload import Header
from protocol.documents.trust import Role, Root
from protocol.errors import HearsayError
from protocol.features import Categorical
from protocol.questions import CHANGE_FEATURES
from protocol.schema import Label, build_schema

PUBLISHER = Publisher()
CAMPAIGN, MODEL = PUBLISHER.campaign(), PUBLISHER.model()
RECORD = {"odor": "n"}
PERMISSIVE = Policy.of(
    epsilon_per_period="100000",
    epsilon_lifetime="100000",
    delta_per_period="0.5",
    shortest_period=1,
    report_bytes=1 << 30,
    allow_refuse=True,
    allow_masked=True,
)
PEAK_PER_BYTE = 250
PEAK_AT_LEAST = 1_500_000
"""Bytes of memory that the refusal of a document may take: per byte of the document, and in addition. The packer of
msgpack 1.0.3 (Debian 12) always takes 1 MiB, that of later versions a quarter of it."""


def root(version=2, *signers, campaign=None, keys=None, issued=NOW):
    """A trust root with any keys, signed by any keys."""
    roles = {
        "root": keys or Role(frozenset([ROOT_KEY.public]), 1),
        "campaign": campaign or Role(frozenset([CAMPAIGN_KEY.public]), 1),
        "model": Role(frozenset([MODEL_KEY.public]), 1),
    }
    payload = Root(Header("workspace", version, issued, issued, issued + 3650 * DAY), roles).to_payload()
    return seal(PAYLOAD_TYPES["root"], canonical.pack(payload), signers or (ROOT_KEY,))


def nested(role, fill, size):
    """A signed payload of nested arrays only."""
    return PUBLISHER.sign(role, fill * (size // len(fill)))


PAYLOAD = PUBLISHER.campaign_payload()


ATTACKS = {
    "a campaign above its limit": ("too_large", "enrol", bytes(SIZE_LIMITS["campaign"] + 1)),
    "a model above its limit": ("too_large", "install", MODEL + bytes(SIZE_LIMITS["model"])),
    "a root above its limit": ("too_large", "rotate", [bytes(SIZE_LIMITS["root"] + 1)]),
    "signed brackets in a campaign": ("malformed", "enrol", nested("campaign", b"\x91", 1 << 19)),
    "signed maps in maps in a model": ("malformed", "install", nested("model", b"\x81\xa0", 1 << 20)),
    "signed brackets in a root": ("malformed", "rotate", [nested("root", b"\x91", 1 << 15)]),
    "a signed array of 2^32": ("malformed", "enrol", PUBLISHER.sign("campaign", b"\xdd" + b"\xff" * 4)),
    "a signed million of empty maps": (
        "malformed", "install", PUBLISHER.sign("model", b"\xdd" + (1 << 20).to_bytes(4, "big") + b"\x80" * (1 << 20)),
    ),
    "unsigned brackets": ("malformed", "install", b"\x91" * SIZE_LIMITS["model"]),
}  # fmt: skip
"""Reason of the refusal, the device's method, and the document."""


def through(device, door, raw):
    """Hand a document to the device."""
    if door == "nodes":
        return device._acceptance.accept_nodes(raw, claimed_name(raw))
    return getattr(device, door)(raw)


def claimed_name(raw):
    """The name in the payload of an envelope, which may be damaged; empty if it can not be read."""
    with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
        return msgpack.unpackb(msgpack.unpackb(raw)[2])["name"]
    return ""


def contents(device):
    """All rows of the state, except evidence against publishers."""
    tables = [name for (name,) in device._state.run("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: device._state.run(f"SELECT * FROM {name}{' WHERE name <> ?' if name == 'counts' else ''}", values)
        for name in tables
        for values in [("evidence",) if name == "counts" else ()]
        if name != "evidence" and not name.startswith("sqlite_")
    }


def test_the_evidence_of_two_next_roots_is_those_two(device):
    one, other, unsigned = root(2), root(2, issued=NOW + 1), root(2, key(9), issued=NOW + 2)
    assert reason(device.rotate, [PUBLISHER.root(), one, unsigned, other]) == "equivocation"
    assert device.evidence() == [("root", one, other)]


CHILD = """
import resource, sys
sys.path += sys.argv[3:]
from edge_sdk import Device
from edge_sdk.classifier import Classifier
from protocol.errors import HearsayError
import edge_sdk.explaining, protocol.documents.model
folder, megabytes = sys.argv[1], int(sys.argv[2])
names = sys.stdin.read().split()
with Device.provision(folder + "/state", trust=open(folder + "/root", "rb").read(), clock=lambda: NOW) as device:
    (size,) = (int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (1024 * size + (megabytes << 20),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    for name in names:
        raw = open(f"{folder}/{name}", "rb").read()
        door = name.rpartition("-")[2]
        try:
            getattr(device, door)([raw] if door == "rotate" else raw)
            print(name, "accepted")
        except HearsayError as error:
            print(name, error.reason)
"""
SECONDS = 60


BODY = canonical.unpack(read_envelope(MODEL, "model").payload)
CROWDED = PUBLISHER.sign("model", canonical.pack({**BODY, "card": {"x": [[]] * 190_000}}))


def in_a_process(folder, megabytes, documents):
    """Hand documents, named NAME-METHOD, to a device in a process with this much more memory than an idle device."""
    for name, raw in {**documents, "root": PUBLISHER.root()}.items():
        (folder / name).write_bytes(raw)
    program = CHILD.replace("NOW", str(NOW)).replace("SECONDS", str(SECONDS))
    command = [sys.executable, "-c", program, str(folder), str(megabytes), str(Path(__file__).parents[2])]
    return subprocess.run(command, input=" ".join(documents), capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and time are those of Linux")
def test_the_largest_attacks_fit_into_a_small_process_and_a_short_time(tmp_path):
    """A process with 64 MiB more than an idle device, and one minute, for all attacks together."""
    expected, documents = {"crowded-install": "accepted", "crowded-enrol": "accepted"}, {}
    for number, (why, door, raw) in enumerate(ATTACKS.values()):
        documents[f"{number}-{door}"] = raw[0] if isinstance(raw, list) else raw
        expected[f"{number}-{door}"] = why
    features = [Categorical(f"f{number}", ["a", "b"], "missing", 0) for number in range(4096)]
    crowd = Publisher(schema=build_schema(Label("label", ["e", "p"]), features))
    documents |= {"crowded-install": CROWDED, "crowded-enrol": crowd.campaign()}
    done = in_a_process(tmp_path, 64, documents)
    assert done.stderr == ""
    assert dict(line.split() for line in done.stdout.splitlines()) == expected
    assert len(expected) >= 7


def test_the_limit_of_memory_is_felt(tmp_path):
    """With almost no memory the same process fails, so the limit of the test above is effective."""
    done = in_a_process(tmp_path, 2, {"crowded-install": CROWDED})
    assert done.returncode != 0
    assert "MemoryError" in done.stderr


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_in_little_memory_and_leaves_the_state_as_it_was(device, name):
    expected, door, raw = ATTACKS[name]
    before, status = contents(device), device.status()
    tracemalloc.start()
    called = reason(through, device, door, raw)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert called == expected
    assert (contents(device), device.status()) == (before, status)
    assert peak <= PEAK_AT_LEAST + PEAK_PER_BYTE * len(raw[0] if isinstance(raw, list) else raw), f"{peak} bytes"
    device.enrol(Publisher(now=NOW + DAY).campaign(name="honest"))
    assert contents(device) != before


DOCUMENTS = [(name, case) for name, case in load_all() if case["kind"] == "document"]
DOORS = {"campaign": "enrol", "model": "install", "root": "rotate", "nodes": "nodes"}


def handed(role, data):
    raw = bytes.fromhex(data)
    return DOORS[role], [raw] if role == "root" else raw


def named_collectors(case):
    """The keys of the collectors that a vector's good campaigns name: the owner allows them."""
    found = []
    for data in (case["data"], *(data for _, data, _ in case["before"])):
        with contextlib.suppress(HearsayError):
            shared = parse_campaign(read_envelope(bytes.fromhex(data), "campaign").payload).shared
            found += [] if shared is None else [one.key for one in shared.collectors]
    return tuple(found)


@pytest.mark.parametrize(("name", "case"), DOCUMENTS, ids=[name for name, _ in DOCUMENTS])
def test_a_device_says_of_every_vector_what_the_vector_says(name, case):
    now = [0]
    policy = PERMISSIVE._replace(node_adjacency=CHANGE_FEATURES, collectors=named_collectors(case))
    with Device.open(None, trust=bytes.fromhex(case["root"]), clock=lambda: now[0], policy=policy) as device:
        for role, data, clock in case["before"]:
            now[0] = clock
            through(device, *handed(role, data))
        now[0] = case["wall_clock"]
        before = contents(device)
        assert reason(through, device, *handed(case["role"], case["data"])) == case.get("reason")
        if "reason" in case:
            assert contents(device) == before
            assert len(device.evidence()) == (case["reason"] == "equivocation")


OTHER = key(9)
OTHERS = Role(frozenset([OTHER.public]), 1)


def test_versions_used_up_by_a_stolen_key_are_freed_by_a_root_without_it_and_by_no_other(device):
    """Fast-forward: the thief signs the largest version; the owner replaces the key and continues at version 2."""
    last = PUBLISHER.campaign(version=(1 << 32) - 1)
    device.enrol(last)
    device.rotate([root(campaign=Role(frozenset([CAMPAIGN_KEY.public, OTHER.public]), 1))])
    assert reason(device.enrol, PUBLISHER.campaign(version=2)) == "rollback"
    assert device.rotate([root(3, campaign=Role(frozenset([key(8).public]), 1))]) == 3
    honest = PUBLISHER.sign("campaign", PUBLISHER.campaign_payload(version=2), key(8))
    assert reason(device.enrol, last) == "bad_signature"
    assert device.enrol(honest).header.version == 2
    assert [campaign.header.version for campaign in device.campaigns()] == [2]


def test_roots_lead_on_in_whatever_order_they_come(tmp_path, clock):
    chain = [root(number, *((ROOT_KEY, OTHER) if number == 2 else (OTHER,)), keys=OTHERS) for number in (2, 3, 4)]
    for number, order in enumerate(permutations(chain)):
        with Device.provision(tmp_path / str(number), trust=PUBLISHER.root(), clock=clock) as device:
            assert device.rotate(order) == device.rotate(order) == device.status().root_version == 4
    with Device.open(tmp_path / "0", trust=PUBLISHER.root(), clock=clock) as device:  # the old pinned one is ignored
        assert device.status().root_version == 4


def test_a_revoked_campaign_key_ends_its_campaigns_and_a_new_signature_brings_them_back(device, clock):
    campaign = device.enrol(CAMPAIGN)
    device.install(MODEL)
    said = device.report(campaign.id, RECORD)
    assert device.rotate([root(campaign=OTHERS)]) == 2
    assert device.campaigns() == []
    assert reason(device.report, campaign.id, RECORD) == "campaign_unknown"
    assert reason(device.enrol, CAMPAIGN) == "bad_signature"
    assert device.model().predict(RECORD) == "e"
    assert device.enrol(PUBLISHER.sign("campaign", PAYLOAD, OTHER)).id == campaign.id
    assert device.report(campaign.id, RECORD) == said
    clock.now += DAY
    assert device.report(campaign.id, RECORD) != said
    assert device.status().spent_micro == 2_000_000


def test_sync_brings_a_campaign_back_that_was_signed_again_after_the_rotation(tmp_path, clock):
    """A device whose only command is sync continues to report after a key was replaced."""
    place = "campaigns/mushrooms.hsc"
    source = Source({place: CAMPAIGN})
    with Device.provision(tmp_path / "state", trust=PUBLISHER.root(), clock=clock) as device:
        sync(device, source, campaigns=["mushrooms"])
        source.places["roots/2.hst"] = root(campaign=OTHERS)
        outcome = sync(device, source)  # the new root is there, and the new signature not yet
        assert [(each.step, each.reason) for each in outcome.refusals] == [(place, "bad_signature")]
        assert (device.campaigns(), device.status().unsigned) == ([], ("mushrooms",))
    source.places[place] = PUBLISHER.sign("campaign", PAYLOAD, OTHER)
    with Device.open(tmp_path / "state", clock=clock) as device:
        outcome = sync(device, source)
        assert (outcome.campaigns, outcome.refusals) == ((("mushrooms", 1),), ())
        assert (len(device.campaigns()), device.status().unsigned) == (1, ())
        device.report(device.campaigns()[0].id, RECORD)


@pytest.mark.parametrize("role", ["campaign", "model"])
def test_a_publisher_that_contradicts_itself_leaves_proof_that_does_not_fill_the_disk(device, role):
    act, make = (device.enrol, PUBLISHER.campaign) if role == "campaign" else (device.install, PUBLISHER.model)
    first, second, third = (make(lifetime=days * DAY) for days in (300, 301, 302))
    act(first)
    for _ in range(3):
        assert reason(act, second) == "equivocation"
    assert device.evidence() == [(role, first, second)]
    assert reason(act, third) == "equivocation"
    assert device.evidence() == [(role, first, second), (role, first, third)]
    assert reason(act, make(lifetime=299 * DAY)[:-1]) == "malformed"
    assert device.status().contradictions == 2
    for days in range(310, 330):
        assert reason(act, make(lifetime=days * DAY)) == "equivocation"
    assert device.status().contradictions == len(device.evidence()) == 8


def test_a_version_that_ends_the_campaign_ends_it(device, clock):
    campaign = device.enrol(CAMPAIGN)
    device.report(campaign.id, RECORD)
    end = PUBLISHER.campaign({"questions": [], "answers": 0, "epsilon_micro": 0}, version=2)
    assert "the publisher ends the campaign" in device.explain(end)
    ended = device.enrol(end)
    assert ended.ended
    clock.now += DAY
    assert reason(device.report, ended.id, RECORD) == "campaign_ended"
    assert reason(device.report, campaign.id, RECORD) == "campaign_unknown"
    assert [one.state for one in device.status().campaigns] == ["ended"]
    assert reason(device.enrol, CAMPAIGN) == "rollback"


@pytest.mark.parametrize("given", ["a path", ["2.hst"], [None], b"a root", [bytearray(b"a root")]])
def test_roots_are_given_as_bytes_to_both_calls(device, given):
    for call in (device.rotate, device.follow):
        assert reason(call, given) == "argument_invalid"
