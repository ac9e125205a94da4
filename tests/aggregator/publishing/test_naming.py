"""Documents of a workspace by name and id: the right one, or none."""

from __future__ import annotations

import errno

import pytest
from support.commands import mushrooms, run, told
from support.publisher import NOW, Publisher
from support.reports import batch, opened, report

import aggregator
from aggregator.common import files
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.endings import end_campaign
from aggregator.publishing.naming import document_bytes
from protocol.errors import InputError, StorageError
from protocol.words import to_words

SCHEMA = Publisher().schema


def signed(work, name, now):
    return publish_campaign(work, SCHEMA, CampaignParameters(name, 1_000_000, "direct"), now)


def test_a_name_is_its_newest_version_that_asks_anything(work):
    first, second = signed(work, "m", NOW), signed(work, "m", NOW + 1)
    assert document_bytes("campaign", "m", work) == second
    assert document_bytes("campaign", "m@1", work) == first
    ended = end_campaign(work, "m", NOW + 2)
    assert document_bytes("campaign", "m", work) == second
    assert document_bytes("campaign", "m@3", work) == ended
    third = signed(work, "m", NOW + 3)
    assert document_bytes("campaign", "m", work) == third


def test_an_id_is_hexadecimal_or_words(work):
    raws = [signed(work, name, NOW) for name in ("m", "n")]
    for raw in raws:
        found = opened(raw).id
        for given in (found.hex(), found.hex().upper(), found.hex()[:8], to_words(found)):
            assert document_bytes("campaign", given, work) == raw
        for given in (found.hex()[:7], found.hex() + "00", f"{found.hex()[:8]}@1"):
            with pytest.raises(InputError, match=r"^campaign_unknown: .*it signed: m, n$"):
                document_bytes("campaign", given, work)
    with pytest.raises(InputError, match=r"^model_unknown: .*it signed: none"):
        document_bytes("model", "m", work)


def test_a_name_that_looks_like_anothers_id_or_version_is_itself(work):
    first = signed(work, "m", NOW)
    digits = opened(first).id.hex()[:8]
    liar, versioned = signed(work, digits, NOW), signed(work, "m@1", NOW)
    assert document_bytes("campaign", digits, work) == liar
    assert document_bytes("campaign", "m@1", work) == versioned
    assert document_bytes("campaign", opened(first).id.hex(), work) == first


def test_a_file_comes_first_and_needs_no_workspace(work, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, other = signed(work, "m", NOW), signed(work, "n", NOW)
    (tmp_path / "m").write_bytes(other)
    assert document_bytes("campaign", "m", work) == other
    assert document_bytes("campaign", "m", None) == other
    (tmp_path / "m").unlink()
    assert document_bytes("campaign", "m", work) == one
    with pytest.raises(InputError, match=r"^file_not_found"):
        document_bytes("campaign", "m", None)


def test_commands_take_names_and_ids(tmp_path):
    run("init", tmp_path / "work", "--no-passphrase")
    given = ("--workspace", tmp_path / "work")
    (tmp_path / "s.toml").write_text(mushrooms())
    run("campaign", tmp_path / "s.toml", *given, "--epsilon", "1", "--mechanism", "direct", "-o", tmp_path / "c.hsc")
    campaign = opened((tmp_path / "c.hsc").read_bytes())
    period = campaign.period_at(campaign.header.issued_at)
    for name, devices in (("a", range(10)), ("b", range(5, 20))):
        records = [report(campaign, device, period=period) for device in devices]
        (tmp_path / f"{name}.hsr").write_bytes(batch(campaign, records))
    (tmp_path / "names").write_text("a\nb\n")
    run("fleet", "new", tmp_path / "names", "-o", tmp_path / "f", "--no-passphrase")
    names = ("mushrooms", "mushrooms@1", campaign.id.hex(), to_words(campaign.id), tmp_path / "c.hsc")
    for number, name in enumerate(names):
        merged = tmp_path / f"{number}.hsr"
        run("merge", tmp_path / "a.hsr", tmp_path / "b.hsr", "--campaign", name, *given, "-o", merged)
        assert told("ingest", name, merged, "--store", tmp_path / f"s{number}", *given)["proven"] == 20
        run("fleet", "ids", name, *given, "--fleet", tmp_path / "f" / "fleet.hsf", "--periods", period,
            "-o", tmp_path / f"{number}.hsi")  # fmt: skip
    run("publish", "--store", tmp_path / "s0", *given, "-o", tmp_path / "m.hsm")
    run("evaluate", "ask", "mushrooms", *given, "--epsilon", "1", "-o", tmp_path / "e.hsc")
    ended = told("campaign", "--end", campaign.id.hex()[:8], *given, "-o", tmp_path / "end.hsc")
    assert (ended["name"], ended["version"]) == ("mushrooms", 2)


def test_a_signed_campaign_that_can_not_be_saved_is_found_in_the_workspace(work, tmp_path, monkeypatch):
    made = aggregator.make_campaign(work, Publisher().schema, epsilon=1, mechanism="direct", name="m", now=NOW)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_begin", full)
    with pytest.raises(StorageError, match=r"^disk_full: .*there is no space left; version 1 is signed all") as caught:
        made.save(tmp_path / "c.hsc")
    place = caught.value.detail.split("copy it from ")[1].split()[0]
    assert (tmp_path / "work" / place).read_bytes() == made.raw
