"""Signed documents whose author means harm: nothing forges a line, nothing ends in an internal error."""

import json
import time

import pytest
from click.testing import CliRunner
from support.publisher import Publisher

from aggregator.cli.app import hearsay
from protocol import canonical
from protocol.documents.envelope import read_envelope
from protocol.features import Categorical
from protocol.schema import Label, build_schema


def with_card(card):
    """A signed model with this card."""
    publisher = Publisher()
    body = canonical.unpack(read_envelope(publisher.model(), "model").payload)
    return publisher.sign("model", canonical.pack({**body, "card": card}))


def test_keys_of_a_card_forge_no_line_and_reach_no_terminal(tmp_path):
    forged = "x\n\x1b[2J\x1b[31mverified: model 'good'"
    (tmp_path / "m.hsm").write_bytes(with_card({forged: "v", forged.replace("\n", "\t"): "w", "é": "\x9bK"}))
    result = CliRunner().invoke(hearsay, ["show", str(tmp_path / "m.hsm")])
    assert result.exit_code == 0
    assert not any(line.startswith("verified") for line in result.stdout.splitlines())
    assert all(char.isprintable() or char == "\n" for char in result.stdout)
    assert sorted(line.split()[-1] for line in result.stdout.splitlines() if "[2J" in line) == ["v", "w"]


def verified(tmp_path, publisher, *options, **terms):
    """What ``verify --privacy`` says of a valid campaign."""
    (tmp_path / "t.hst").write_bytes(publisher.root())
    (tmp_path / "c.hsc").write_bytes(publisher.campaign(**terms))
    paths = [str(tmp_path / "c.hsc"), "--trust", str(tmp_path / "t.hst")]
    return CliRunner().invoke(hearsay, ["verify", *paths, "--privacy", *options])


@pytest.mark.parametrize("epsilon_micro", [3_000_000, 900_000_000])
def test_ratios_of_more_digits_than_python_prints_are_shown_as_powers_of_e(tmp_path, epsilon_micro):
    features = [Categorical(f"f{number}", ["x"]) for number in range(499)]
    schema = build_schema(Label("label", ["e", "p"]), features)
    publisher = Publisher(now=int(time.time()), schema=schema)
    plain = verified(tmp_path, publisher, answers=500, epsilon_micro=epsilon_micro)
    assert plain.exit_code == 0, plain.output
    assert "the campaign spends no more than it declares" in plain.stdout
    told = verified(tmp_path, publisher, "--json", answers=500, epsilon_micro=epsilon_micro)
    assert told.exit_code == 0, told.output
    sheet = json.loads(told.stdout)["privacy"]
    assert sheet["holds"] is True
    assert "/" in sheet["questions"][0]["worst_ratio"]
    total = sheet["total"]
    assert total["worst_ratio"] == f"≈ e^{total['epsilon']:.12g}"
    assert epsilon_micro / 1e6 - 0.01 < total["epsilon"] <= epsilon_micro / 1e6
