"""``verify --privacy``: the exact worst ratio from the file alone, beside what the campaign declares."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from fractions import Fraction
from hashlib import sha256
from math import prod

import pytest
from support.commands import invoke, mushrooms, run
from support.failures import reason
from support.masked import DEALER, any_ciphertexts, book_of, masked_campaign, message_of
from support.nodes import PERIOD, node_campaign, summary_of
from support.publisher import NOW, Publisher
from support.shared import ALLOWED, gaussian, shared_file

from aggregator.publishing.privacy import pace_warning, rounded_up
from edge_sdk import Device
from protocol import canonical, mechanisms
from protocol.documents.envelope import read_envelope
from protocol.epsilon import PrivacyLoss, format_micro
from protocol.features import Categorical
from protocol.masked.release import Request, build_release
from protocol.schema import Label, build_schema


def verify(tmp_path, raw, *options):
    (tmp_path / "t.hst").write_bytes(Publisher(now=int(time.time())).root())
    (tmp_path / "c.hsc").write_bytes(raw)
    return invoke("verify", tmp_path / "c.hsc", "--trust", tmp_path / "t.hst", *options)


def campaign(**options):
    return Publisher(now=int(time.time())).campaign(**options)


@pytest.mark.parametrize("mechanism", ["direct", "oue"])
@pytest.mark.parametrize("answers", [1, 3])
def test_ratios_are_exact_and_the_total_is_what_one_device_spends(tmp_path, mechanism, answers):
    raw = campaign(mechanism=mechanism, answers=answers, epsilon_micro=1_500_000)
    result = verify(tmp_path, raw, "--privacy", "--json")
    assert result.exit_code == 0, result.output
    sheet = json.loads(result.stdout)["privacy"]
    assert [question["size"] for question in sheet["questions"]] == [2, 8, 4]
    total = {}
    for question in sheet["questions"]:
        made = mechanisms.from_micro(mechanism, 1_500_000 // answers, question["size"])
        tables = [made.distribution(value) for value in range(min(question["size"], 4))]
        worst = max(a[answer] / b[answer] for a in tables for b in tables for answer in a)
        assert Fraction(question["worst_ratio"]) == made.privacy_loss().ratio == worst
        assert question["declared_epsilon"] == format_micro(1_500_000 // answers)
        total[question["stratum"]] = max(total.get(question["stratum"], Fraction(1)), worst)
    assert Fraction(sheet["total"]["worst_ratio"]) == prod(total.values())
    assert (sheet["declared"]["epsilon_total"], sheet["holds"]) == ("1.5", True)
    assert sheet["total"]["epsilon"] == float(PrivacyLoss(prod(total.values()))) <= 1.5


def test_the_table_shows_declared_and_spent(tmp_path):
    result = verify(tmp_path, campaign(), "--privacy")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("verified: campaign 'mushrooms', version 1")
    made = mechanisms.from_micro("direct", 1_000_000, 8)
    ratio = made.privacy_loss().ratio
    assert any("cell odor" in line and f"{ratio.numerator} / {ratio.denominator}" in line for line in lines)
    assert lines[-2].startswith("total")
    assert lines[-1] == "the campaign spends no more than it declares"


def on_terminal(command, columns):
    """What a command prints on a terminal of so many columns, as a terminal gets it."""
    ours, theirs = pty.openpty()
    size = struct.pack("HHHH", 24, columns, 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    environment = {**os.environ, "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
    environment.pop("COLUMNS", None)
    done = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    chunks = []
    with suppress(OSError):  # the other end is closed: how a terminal says that all is read
        while chunk := os.read(ours, 4096):
            chunks.append(chunk)
    os.close(ours)
    assert done.wait() == 0
    return b"".join(chunks).decode()


def test_no_number_is_folded_on_a_terminal_of_80_columns(tmp_path):
    verify(tmp_path, campaign(mechanism="oue", answers=3))
    arguments = ["verify", tmp_path / "c.hsc", "--trust", tmp_path / "t.hst", "--privacy"]
    text = on_terminal([sys.executable, "-m", "aggregator.entry", *arguments], 80)
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines)
    sheet = json.loads(verify(tmp_path, campaign(mechanism="oue", answers=3), "--privacy", "--json").stdout)["privacy"]
    assert len(sheet["questions"]) == 3
    for question in sheet["questions"]:
        (row,) = [line for line in lines if question["question"] in line]
        assert row.split()[-2:] == [rounded_up(question["epsilon"]), "0.333333"]
        assert set(question["worst_ratio"].split("/")) <= set(text.split())
    (total,) = [line for line in lines if line.strip().startswith("total")]
    assert total.split()[-2:] == [rounded_up(sheet["total"]["epsilon"]), "1"]


def lying(answers=1):
    """A signed campaign whose integers are those of twice the declared ε."""
    questions = canonical.unpack(read_envelope(campaign(answers=answers), "campaign").payload)["questions"]
    for question in questions:
        stated = question["mechanism"]["epsilon_micro"]
        louder = mechanisms.from_micro("direct", stated * 2, question["size"]).to_dict()
        question["mechanism"] = {**louder, "epsilon_micro": stated}
    return campaign(changes={"questions": questions}, answers=answers)


@pytest.mark.parametrize("answers", [1, 3])
def test_a_campaign_that_lies_about_epsilon_is_refused_whatever_its_signature(tmp_path, answers):
    raw = lying(answers)
    for options in ((), ("--privacy",), ("--privacy", "--json")):
        result = verify(tmp_path, raw, *options)
        assert (result.exit_code, len(result.stderr.splitlines())) == (3, 1)
        assert result.stderr.startswith("epsilon_understated: ")
        if not options:
            assert result.stdout == ""
        elif "--json" not in options:
            assert result.stdout.endswith("IT SPENDS MORE THAN IT DECLARES\n")
    told = json.loads(result.stdout)
    assert (told["verified"], told["reason"], told["privacy"]["holds"]) == (False, "epsilon_understated", False)
    # Thirds of ε are rounded down to a millionth before they are doubled, so the sum is within 1e-5 of 2.
    assert told["privacy"]["total"]["epsilon"] == pytest.approx(2.0, abs=1e-5)
    assert "REFUSED BY DEVICES  epsilon_understated" in run("show", tmp_path / "c.hsc").stdout


def test_what_is_not_verified_is_refused_by_its_reason(tmp_path):
    publisher = Publisher(now=int(time.time()))
    for raw in (publisher.model(), publisher.root()):
        assert verify(tmp_path, raw, "--privacy").stderr.startswith("not_a_campaign: ")
    old = verify(tmp_path, Publisher(now=int(time.time()) - 100 * 86_400).campaign(lifetime=50 * 86_400))
    assert (old.exit_code, old.stderr.split(":")[0]) == (3, "expired")
    for version in (1, 2):
        (tmp_path / f"{version}.hst").write_bytes(publisher.root(version=version))
    forward = invoke("verify", tmp_path / "2.hst", "--trust", tmp_path / "1.hst")
    assert forward.stdout.startswith("verified: root 'workspace', version 2")
    back = invoke("verify", tmp_path / "1.hst", "--trust", tmp_path / "2.hst")
    assert (back.exit_code, back.stderr.split(":")[0], back.stdout) == (3, "rollback", "")


def test_epsilon_is_rounded_up_in_its_last_digit():
    shown = {0.1234567890001: "0.123456790", 0.0: "0.000000000", 0.5: "0.500000000", 1e-12: "0.000000001"}
    assert {value: rounded_up(value) for value in shown} == shown


@pytest.mark.parametrize(
    ("epsilon", "period", "days", "said"),
    [
        ("1", "1h", 30, "answers 4 of the 24 periods of a day (ε = 4 in 24 hours) and stops after 25 of 30 days"),
        ("1", "1h", 25, "answers 4 of the 24 periods of a day (ε = 4 in 24 hours)\n"),
        ("1", "1d", 30, ""),
        ("1", "1d", 101, "stops after 100 of 101 days (ε = 100 in its life)"),
        ("0.1", "1h", 43, "stops after 42 of 43 days"),
        ("0.1", "1h", 42, ""),
        ("0.01", "1h", 30, ""),
        ("1", "13h", 60, "stops after 55 of 60 days"),
        ("1", "7h", 60, "stops after 30 of 60 days"),
        ("1.1", "7h", 60, "answers 3 of the 4 periods of a day (ε = 4 in 24 hours) and stops after 30 of 60 days"),
        ("4", "1w", 300, "stops after 175 of 300 days"),
        ("5", "1h", 30, ""),  # such a device refuses it
    ],
)
def test_who_makes_a_campaign_hears_how_far_a_device_without_limits_follows(tmp_path, epsilon, period, days, said):
    (tmp_path / "s.toml").write_text(mushrooms())
    run("init", tmp_path / "w", "--no-passphrase")
    terms = f"--epsilon {epsilon} --mechanism direct --period {period} --days {days}".split()
    made = run("campaign", tmp_path / "s.toml", "--workspace", tmp_path / "w", "-o", tmp_path / "c.hsc", *terms)
    assert said in made.stderr
    assert ("a device whose owner set no limits" in made.stderr) == bool(said)


def test_the_warning_is_what_a_device_without_limits_does(tmp_path):
    """Hours at ε = 1, answered by a real device until it says that its life's ε is spent."""
    publisher, now = Publisher(), [NOW]
    with Device.open(None, trust=publisher.root(), clock=lambda: now[0]) as device:
        campaign = device.enrol(publisher.campaign(time_precision=3600))
        said = []
        while not said or said[-1] != "budget_exhausted":
            said.append(reason(device.report, campaign.id, {}))
            now[0] += 3600
    assert (said.count(None), said[:24].count(None)) == (100, 4)
    assert -(-len(said) // 24) == 25
    assert "4 of the 24 periods of a day" in pace_warning(1_000_000, 3600, 30 * 86_400)
    assert "after 25 of 30 days" in pace_warning(1_000_000, 3600, 30 * 86_400)


def test_the_sheet_of_an_evaluation_names_the_model_that_decides_what_is_read(tmp_path):
    publisher = Publisher(now=int(time.time()))
    model = publisher.model()
    digest = sha256(read_envelope(model, "model").payload).hexdigest()
    said = verify(tmp_path, publisher.sign("campaign", publisher.evaluation_payload(model)), "--privacy")
    assert said.exit_code == 0
    assert f"what this model reads and predicts: {digest}" in said.stdout
    assert "what is read of a record is not in this file" in said.stderr
    sheet = verify(tmp_path, (tmp_path / "c.hsc").read_bytes(), "--privacy", "--json")
    assert json.loads(sheet.stdout)["privacy"]["model"] == digest
    assert f"model {digest}" in " ".join(invoke("show", tmp_path / "c.hsc").stdout.split())


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


@pytest.mark.parametrize("epsilon_micro", [3_000_000, 900_000_000])
def test_ratios_of_more_digits_than_python_prints_are_shown_as_powers_of_e(tmp_path, epsilon_micro):
    features = [Categorical(f"f{number}", ["x"]) for number in range(499)]
    schema = build_schema(Label("label", ["e", "p"]), features)
    publisher = Publisher(now=int(time.time()), schema=schema)
    raw = publisher.campaign(answers=500, epsilon_micro=epsilon_micro)
    plain = verify(tmp_path, raw, "--privacy")
    assert plain.exit_code == 0, plain.output
    assert "the campaign spends no more than it declares" in plain.stdout
    told = verify(tmp_path, raw, "--privacy", "--json")
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


@pytest.mark.parametrize(
    ("terms", "noise", "delta", "spent"), [(None, "laplace", "0", 4), (gaussian(), "gaussian", "1e-06", 7)]
)
def test_a_shared_campaign_says_what_it_is(tmp_path, terms, noise, delta, spent):
    """Seven millionths over two features: Laplace noise spends 4·⌊7/4⌋ of them, Gaussian noise all."""
    raw = shared_file(Publisher(now=int(time.time())), epsilon_micro=7, shared=terms)
    told = json.loads(verify(tmp_path, raw, "--privacy", "--json").stdout)
    assert told["shared"] == {"leader_key": ALLOWED[0], "helper_key": ALLOWED[1], "noise": noise, "delta": delta}
    assert told["privacy"]["total"]["worst_ratio"] == f"e^({Fraction(spent, 10**6)})"
    assert (told["privacy"]["holds"], told["privacy"]["declared"]["epsilon_total"]) == (True, "0.000007")
    for text in (verify(tmp_path, raw).stdout, invoke("show", tmp_path / "c.hsc").stdout):
        for words in (*ALLOWED, "the two together see every record", f"{noise} noise of each collector", "12 cells"):
            assert words in " ".join(text.split())
        assert "questions" not in text
