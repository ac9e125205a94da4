"""A campaign with memory goes through every command, or is refused with a reason."""

from __future__ import annotations

import pytest
from support.commands import invoke, run, told

PILOT = "odor,label\n" + "a,e\nn,e\nn,p\nf,p\n" * 20
BASE = ("--epsilon", 1, "--mechanism", "auto")


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    (folder / "p.csv").write_text(PILOT)
    run("init", folder / "work", "--no-passphrase")
    run("schema", folder / "p.csv", "--label", "label", "-o", folder / "s.toml")
    return folder


@pytest.mark.slow
def test_reports_of_several_days_count_as_devices_and_every_page_says_what_is_kept(work):
    made = told(
        "campaign", work / "s.toml", *BASE, "--memory", 2, "--days", 30, "--workspace", work / "work",
        "-o", work / "c.hsc",
    )  # fmt: skip
    assert (made["epsilon_over_its_life"], made["epsilon_of_one_report"], made["renewals"]) == ("3", "0.5", 2)
    rehearsed = ("--devices", 300, "--days", 4, "--seed", 1, "-o", work / "r.hsr")
    last = told("rehearse", work / "c.hsc", work / "p.csv", *rehearsed)["last_period"]
    run(
        "ingest", work / "c.hsc", work / "r.hsr", "--store", work / "store", "--workspace", work / "work", "--now", last
    )
    found = told("estimate", "--store", work / "store")
    assert found["reports"] == 1200
    assert sum(question["n"] for question in found["questions"]) == 300
    assert told("status", "--store", work / "store")["alarms"]["raised"] == []
    run("publish", "--store", work / "store", "--workspace", work / "work", "-o", work / "m.hsm")
    kept = "a device has one question and keeps a noisy answer (ε = 1), draws another 2 times"
    for command in (
        ("show", work / "m.hsm"),
        ("show", work / "c.hsc"),
        ("guarantee", work / "c.hsc", "--devices", 300),
    ):
        assert kept in run(*command).stdout
    sheet = told("guarantee", work / "c.hsc", "--devices", 300, "--shuffled")
    assert (sheet["device"]["epsilon_in_life"], sheet["shuffled"]["epsilon"]) == ("3", None)
    run("report", work / "store", "-o", work / "r.html")
    assert kept in (work / "r.html").read_text()
    again = invoke("renew", "--workspace", work / "work", "--ahead", 40, "--dry-run")
    assert "pay the whole cost again" in again.output


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ((*BASE, "--memory", 2, "--series", "pilot"), "memory_invalid"),
        ((*BASE, "--memory", 2, "--answers", "all"), "memory_invalid"),
        ((*BASE, "--memory", 30, "--days", 20), "memory_invalid"),
        ((*BASE, "--memory", 2, "--report-epsilon", 1), "memory_invalid"),
        ((*BASE, "--report-epsilon", 0.5), "memory_invalid"),
        (("--epsilon", 1, "--mechanism", "sue", "--memory", 2), "memory_invalid"),
    ],
    ids=str,
)
def test_what_can_keep_no_answers_is_refused(work, terms, reason):
    ran = run("campaign", work / "s.toml", *terms, "--workspace", work / "work", "-o", work / "x.hsc", status=1)
    assert ran.stderr.startswith(f"{reason}: ")
