"""Signed documents whose author means harm: nothing forges a line, nothing ends in an internal error."""

import json
import time

import pytest
from support.commands import invoke, run
from support.masked import DEALER, any_ciphertexts, book_of, masked_campaign, message_of
from support.nodes import PERIOD, node_campaign, summary_of
from support.publisher import Publisher

from protocol import canonical
from protocol.documents.envelope import read_envelope
from protocol.features import Categorical
from protocol.masked.release import Request, build_release
from protocol.schema import Label, build_schema


def with_card(card):
    """A signed model with this card."""
    publisher = Publisher()
    body = canonical.unpack(read_envelope(publisher.model(), "model").payload)
    return publisher.sign("model", canonical.pack({**body, "card": card}))


def test_keys_of_a_card_forge_no_line_and_reach_no_terminal(tmp_path):
    forged = "x\n\x1b[2J\x1b[31mverified: model 'good'"
    (tmp_path / "m.hsm").write_bytes(with_card({forged: "v", forged.replace("\n", "\t"): "w", "é": "\x9bK"}))
    result = run("show", tmp_path / "m.hsm")
    assert not any(line.startswith("verified") for line in result.stdout.splitlines())
    assert all(char.isprintable() or char == "\n" for char in result.stdout)
    assert sorted(line.split()[-1] for line in result.stdout.splitlines() if "[2J" in line) == ["v", "w"]


def verified(tmp_path, publisher, *options, **terms):
    """What ``verify --privacy`` says of a valid campaign."""
    (tmp_path / "t.hst").write_bytes(publisher.root())
    (tmp_path / "c.hsc").write_bytes(publisher.campaign(**terms))
    paths = [str(tmp_path / "c.hsc"), "--trust", str(tmp_path / "t.hst")]
    return invoke("verify", *paths, "--privacy", *options)


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


def test_files_of_nodes_and_dealers_are_neither_signed_nor_gathered(tmp_path):
    """No key of a workspace signs them."""
    campaign = masked_campaign()
    asked = Request(campaign.id, PERIOD, 1, (bytes(8),))
    for raw in (
        summary_of(node_campaign()),
        message_of(campaign),
        book_of(campaign),
        build_release(campaign, DEALER, asked, any_ciphertexts(campaign)),
    ):
        (tmp_path / "f").write_bytes(raw)
        for command in (
            ("sign", tmp_path / "f", "--key", "k"),
            ("trust", "gather", tmp_path / "f", "--workspace", "w"),
        ):
            assert run(*command, status=1).stderr.startswith("wrong_role: ")
        assert (tmp_path / "f").read_bytes() == raw
