"""``hearsay fleet`` on the command line."""

import json
import os
import pty
import stat
from operator import ne
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from nacl.pwhash import argon2id
from support.commands import REFUSED
from support.failures import refusal
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, opened, report

from aggregator.cli import options as passphrase
from aggregator.cli.app import hearsay
from aggregator.common import sealing
from aggregator.common.periods import begins
from aggregator.operations.report_store import create_store
from aggregator.reports import fleet as ids_module
from aggregator.reports import fleet as rosters
from aggregator.reports.fleet import IdReader, read_roster
from aggregator.reports.intake.enrolment import enrolled_from_rosters
from protocol.batches.report import report_id
from protocol.documents.provisioning import parse_provisioning

RAW = Publisher().campaign(answers=2, epsilon_micro=2_000_000)
CAMPAIGN = opened(RAW)
PERIOD = CAMPAIGN.period_at(NOW)


@pytest.fixture(autouse=True)
def _cheap(monkeypatch):
    cheap = sealing.Cost(1, argon2id.MEMLIMIT_MIN)
    for function in (rosters.write_roster, rosters.list_bytes):
        monkeypatch.setattr(function, "__kwdefaults__", {**function.__kwdefaults__, "cost": cheap})
    monkeypatch.delenv("HEARSAY_PASSPHRASE_FILE", raising=False)


def run(*arguments, status=0, **environment):
    result = CliRunner(env=environment).invoke(hearsay, ["fleet", *map(str, arguments)])
    assert result.exit_code in (REFUSED if status == 1 else (status,)), result.output
    return result


