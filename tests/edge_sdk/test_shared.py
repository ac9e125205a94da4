"""Reports of shared campaigns through a device's real state: once per period, paid, allowed by the owner, secret."""

from __future__ import annotations

import json
import logging

import pytest
from support.commands import edge
from support.failures import everything_said, failure, reason
from support.publisher import DAY, NOW, Publisher
from support.reports import records_in
from support.shared import (
    ALLOWED,
    COLLECTOR_KEYS,
    COLLECTORS,
    gaussian,
    of_cells,
    shared_campaign,
    shared_file,
    shared_payload,
)
from vectors import shared_from_text as text
from vectors.makers import campaign as with_changes

from edge_sdk import Device, HearsayError, Policy, StorageError
from edge_sdk.sync import sync
from edge_sdk.transport.folder import Folder
from protocol import canonical
from protocol.batches.report import decode_report
from protocol.documents.shared_terms import MAX_CELLS, shared_subjects

PUBLISHER = Publisher()
RECORD, CELLS = {"odor": "n", "width": 3.2}, [2, 0]
"""The second of four odors and the first of two bins, in the first of two classes."""
ALLOWING = Policy.of(collectors=ALLOWED, delta_per_period="0.000001", delta_lifetime="0.00001")
DELTA = 1_000_000


def started(folder, clock, policy=ALLOWING, publisher=PUBLISHER, **options):
    return Device.provision(folder, trust=publisher.root(), clock=clock, policy=policy, **options)


def said_in(campaign, record):
    """Period, id, and the vector that both shares of one report add up to, opened with both collectors' keys."""
    identifier, period, question, field = decode_report(campaign.layout, record)
    sizes, said = [subject.size for subject in shared_subjects(campaign.schema)], campaign.shared.to_dict()
    split, seeds = len(field) - 157, [one.seed for one in COLLECTOR_KEYS]
    found = text.opened(campaign.id, field, [(112, split), (split, len(field))], identifier, period, seeds)
    key = text.verify_key(seeds[0], [one.public for one in COLLECTOR_KEYS], said["salt"])
    assert question == 0
    return period, identifier, text.checked(campaign.id, said, sizes, key, *found)[2]


