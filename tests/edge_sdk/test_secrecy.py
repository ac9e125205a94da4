"""No value of a record, no secret and no seed appears in any output of a device besides its state and reports."""

from __future__ import annotations

import json
import logging

import pytest
from support.commands import edge, enrolled
from support.failures import everything_said
from support.mechanisms import made
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device, HearsayError, Policy, StorageError
from protocol import mechanisms
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema

MARK = "Zq7secretMarkZq7"
NUMBER = 73519.8642
MARKS = (MARK, "73519", "8642")


def assert_silent(*texts: str) -> None:
    for text in texts:
        for mark in MARKS:
            assert mark not in text


def refuse_schema():
    return build_schema(
        Label("label", ["e", "p"], unlisted="refuse"),
        [Categorical("odor", ["a", "n"], unlisted="refuse"), Numeric("width", "0", "10", [0], unlisted="refuse")],
    )


class Leaky:
    """A foreign value whose every conversion fails with the value in its text."""

    def __float__(self):
        raise ValueError(f"could not convert {MARK}")

    def __repr__(self):
        return MARK

    __str__ = __repr__


@pytest.mark.parametrize(
    ("record", "label"),
    [
        ({"odor": MARK, "width": 1}, "e"),
        ({"odor": "a", "width": MARK}, "e"),
        ({"odor": "a", "width": Leaky()}, "e"),
        ({"odor": Leaky(), "width": NUMBER}, "e"),
        ({"odor": NUMBER, "width": NUMBER}, "e"),
        ({"odor": "a", "width": 1}, MARK),
        ({"odor": "a", "width": 1}, Leaky()),
        (MARK, "e"),
        ([MARK], "e"),
    ],
)
def test_refused_records_leave_no_trace(tmp_path, caplog, record, label):
    publisher = Publisher(schema=refuse_schema())
    caplog.set_level(logging.DEBUG)
    policy = Policy(allow_refuse=True)
    with Device.provision(tmp_path, trust=publisher.root(), clock=lambda: NOW, policy=policy) as device:
        campaign = device.enrol(publisher.campaign())
        with pytest.raises(HearsayError) as caught:
            device.report(campaign.id, record, label=label)
        assert_silent(everything_said(caught.value), repr(device), repr(device.status()), repr(campaign))
    assert_silent(caplog.text)
    assert MARK.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("failure", ["entropy", "budget", "expired", "disk"])
def test_failures_after_the_record_was_read_leave_no_trace(tmp_path, failure, caplog):
    publisher = Publisher()
    caplog.set_level(logging.DEBUG)
    now = [NOW]

    def no_entropy(count):
        raise StorageError("entropy_unavailable", "not yet")

    with Device.provision(tmp_path, trust=publisher.root(), clock=lambda: now[0]) as device:
        campaign = device.enrol(publisher.campaign())
        record = {"odor": MARK, "width": NUMBER}
        if failure == "entropy":
            device._entropy = no_entropy
        if failure == "budget":
            device._reporting.allowed = lambda: Policy.of(epsilon_lifetime="0.5")
        if failure == "expired":
            now[0] += 4000 * DAY
        if failure == "disk":
            device._state._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(HearsayError) as caught:
            device.report(campaign.id, record, label=MARK)
        assert_silent(everything_said(caught.value))
    assert "report refused" in caplog.text
    assert_silent(caplog.text)


def test_mechanisms_never_name_their_input():
    for name in mechanisms.names():
        mechanism = made(name)
        for value in (MARK, NUMBER, 73519, None, (73519,), Leaky()):
            for action, arguments in ((mechanism.perturb, (value, bytes(32))), (mechanism.distribution, (value,))):
                with pytest.raises(HearsayError) as caught:
                    action(*arguments)
                assert caught.value.reason == "value_out_of_domain"
                assert_silent(everything_said(caught.value))


def test_the_command_line_never_quotes_a_record(tmp_path):
    state = enrolled(tmp_path, Publisher(schema=refuse_schema(), now=1), "allow_refuse = true\n")
    for text in (
        json.dumps({"odor": MARK, "label": "e"}),
        json.dumps({"odor": "a", "width": MARK}),
        json.dumps({"odor": "a", "width": 1, "label": MARK}),
        json.dumps([MARK]),
        f'{{"odor": "{MARK}"',
        MARK,
        '"' + MARK + '"',
        "[" * 100_000 + MARK,
    ):
        for command in (["report", "--campaign", "mushrooms"], ["predict"]):
            status, out, err = edge("--state", state, *command, text=text)
            assert status == 1
            assert err.count("\n") == 1
            assert_silent(out, err)


def test_an_unexpected_error_is_one_line_without_values(tmp_path, monkeypatch):
    publisher = Publisher()
    (tmp_path / "r.hst").write_bytes(publisher.root())

    def broken(*_arguments, **_options):
        raise RuntimeError(MARK)

    monkeypatch.setattr("edge_sdk.cli.commands.Device.open", broken)
    status, out, err = edge("--state", str(tmp_path / "s"), "status")
    assert (status, out) == (1, "")
    assert err.startswith("internal_error: RuntimeError at test_secrecy.py:")
    assert_silent(err)