@pytest.fixture
def work(tmp_path):
    (tmp_path / "names.txt").write_text("gate 7\n\n  barn\r\nTür\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("correct horse\nsecond line\n")
    (tmp_path / "c.hsc").write_bytes(RAW)
    return tmp_path


def new(work, *more, **options):
    return run("new", work / "names.txt", "-o", work / "out", "--passphrase-file", work / "secret.txt", *more,
               **options)  # fmt: skip


def test_a_fleet_is_made_and_its_ids_are_those_its_devices_have(work):
    made = json.loads(new(work, "--name", "orchard", "--json").stdout)
    assert made == {
        "fleet": "orchard",
        "devices": 3,
        "list": str(work / "out" / "fleet.hsf"),
        "encrypted": True,
        "provisioning": str(work / "out" / "devices"),
    }
    given_out = [parse_provisioning(path.read_bytes()) for path in (work / "out" / "devices").iterdir()]
    assert {(one.fleet, one.device) for one in given_out} == {("orchard", name) for name in ("gate 7", "barn", "Tür")}
    result = run("ids", work / "c.hsc", "--periods", f"..{PERIOD + 1}", "--fleet", work / "out" / "fleet.hsf",
                 "-o", work / "ids.hsi", "--json", HEARSAY_PASSPHRASE_FILE=str(work / "secret.txt"))  # fmt: skip
    found = json.loads(result.stdout)
    assert (found["devices"], found["ids"], found["last_period"] - found["first_period"]) == (3, 12, 1)
    reader = IdReader(work / "ids.hsi")
    for period in (PERIOD, PERIOD + 1):
        for index, held in enumerate(reader.known(period)):
            given = [report_id(one.secret, CAMPAIGN.id, period, index) for one in given_out]
            ids = np.array([int.from_bytes(identifier) for identifier in given], np.uint64)
            assert sorted(reader.known_as(period, index, ids).tolist()) == held.tolist()


def secrets_of(folder):
    found = [parse_provisioning(path.read_bytes()) for path in (folder / "devices").iterdir()]
    return {one.device: one.secret for one in found}


def reports_of(secret, value, period=PERIOD):
    """Both reports of a device: a copy of the device has the same ids, and other answers to another record."""
    return [report(CAMPAIGN, value, value, period=period, index=index, secret=secret) for index in range(2)]


def test_a_copied_device_is_named_and_replaced_and_a_sold_one_revoked(work):
    """Before, nothing told which of the devices were in conflict, and a list could not be changed."""
    new(work)
    secret_file = ("--passphrase-file", work / "secret.txt")
    first, lists = secrets_of(work / "out"), work / "out" / "fleet.hsf"
    original = {name: reports_of(secret, 0) for name, secret in first.items()}
    copy = next(
        given for value in range(1, 50) if all(map(ne, given := reports_of(first["gate 7"], value), original["gate 7"]))
    )
    store = create_store(work / "store", RAW)
    names = {}
    for name, records in {**original, "copy": copy, "again": original["barn"]}.items():
        names[name] = work / f"{name}.hsr"
        names[name].write_bytes(batch(CAMPAIGN, records))
    store.ingest(
        names.values(), now=NOW, enrolled=enrolled_from_rosters(CAMPAIGN, [read_roster(lists, b"correct horse")])
    )
    found = json.loads(run("conflicts", "--store", work / "store", "--fleet", lists, *secret_file, "--json").stdout)
    assert found == {"conflicts": 2 * [{"fleet": "names", "device": "gate 7", "period": PERIOD, "records": 2}]}
    assert "gate 7" in run("conflicts", "--store", work / "store", "--fleet", lists, *secret_file).stdout
    later = run("conflicts", "--store", work / "store", "--fleet", lists, "--periods", f"{PERIOD + 1}..", *secret_file)
    assert "no device" in later.stderr

    made = json.loads(run("replace", lists, "gate 7", "-o", work / "next", *secret_file, "--json").stdout)
    assert (made["devices"], made["replaced"]) == (3, 1)
    renewed = read_roster(work / "next" / "fleet.hsf", b"correct horse")
    now = dict(zip(renewed.devices, renewed.each_secret(), strict=True))
    assert secrets_of(work / "next") == {"gate 7": now["gate 7"]}
    assert {name for name in now if now[name] != first[name]} == {"gate 7"}

    made = json.loads(
        run("revoke", work / "next" / "fleet.hsf", "barn", "-o", work / "last.hsf", *secret_file, "--json").stdout
    )
    assert (made["devices"], made["revoked"]) == (2, 1)
    assert stat.S_IMODE((work / "last.hsf").stat().st_mode) == 0o600
    left = read_roster(work / "last.hsf", b"correct horse")
    assert dict(zip(left.devices, left.each_secret(), strict=True)) == {name: now[name] for name in ("gate 7", "Tür")}
    fresh = create_store(work / "fresh", RAW)
    taken = fresh.ingest(names.values(), now=NOW, enrolled=enrolled_from_rosters(CAMPAIGN, [left]))
    assert (taken.accepted, taken.rejected) == (
        2,
        {"id_not_enrolled": 6},
    )  # only Tür's; the second file of barn repeats


def test_lists_and_ids_that_are_refused_change_nothing(work, monkeypatch):
    monkeypatch.chdir(work)
    new(work)
    (work / "wrong.txt").write_text("house")
    listed, ids = "out/fleet.hsf", f"ids c.hsc --fleet LIST -o x --periods {PERIOD}"
    for line, reason in (
        ("revoke LIST barn barm -o x", "device_unknown: the fleet 'names' has no device 'barm'"),
        ("replace LIST barm -o x", "device_unknown: the fleet 'names' has no device 'barm'"),
        ("revoke LIST barn Tür gate§7 -o x", "fleet_empty: "),
        ("revoke LIST barn -o LIST --force", "output_invalid: "),
        (f"{ids} --passphrase-file wrong.txt", "passphrase_wrong: "),
        (ids.replace(str(PERIOD), f"{PERIOD - 9}..{PERIOD - 1}"), "periods_absent: "),
        (ids.replace("LIST", "c.hsc"), "sealed_damaged: "),
        (ids.replace("LIST", "absent"), "file_not_found: "),
        ("new names.txt -o y --passphrase-file empty.txt", "passphrase_missing: "),
    ):
        (work / "empty.txt").write_text("\nsecond line")
        words = [word.replace("§", " ").replace("LIST", listed) for word in line.split()]
        more = () if "--passphrase-file" in words else ("--passphrase-file", "secret.txt")
        assert run(*words, *more, status=1).stderr.startswith(reason), line
        assert not {"x", "y"} & {path.name for path in work.iterdir()}
    assert run("new", "names.txt", "-o", "y", status=1).stderr.startswith("passphrase_missing: ")
    for periods in ("", "a..b", "2026-11-31", "2026-11-02..2026-11-01", "1969-12-31", "5..4", "1-2", "4294967296",
                    "1...2", "1 .. 2"):  # fmt: skip
        assert run("ids", "c.hsc", "--periods", periods, "--fleet", "f", "-o", "x", status=2).stderr.startswith(
            "usage: "
        )


def test_open_ends_and_dates_are_the_campaigns_periods(work):
    """``..`` is what the help allows: all of them. Of a list that is named twice each device counts once."""
    text = new(work).stdout
    assert "names" in text
    assert str(work / "out" / "devices") in text
    end = -(-CAMPAIGN.header.expires // DAY) - 1
    day, listed = begins(PERIOD, DAY), ("--fleet", work / "out" / "fleet.hsf")
    for given, expected in (("..", (PERIOD, end)), (f"{day}..{day}", (PERIOD, PERIOD)), (f"..{day}", (PERIOD, PERIOD))):
        result = run("ids", work / "c.hsc", "--periods", given, *listed, *listed, "--force", "-o", work / "ids.hsi",
                     "--passphrase-file", work / "secret.txt")  # fmt: skip
        assert f"{expected[0]}..{expected[1]} ({day} to {begins(expected[1], DAY)})" in result.stdout
        reader = IdReader(work / "ids.hsi")
        assert (reader.periods, reader.about.devices) == (range(expected[0], expected[1] + 1), 3)


@pytest.mark.parametrize("there", [False, True])
def test_a_file_of_ids_is_its_owners_alone_also_when_it_replaces_another(work, there):
    """From its first byte on: what a reader opens meanwhile stays open to him."""
    new(work)
    seen = []
    write = ids_module.write_ids

    def watched(sink, *arguments):
        seen.append(stat.S_IMODE(os.fstat(sink.fileno()).st_mode))
        return write(sink, *arguments)

    if there:
        (work / "ids.hsi").write_bytes(b"old")
        (work / "ids.hsi").chmod(0o666)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids_module, "write_ids", watched)
        run("ids", work / "c.hsc", "--periods", f"{PERIOD}", "--fleet", work / "out" / "fleet.hsf", "-o",
            work / "ids.hsi", "--passphrase-file", work / "secret.txt", "--force")  # fmt: skip
    assert seen == [0o600]
    assert stat.S_IMODE((work / "ids.hsi").stat().st_mode) == 0o600


def test_names_that_will_not_do(work):
    for names, reason in (
        (b"", "fleet_empty"),
        (b"a\na\n", "device_repeated"),
        (b"a\nA\n", "device_repeated"),
        (b"\xff", "not_utf8"),
        (b"a\0b", "name_invalid"),
    ):
        (work / "names.txt").write_bytes(names)
        assert new(work, status=1).stderr.startswith(f"{reason}: ")
        assert not (work / "out").exists()


def test_a_person_at_a_terminal_is_asked_without_echo(monkeypatch):
    asked = []
    master, slave = pty.openpty()
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr(passphrase.sys, "stdin", terminal)
        monkeypatch.setattr(passphrase.click, "prompt", lambda text, **how: asked.append((text, how)) or "typed")
        assert passphrase.new_passphrase("the list") == b"typed"
    os.close(master)
    (text, how) = asked[0]
    assert text == "Passphrase of the list"
    assert (how["hide_input"], how["confirmation_prompt"]) == (True, True)
    monkeypatch.setattr(passphrase, "setting", lambda name: Path("/nowhere/at/all"))
    assert refusal(passphrase.existing_passphrase("the list")) == "file_not_found"


def test_a_list_in_the_clear_needs_no_passphrase_wherever_it_is_given(work):
    """Nobody sits at a terminal here: whoever asks for a passphrase refuses."""
    run("new", work / "names.txt", "-o", work / "out", "--no-passphrase")
    listed = ("--fleet", work / "out" / "fleet.hsf")
    run("ids", work / "c.hsc", *listed, "--periods", PERIOD, "-o", work / "i")
    (work / "a.hsr").write_bytes(batch(CAMPAIGN, []))
    store = ("--store", work / "s")
    for arguments in (("ingest", work / "c.hsc", work / "a.hsr", *store, *listed), ("estimate", *store, *listed)):
        result = CliRunner().invoke(hearsay, [str(argument) for argument in arguments])
        assert (result.exit_code, "passphrase" in result.stderr) == (0, False), result.output