def test_a_period_has_one_report_whatever_is_asked_again(tmp_path, clock):
    """Other records, a clock set back, a closed and reopened state: the same bytes; the next day another id."""
    with started(tmp_path / "state", clock) as device:
        campaign = device.enrol(shared_file())
        first = device.report(campaign.id, RECORD, label="e")
        assert len(first) == campaign.layout.record_length
        period, identifier, vector = said_in(campaign, first)
        assert (period, vector) == (NOW // DAY, text.one_hot([8, 4], CELLS))
        assert device.report(campaign.id, {}, label="p") == first
        clock.now -= DAY
        assert device.report(campaign.id, {"odor": "f"}) == first
    clock.now += DAY
    with Device.open(tmp_path / "state", clock=clock, policy=ALLOWING) as device:
        assert device.report(campaign.id, RECORD, label="p") == first
        clock.now += DAY
        second = device.report(campaign.id, {"odor": "unheard of"}, label="p")
        assert said_in(campaign, second)[2] == text.one_hot([8, 4], [7, 3])
        assert said_in(campaign, second)[1] != identifier
        assert not {first[at : at + 16] for at in range(18, len(first) - 16)} & {
            second[at : at + 16] for at in range(18, len(second) - 16)
        }
        assert device.drain(tmp_path / "out.hsr") == 2
    assert [raw for _, raw in records_in((tmp_path / "out.hsr").read_bytes())] == [first, second]


@pytest.mark.parametrize(
    ("policy", "file", "rule"),
    [
        ({}, shared_file(), f"adds its key {ALLOWED[0]}"),
        ({"collectors": ALLOWED[:1]}, shared_file(), f"adds its key {ALLOWED[1]}"),
        ({"collectors": ALLOWED[1:]}, shared_file(), f"adds its key {ALLOWED[0]}"),
        ({"collectors": ALLOWED}, shared_file(shared=gaussian()), "the owner allows 0 (delta_per_period)"),
        (
            {"collectors": ALLOWED, "delta_per_period": "0.0000009"},
            shared_file(shared=gaussian()),
            "the owner allows 9e-07 (delta_per_period)",
        ),
        ({"collectors": ALLOWED, "epsilon_per_period": "0.5"}, shared_file(), "the owner allows 0.5"),
        ({"collectors": ALLOWED, "report_bytes": 843}, shared_file(), "844 bytes; the owner allows 843"),
        ({"collectors": ALLOWED, "smallest_batch": 2}, shared_file(), "smallest_batch"),
        ({"collectors": ALLOWED, "features": ["odor", "label"]}, shared_file(), "features"),
    ],
)
def test_what_the_owner_does_not_allow_is_not_accepted(device, tmp_path, clock, policy, file, rule):
    with started(tmp_path / "other", clock, Policy.of(**policy)) as refusing:
        error = failure(refusing.enrol, file)
        assert (error.reason, refusing.campaigns()) == ("policy_refused", [])
        assert rule in error.detail
        assert "The owner's policy refuses it." in refusing.explain(file)


def test_epsilon_and_delta_are_booked_and_end_with_the_owners_limit(tmp_path, clock):
    with started(tmp_path / "state", clock) as device:
        raw = shared_file(shared=gaussian(delta_pico=DELTA))
        told = device.explain(raw)
        for one in COLLECTORS:
            assert f"'{one.name}' ('{one.contact}'), key {one.key.hex()}" in told
        for words in (
            "other's Gaussian noise: the cost below is against that. The two together see every record.",
            "by at most 2.719, except with probability δ = 1e-06",
            "The owner allows δ = 1e-06 per period and 1e-05 for the device's life; 0 is spent.",
            "for at most 10 more answers in this device's life",
        ):
            assert words in told
        campaign = device.enrol(raw)
        for count in range(1, 11):
            device.report(campaign.id, RECORD, label="e")
            status = device.status()
            spent = status.spent_micro, status.delta_spent_pico, status.delta_left_pico
            assert spent == (count * 1_000_000, count * DELTA, (10 - count) * DELTA)
            clock.now += DAY
        assert [(line.epsilon_micro, line.delta_pico) for line in device.history()] == [(1_000_000, DELTA)] * 10
        assert reason(device.report, campaign.id, RECORD, label="e") == "budget_exhausted"
        assert "budget_exhausted: of the lifetime's δ = 1e-05" in device.explain(raw)
        plain = device.enrol(shared_file(name="laplace"))
        assert said_in(plain, device.report(plain.id, RECORD, label="e"))[2] == text.one_hot([8, 4], CELLS)
        assert device.status().delta_spent_pico == 10 * DELTA


def test_the_stated_odds_are_those_of_the_noise():
    """7 millionths over two features: with Laplace noise 4·⌊7/4⌋ = 4 are spent, with Gaussian noise all 7."""
    for shared, loss in ((None, 4e-6), (gaussian(), 7e-6)):
        assert shared_campaign(epsilon_micro=7, shared=shared).privacy_loss() == pytest.approx(loss, rel=1e-12)


def test_a_full_spool_drops_whole_reports_and_says_so(tmp_path, clock):
    policy = Policy.of(collectors=ALLOWED, spool_bytes=2 * 844 + 843)
    with started(tmp_path / "state", clock, policy) as device:
        campaign = device.enrol(shared_file())
        sent = []
        for _ in range(4):
            sent.append(device.report(campaign.id, RECORD, label="e"))
            clock.now += DAY
        spool = device.status().spool
        assert (spool.reports, spool.size_bytes, sum(spool.dropped.values())) == (2, 1688, 2)
        (tmp_path / "server" / "roots").mkdir(parents=True)
        assert sync(device, Folder(tmp_path / "server")).sent
    (file,) = (tmp_path / "server" / "reports").glob("*.hsr")
    assert [raw for _, raw in records_in(file.read_bytes())] == sent[2:]


def test_the_largest_campaign_has_reports_of_forty_kilobytes(tmp_path, clock):
    publisher = of_cells(8, 127)
    with started(tmp_path / "state", clock, publisher=publisher) as device:
        campaign = device.enrol(shared_file(publisher))
        assert sum(subject.size for subject in shared_subjects(campaign.schema)) == MAX_CELLS
        assert 32_000 < campaign.layout.record_length < 40_000
        device.report(campaign.id, {"f0": "5"}, label="p")
        device.drain(tmp_path / "out.hsr")
    assert (tmp_path / "out.hsr").stat().st_size < 40_000
    assert shared_campaign(of_cells(20, 5)).layout.record_length == 5260 <= 6_500


@pytest.mark.parametrize("key", [bytes(32), b"\2" + bytes(31), b"\xff" * 32])
def test_a_collector_to_whom_nothing_can_be_sealed_is_refused_at_once(tmp_path, clock, key):
    body = canonical.unpack(shared_payload())
    body["shared"]["collectors"][0]["key"] = key
    with started(tmp_path / "state", clock, ALLOWING._replace(collectors=(key, COLLECTORS[1].key))) as device:
        assert reason(device.enrol, with_changes(body)) == "invalid_campaign"
        assert reason(device.explain, with_changes(body)) == "invalid_campaign"
        assert device.campaigns() == []


MARK, NUMBER = "Zq7secretMarkZq7", 73519.8642


@pytest.mark.parametrize("broken", [None, "entropy", "disk"])
def test_no_log_error_or_status_shows_values_seeds_or_cells(tmp_path, clock, caplog, broken):
    caplog.set_level(logging.DEBUG)
    drawn = []

    def entropy(count):
        if broken == "entropy" and len(drawn) > 8:
            raise StorageError("entropy_unavailable", "not yet")
        drawn.append(bytes([0xA0 + len(drawn)]) * count)
        return drawn[-1]

    with started(tmp_path / "state", clock, entropy=entropy) as device:
        campaign = device.enrol(shared_file())
        if broken == "entropy":
            drawn += [b""] * 9
        if broken == "disk":
            device._state._connection.execute("PRAGMA query_only = ON")
        try:
            device.report(campaign.id, {"odor": MARK, "width": NUMBER}, label=MARK)
            assert broken is None
            said = [json.dumps(device.status().to_json()), repr(device.history())]
        except HearsayError as error:
            said = [everything_said(error)]
        said += [caplog.text, repr(device), repr(campaign), repr(campaign.shared)]
    for one in said:
        assert MARK not in one
        assert "73519" not in one
        for secret in filter(None, drawn):
            assert secret.hex() not in one
            assert repr(secret)[2:-1] not in one
    if broken is None:
        assert MARK.encode() not in b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())


def test_the_command_line_shows_what_was_spent(tmp_path):
    publisher, state, document = Publisher(now=1), tmp_path / "state", tmp_path / "c.hsc"
    (tmp_path / "r.hst").write_bytes(publisher.root(lifetime=1 << 33))
    document.write_bytes(shared_file(publisher, shared=gaussian(), changes={"expires": 1 << 33}))
    assert edge("--state", state, "provision", tmp_path / "r.hst")[0] == 0
    refused = edge("--state", state, "enrol", document)
    assert refused[0] != 0
    assert ALLOWED[0] in refused[2]
    (state / "policy.toml").write_text(f'collectors = {json.dumps(ALLOWED)}\ndelta_per_period = "0.000001"\n')
    assert edge("--state", state, "enrol", document)[0] == 0
    record = json.dumps({**RECORD, "label": "e"})
    assert edge("--state", state, "report", "--campaign", "mushrooms", text=record)[0] == 0
    shown = json.loads(edge("--state", state, "history", "--json")[1])
    (answer,) = shown["answers"]
    assert (answer["epsilon"], answer["delta"], shown["delta_spent"]) == ("1", "1e-06", "1e-06")
