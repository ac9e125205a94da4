"""Every command of ``hearsay`` meets a shared campaign, its totals and its model: it works, or says what to do."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import click
import pytest
from support.commands import invoke, run
from support.publisher import DAY, NOW
from support.reports import opened

from aggregator.cli.app import hearsay
from aggregator.cli.inputs import enrolled_ids
from aggregator.collectors import collector, leading
from aggregator.collectors.campaigns import make_shared_campaign
from aggregator.collectors.collector import CollectorFolder
from aggregator.publishing.workspace import create_workspace
from edge_sdk import Device, Policy

DEVICES, BATCH = 12, 10
SCHEMA = """name = "ward"
[label]
name = "ill"
classes = ["no", "yes"]
[[features]]
name = "cough"
kind = "categorical"
values = ["none", "strong"]
"""

# Command → its calls, each with None for success or the reason of the refusal. Words of files are made by ``ward``.
TRUST = "--trust work/root.hst"
CALLS: dict[str, dict[str, str | None]] = {
    "show": dict.fromkeys(["c.hsc", "total.hsz", "m.hsm", "inbox/0.hsr", "leader/collector.pub", "ward.pair"]),
    "verify": {
        f"c.hsc {TRUST}": None,
        f"c.hsc {TRUST} --privacy": None,
        f"m.hsm {TRUST}": None,
        f"total.hsz {TRUST} --campaign c.hsc": None,
        f"total.hsz {TRUST}": "usage",
        f"total.hsz {TRUST} --campaign other.hsc": "unrecognized_campaign",
        f"inbox/0.hsr {TRUST}": "not_signed",
    },
    "guarantee": {"c.hsc": None, "c.hsc --devices 12": None, "c.hsc --shuffled": "usage", "c.hsc --records 3": "usage"},
    "ingest": {
        f"c.hsc total.hsz --store totals {TRUST}": None,
        f"c.hsc inbox/0.hsr --store totals {TRUST}": "campaign_shared",
        f"c.hsc inbox --store new {TRUST}": "campaign_shared",
        f"other.hsc total.hsz --store new {TRUST}": "unrecognized_campaign",
        f"other.hsc total.hsz --store totals {TRUST}": "other_campaign",
        f"c.hsc total.hsz --store totals --fleet f.hsf {TRUST}": "usage",
    },
    "status": {"--store totals": None, "--store totals --interval 0.1": "usage"},
    "estimate": {"--store totals": None},
    "publish": {"--store totals --workspace work -o again.hsm": None},
    "report": {f"totals -o p1.html {TRUST}": None, f"m.hsm -o p2.html {TRUST}": None},
    "predict": {"m.hsm r.csv": None},
    "diff": {"m.hsm m.hsm": None, "m.hsm m.hsm --store totals --old-periods .. --periods ..": None},
    "export-model": {"m.hsm --to json -o m.json": None},
    "evaluate ask": {
        "m.hsm --workspace work --epsilon 1 -o ev.hsc": None,
        "m.hsm --workspace work --epsilon 1 --pair ward.pair --delta 1e-6 -o both.hsc": None,
        "m.hsm --workspace work --epsilon 1 --noise laplace -o no.hsc": "argument_invalid",
    },
    "refine": {
        "--store totals --trust shared --devices 12 --epsilon 1 -o next.toml": "refine_invalid",
        "--store totals --trust shared --devices 12 --epsilon 4 --same-devices --series w -o next.toml": None,
        "--store totals --devices 12 --epsilon 1 -o no.toml": "refine_invalid",
    },
    "design": {
        "r.csv --schema s.toml --trust shared --devices 12 --epsilon 1 -o asked.toml": "pilot_too_small",
        "r.csv --schema s.toml --delta 1e-6 --devices 12 --epsilon 1 -o asked.toml": "argument_invalid",
    },
    "evaluate show": {"--store totals": "not_an_evaluation"},
    "export": {"--store totals --format csv -o x": "store_of_totals", "--store totals --format hsn -o x": "usage"},
    "forget": {"--store totals --before 1": "store_of_totals"},
    "quarantine ls": {"--store totals": "store_of_totals"},
    "quarantine show": {"x --store totals": "store_of_totals"},
    "quarantine rm": {"--all --store totals": "store_of_totals"},
    "quarantine retry": {"--store totals": "store_of_totals"},
    "fleet conflicts": {"--store totals --fleet f.hsf": "store_of_totals"},
    "merge": {"inbox -o merged.hsr": None, "inbox --campaign c.hsc -o merged2.hsr": None},
    "renew": {"--workspace work": None},
    "campaign": {"--end ward --workspace work -o end.hsc": None},
    "masked request": {"--store totals -o q.hsq": "not_a_store"},
    "collector check": {
        f"leader c.hsc inbox --period 1 {TRUST} -o a.hsx": "batch_too_small",
        f"leader other.hsc made.hsr --period {NOW // DAY} {TRUST} -o no.hsx": "period_refused",
    },
    "plan": {
        "s.toml --trust shared --epsilon 1 --devices 500 --target-width 0.2": None,
        "s.toml --trust shared --delta 1e-6 --epsilon 1 --target-accuracy 0.6": None,
        "s.toml --trust shared --mechanism oue --epsilon 1 --devices 500": "plan_invalid",
        "s.toml --delta 1e-6 --epsilon 1 --devices 500": "plan_invalid",
    },
    "rehearse": {"c.hsc r.csv --devices 12 -o again.hsr": None, "c.hsc r.csv --model m.hsm -o no.hsr": "model_unknown"},
    "collector show": {"leader": None, "helper": None},
}
# Commands that take neither a shared campaign nor what follows from it, or whose own tests give them one.
OTHERS = """
budget adopt, budget assign, budget new, budget show, collector adopt, collector answer, collector campaign,
collector export, collector finish, collector new, collector pair, count, demo, fit, fleet ids, fleet new,
fleet replace, fleet revoke,
init, key new, key protect, masked adopt, masked decrypt, masked new, masked rekey, masked release, masked setup,
masked show, nodes add, nodes campaign, nodes new, nodes remove, nodes renew, nodes show, projection,
schema, serve, sign, simulate, table, trust add-key, trust discard, trust gather, trust renew, trust resign,
trust revoke, trust rotate, trust show, trust threshold
"""


def _commands(group, before=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        words = (*before, name)
        yield from _commands(command, words) if isinstance(command, click.Group) else [" ".join(words)]


@pytest.fixture(scope="module")
def ward(tmp_path_factory):
    """A folder with a shared campaign, reports, a total, a store of it and a model. The period of the reports ended."""
    folder = tmp_path_factory.mktemp("ward")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: NOW + 2 * DAY)
        patch.chdir(folder)
        make(folder)
        yield folder


def make(folder):
    """Make the files of ``ward``."""
    create_workspace(folder / "work", name="ward", now=NOW)
    (folder / "s.toml").write_text(SCHEMA)
    (folder / "r.csv").write_text("ill,cough\nyes,strong\nno,none\n")
    (folder / "inbox").mkdir()
    clock = {"clock": lambda: NOW + 2 * DAY}
    with (
        CollectorFolder.create(folder / "leader", "hospital", "a@h", **clock) as leader,
        CollectorFolder.create(folder / "helper", "university", "b@u", **clock) as helper,
    ):
        for name in ("c", "other"):
            (folder / "ward.pair").write_bytes(leader.pair_with((folder / "helper" / "collector.pub").read_bytes()))
            stated = {"epsilon": "2", "pair": folder / "ward.pair", "min_batch_size": BATCH}
            called = "ward" if name == "c" else name
            made = make_shared_campaign(folder / "work", folder / "s.toml", now=NOW, name=called, **stated)
            made.save(folder / f"{name}.hsc")
        raw, root = (folder / "c.hsc").read_bytes(), (folder / "work" / "root.hst").read_bytes()
        allowed = Policy.of(epsilon_per_period="2", collectors=[one.public.key.hex() for one in (leader, helper)])
        rng = random.Random(5)
        for number in range(DEVICES):
            with Device.open(None, trust=root, policy=allowed, clock=lambda: NOW) as device:
                ill = rng.choice(["no", "yes"])
                device.report(device.enrol(raw).id, {"cough": "strong" if ill == "yes" else "none"}, label=ill)
                device.drain(folder / "inbox" / f"{number}.hsr")
        files = sorted((folder / "inbox").iterdir())
        leader.check(raw, root, NOW // DAY, files, folder / "ask.hsx")
        helper.answer(raw, root, folder / "ask.hsx", folder / "said.hsx")
        leader.finish(raw, root, folder / "said.hsx", folder / "total.hsz")
    run("ingest", "c.hsc", "total.hsz", "--store", "totals", "--trust", "work/root.hst")
    run("publish", "--store", "totals", "--workspace", "work", "-o", "m.hsm")
    run("rehearse", "other.hsc", "r.csv", "--devices", DEVICES, "--period", NOW // DAY, "-o", "made.hsr")


def test_every_command_is_in_the_table():
    others = [re.sub(r"\s+", " ", name).strip() for name in OTHERS.split(",")]
    assert sorted([*CALLS, *others]) == sorted(_commands(hearsay))


@pytest.mark.parametrize(("command", "call"), [(name, call) for name, calls in CALLS.items() for call in calls])
def test_a_command_works_with_shared_answers_or_says_what_to_do(ward, command, call):
    wanted = CALLS[command][call]
    found = invoke(*command.split(), *call.split())
    assert (found.exit_code == 0) == (wanted is None), found.output
    if wanted is not None:
        assert found.stderr.splitlines()[-1].startswith(f"{wanted}: "), found.output
    if wanted in ("campaign_shared", "store_of_totals"):
        assert "ingest" in found.stderr


def test_the_sheet_says_what_a_shared_campaign_does_not_hide(ward):
    sheet = json.loads(run("guarantee", "c.hsc", "--json").stdout)
    assert sheet["both_collectors_see"] == "everything"
    assert sheet["device"]["epsilon_per_period"] == "2"
    assert sheet["min_batch_size"] == BATCH
    assert (sheet["most_claimed"], sheet["privacy"]["features"], sheet["privacy"]["cells"]) == (1, 1, 6)
    # Laplace noise of rate 1 has the variance 2q/(1-q)^2 with q = 1/e; two collectors add it.
    assert sheet["noise_sd"] ** 2 == pytest.approx(2 * 2 * 0.36787944 / (1 - 0.36787944) ** 2, rel=1e-6)
    text = run("guarantee", "c.hsc").stdout
    for words in ("work together", "shift the total", "made-up devices", "twice, which doubles ε"):
        assert words in text
    page = ward / "p.html"
    run("report", "totals", "--trust", "work/root.hst", "-o", page)
    assert "splits its record for two collectors" in page.read_text()
    card = json.loads(run("show", "m.hsm", "--json").stdout)["payload"]["card"]
    assert "factor of 7.39" in str(card["costs"])  # e^2, and not 1: nothing is asked by questions


def test_a_closed_fleet_also_tells_how_good_a_model_is(ward, monkeypatch):
    """Listed devices and strangers answer about a feature and a model: exactly the listed ones are in the total."""
    named = [f"d{number}" for number in range(BATCH)]
    (ward / "names").write_text("\n".join(named))
    run("fleet", "new", "names", "-o", "fleet", "--no-passphrase")
    run("collector", "pair", "leader", "helper/collector.pub", "-o", "closed.pair")
    terms = ("--workspace", "work", "--pair", "closed.pair", "--epsilon", "2", "--min-batch-size", BATCH)
    made = run("collector", "campaign", "s.toml", *terms, "--name", "closed", "--evaluate", "m.hsm", "--delta", "1e-6",
               "-o", "closed.hsc", "--json")  # fmt: skip
    said = json.loads(made.stdout)
    assert said["cells"] == 6 + 4  # with a missing cough, and two classes told as two
    assert said["noise_of_a_cell"] == pytest.approx(said["variances"][said["noise"]] ** 0.5)
    assert said["variances"][said["noise"]] == min(said["variances"].values())
    raw, root, model = (Path(name).read_bytes() for name in ("closed.hsc", "work/root.hst", "m.hsm"))
    campaign = opened(raw)
    allowed = Policy.of(
        epsilon_per_period="2", delta_per_period="0.00001", delta_lifetime="0.001",
        collectors=[one.key.hex() for one in campaign.shared.collectors],
    )  # fmt: skip
    (ward / "closed").mkdir()
    exact, later = dict.fromkeys(range(said["cells"]), 0), NOW + 2 * DAY
    for number in range(2 * BATCH):
        enrolment = (ward / "fleet" / "devices" / f"{named[number]}.hsp").read_bytes() if number < BATCH else None
        ill, cough = number % 2, (number // 2) % 2
        with Device.provision(None, trust=root, policy=allowed, enrolment=enrolment, clock=lambda: later) as device:
            classifier = device.install(model)
            record = {"cough": ("none", "strong")[cough]}
            assert "what it predicts, with 'ill'" in device.explain(raw)
            device.report(device.enrol(raw).id, record, label=("no", "yes")[ill])
            device.drain(ward / "closed" / f"{number}.hsr")
            told = ("no", "yes").index(classifier.predict(record))
        if number < BATCH:
            exact[2 * cough + ill] += 1
            exact[6 + 2 * ill + told] += 1
    for module in (collector, leading):
        monkeypatch.setattr(module, "noisy", lambda _campaign, sums, _seed: list(sums))
    clock = {"clock": lambda: later + 2 * DAY}
    listed = enrolled_ids(campaign, None, (ward / "fleet" / "fleet.hsf",))
    with CollectorFolder.open("leader", **clock) as leader, CollectorFolder.open("helper", **clock) as helper:
        files = sorted((ward / "closed").iterdir())
        leader.check(raw, root, later // DAY, files, Path("q.hsx"), enrolled=listed)
        helper.answer(raw, root, Path("q.hsx"), Path("a.hsx"))
        ended = leader.finish(raw, root, Path("a.hsx"), Path("z.hsz"))
        # Made-up devices answer as real ones do.
        made = leader.check((ward / "other.hsc").read_bytes(), root, NOW // DAY, [ward / "made.hsr"], Path("made.hsx"))
        assert (made.reports, made.refused) == (DEVICES, {})
    assert (ended.accepted, ended.refused) == (BATCH, {"id_not_enrolled": BATCH})
    run("ingest", "closed.hsc", "z.hsz", "--store", "closed-totals", "--trust", "work/root.hst")
    found = json.loads(run("estimate", "--store", "closed-totals", "--json").stdout)["questions"]
    assert [one["estimates"] for one in found] == [[exact[at] for at in range(6)]]
    judged = json.loads(run("evaluate", "show", "--store", "closed-totals", "--json").stdout)
    assert judged["accuracy"]["estimate"] == pytest.approx((exact[6] + exact[9]) / BATCH)
    assert [one["share"] * BATCH for one in judged["confusion"]] == [exact[at] for at in range(6, 10)]
    run("publish", "--store", "closed-totals", "--workspace", "work", "--name", "closed", "-o", "closed.hsm")
