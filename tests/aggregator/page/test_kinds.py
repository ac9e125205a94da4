"""Pages of every kind of store and model, of hostile and very large inputs: bounded, without markup of their own."""

from __future__ import annotations

import random

import pandas as pd
import pytest
from support.asked import answered, people
from support.commands import run, told
from support.failures import reason
from support.hostile import CARDS, model_of, wide
from support.masked import DEALER, MODULUS, NODES, TERMS, book_of, masked_payload, secret_of
from support.node_fleets import list_of
from support.node_publishing import round_of
from support.nodes import NODE_KEYS, PERIOD
from support.pages import check
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, opened, report
from support.stores import stored

import aggregator
from aggregator.cards.card_words import sections
from aggregator.curator.budget import BudgetFile, record_bytes
from aggregator.curator.fitting import fit_records
from aggregator.curator.terms import FitTerms
from aggregator.models.foresight import Foresight, Recall
from aggregator.nodes.store.masked import MaskedStore
from aggregator.nodes.store.opening import make_envelope_store
from aggregator.operations.report_store import create_store
from aggregator.page import rendering
from aggregator.page.report import report as page_of
from aggregator.publishing.ask_table import AskedFeature
from aggregator.publishing.workspace import create_workspace
from protocol import canonical
from protocol.documents.campaign import DISCRETE, parse_campaign
from protocol.documents.envelope import keyid, read_envelope
from protocol.masked.cipher import mask_all, release_elements
from protocol.masked.costs import ciphertexts_of
from protocol.masked.fields import Slots
from protocol.masked.message import build_message
from protocol.masked.release import build_release, build_request, parse_request
from protocol.nodes.terms import released_vectors


def store_of(folder, raw, answers, now=NOW):
    """A store of a campaign with these reports: device, input, and perhaps the period."""
    folder.mkdir(exist_ok=True)
    campaign = opened(raw)
    made = [report(campaign, *one[:2], **({"period": one[2]} if len(one) > 2 else {})) for one in answers]
    return stored(folder, raw, batch(campaign, made), now=now)


def test_several_stores_are_one_page(tmp_path):
    work = tmp_path / "work"
    aggregator.create_workspace(work, name="w", now=NOW)
    frame = people(1200)
    ask = {"cap": AskedFeature(), "odor": AskedFeature()}
    stores = [
        answered(work, tmp_path, half, name=name, ask=ask, series="s", seed=seed)
        for seed, (name, half) in enumerate({"first": frame.iloc[:600], "second": frame.iloc[600:]}.items())
    ]
    found = check(page_of(stores, workspace=work, now=NOW).html)
    assert "'first', 'second'" in found.words
    assert "This page counts 1200 reports" in found.words


def test_a_store_of_summaries_is_a_page(tmp_path):
    made = round_of(tmp_path, nodes=6)
    aggregator.ingest(made.campaign, made.summaries, tmp_path / "st", nodes=made.listed, now=NOW + 2 * DAY)
    found = check(page_of(tmp_path / "st", workspace=tmp_path / "work", now=NOW + 2 * DAY).html)
    for text in ("federated", "nodes heard", "mean of", "of the nodes lie", "no test of the summaries".capitalize()):
        assert text in found.words
    model = aggregator.make_model(made.workspace, tmp_path / "st", now=NOW + 2 * DAY)
    model.save(tmp_path / "m.hsm")
    found = check(page_of(tmp_path / "m.hsm", workspace=made.workspace, now=NOW + 2 * DAY).html)
    assert "UNVERIFIED" not in found.words
    assert "each record of a node" in found.words


def test_a_store_of_masked_messages_is_a_page_before_and_after_decryption(tmp_path):
    publisher = Publisher()
    terms = TERMS._replace(honest_micro=500_000, colluding_micro=250_000)
    payload = masked_payload(publisher, DISCRETE, masked=terms, terms=NODES)
    campaign = parse_campaign(payload)
    store = make_envelope_store(MaskedStore, tmp_path / "st", publisher.sign("campaign", payload))
    parties = NODE_KEYS[:4]
    store.give_list(list_of(publisher, parties))
    store.give_book(book_of(campaign, tuple(parties)))
    assert "No estimates are shown" in check(page_of(store, now=NOW).html).words
    count = sum(subject.size for subject in released_vectors(campaign))
    rng = random.Random(1)
    messages = []
    for node in range(3):
        numbers = [rng.randrange(100, 1000) for _ in range(count)]
        hidden = mask_all(Slots(terms.slot_bits).pack(numbers), secret_of(node + 1), campaign.id, PERIOD, MODULUS)
        messages.append(build_message(campaign, parties[node], PERIOD, node + 1, hidden))
    (tmp_path / "in.hse").write_bytes(b"".join(messages))
    store.ingest([tmp_path / "in.hse"], now=NOW + 2 * DAY)
    asked = parse_request(build_request(campaign.id, PERIOD, 1, [keyid(one.public) for one in parties[:3]]))
    total = sum(secret_of(node + 1) for node in range(3))
    elements = release_elements(total, campaign.id, PERIOD, ciphertexts_of(campaign), MODULUS)
    store.request(PERIOD)
    store.decrypt(build_release(campaign, DEALER, asked, elements))
    found = check(page_of(store, now=NOW + 2 * DAY).html)
    for text in ("distributed", "Decrypted sums", "rests on", "No test of the messages can see"):
        assert text in found.words


def test_a_curators_model_is_a_page(tmp_path):
    table = pd.DataFrame(
        {"label": ["e", "p"] * 200, "odor": ["n", "f"] * 150 + ["a", "n"] * 50, "width": ["3", "8"] * 200}, dtype=object
    )
    work = create_workspace(tmp_path / "work", name="ward", now=NOW)
    with BudgetFile.create(tmp_path / "w.hsb", name="ward", epsilon_micro=2_000_000, adjacency="change") as budget:
        budget.assign(budget.digest(record_bytes(table)))
        terms = FitTerms("sums", 1_000_000, adjacency="change")
        made = fit_records(work, table, Publisher().schema, terms, budget, name="ward", now=NOW)
    made.signed.save(tmp_path / "m.hsm")
    found = check(page_of(tmp_path / "m.hsm", workspace=work, now=NOW).html)
    assert "UNVERIFIED" not in found.words
    assert "central" in found.words


def evaluation_of(folder, file):
    """A store with 300 answers about a model: 225 of them say that it is right."""
    raw = Publisher().sign("campaign", Publisher().evaluation_payload(file))
    return store_of(folder, raw, [(device, 0 if device % 4 else 1) for device in range(300)])


def test_measured_accuracy_is_shown_for_its_own_model_only(tmp_path):
    publisher, model = Publisher(), tmp_path / "m.hsm"
    model.write_bytes(publisher.model())
    (tmp_path / "other.hsm").write_bytes(publisher.model(name="other"))
    store = evaluation_of(tmp_path, publisher.model())
    found = check(page_of(model, evaluation=[store], now=NOW).html)
    for text in ("Measured by private answers", "exactly this model", "Measured recall"):
        assert text in found.words
    plain = store_of(tmp_path / "plain", publisher.campaign(), [(1, 0)])
    assert reason(page_of, tmp_path / "other.hsm", evaluation=[store], now=NOW) == "other_model"
    assert reason(page_of, model, evaluation=[plain], now=NOW) in ("not_an_evaluation", "other_model")
    assert "Measured by private answers" in check(page_of(store, now=NOW).html).words


def test_expected_and_measured_accuracy_are_one_sentence_of_the_page(tmp_path):
    """The card expects 0.9 of the devices to be right, and says that one class is never predicted."""
    publisher = Publisher()
    body = canonical.unpack(read_envelope(publisher.model(), "model").payload)
    recall = (Recall("e", 0.875, 0.75, 1.0), Recall("p", 0.0, 0.0, 0.0))
    card = Foresight(0.9, 0.5, 0.45, 0.55, beats=True, least=0.85, most=0.95, recall=recall).to_card()
    file = publisher.sign("model", canonical.pack({**body, "card": card}))
    (tmp_path / "m.hsm").write_bytes(file)
    words = check(page_of(tmp_path / "m.hsm", evaluation=[evaluation_of(tmp_path, file)], now=NOW).html).words
    assert words.count("as devices measured it") == 1
    for text in ("the 90.0% (85.0% to 95.0%) that was expected", "never predicts 'p'", "Expected recall",
                 "Measured recall"):  # fmt: skip
        assert text in words


def test_a_model_s_page_has_the_entries_of_its_card(tmp_path):
    work = tmp_path / "work"
    aggregator.create_workspace(work, name="w", now=NOW)
    store = answered(work, tmp_path, people(1500), ask={"cap": AskedFeature(), "odor": AskedFeature()})
    model = aggregator.make_model(work, store, now=NOW)
    model.save(tmp_path / "m.hsm")
    words = check(page_of(tmp_path / "m.hsm", now=NOW).html).words
    card = model.document.card
    for key in ("asked", "influence", "interval_widths", "class_intervals"):
        assert all(name in words and str(value)[:5] in words for name, value in card[key].items()), key
    shown_else = {"asked", "influence", "influence_noise", "interval_widths", "class_intervals", "rejected", "trust"}
    shown_else |= set(model.expected.to_card())
    told = sections({key: value for key, value in card.items() if key not in shown_else})
    assert [text for _, rows in told for _, text in rows if " ".join(text.split()) not in words] == []
    assert model.expected.shown.split(",")[0].split(" to ")[0] in words


def test_a_store_without_reports_or_with_too_few_is_a_page(tmp_path):
    publisher = Publisher()
    assert (
        "No estimates are shown"
        in check(page_of(create_store(tmp_path / "e", publisher.campaign()), now=NOW).html).words
    )
    raw = publisher.sign("campaign", publisher.evaluation_payload(publisher.model()))
    assert "has no result" in check(page_of(create_store(tmp_path / "evaluation", raw), now=NOW).html).words
    few = store_of(tmp_path, publisher.campaign(min_batch_size=50), [(device, 1) for device in range(49)])
    found = check(page_of(few, now=NOW).html)
    assert "No estimates are shown" in found.words
    assert "P(odor" not in found.words
    assert "Classes and features" not in found.words


def test_of_many_days_the_last_are_shown_and_a_store_signed_by_others_is_refused(tmp_path):
    raw = Publisher().campaign()
    first = opened(raw).period_at(NOW)
    reports = [(device, device, first + device % 60) for device in range(300)]
    made = store_of(tmp_path, raw, reports, now=NOW + 70 * DAY)
    assert "the last 31 days of 60" in check(page_of(made, now=NOW).html).words
    assert reason(page_of, made, periods="1..2", now=NOW) == "periods_absent"
    other = create_workspace(tmp_path / "work", name="w", now=NOW)
    assert reason(page_of, made, workspace=other, now=NOW) == "bad_signature"


def test_a_page_says_unverified_unless_it_was_verified_and_is_the_same_each_time(tmp_path):
    (tmp_path / "m.hsm").write_bytes(Publisher().model())
    (tmp_path / "root.hst").write_bytes(Publisher().root())
    store = store_of(tmp_path, Publisher().campaign(), [(device, device) for device in range(400)])
    for given, text in ((store, "400 reports"), (tmp_path / "m.hsm", "mushrooms")):
        html = page_of(given, now=NOW).html
        words = check(html).words
        assert (text in words, "UNVERIFIED" in words, html) == (True, True, page_of(given, now=NOW).html)
        assert "UNVERIFIED" not in check(page_of(given, trust=tmp_path / "root.hst", now=NOW).html).words


def test_the_command_writes_the_page_and_says_what_it_wrote(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW)
    monkeypatch.chdir(tmp_path)
    store_of(tmp_path, Publisher().campaign(), [(device, device) for device in range(40)])
    (tmp_path / "m.hsm").write_bytes(Publisher().model())
    (tmp_path / "root.hst").write_bytes(Publisher().root())
    said = told("report", "store", "--trust", "root.hst", "-o", "p.html")
    size = (tmp_path / "p.html").stat().st_size
    assert said == {"page": "p.html", "about": "store", "verified": True, "bytes": size}
    assert (tmp_path / "p.html").read_text() == page_of("store", trust="root.hst", now=NOW).html
    for line, why in (
        ("store -o p.html", "output_exists"),
        ("store m.hsm -o q.html", "not_reportable"),
        ("root.hst -o q.html", "not_reportable"),
    ):
        assert run("report", *line.split(), status=1).stderr.startswith(f"{why}: ")
    assert not (tmp_path / "q.html").exists()


# Hostile and very large inputs -----------------------------------------------------------------------


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS.keys())
def test_a_model_with_any_card_has_a_bounded_page_without_its_markup(tmp_path, card):
    (tmp_path / "m.hsm").write_bytes(model_of(Publisher().schema, card))
    assert "UNVERIFIED" in check(page_of(tmp_path / "m.hsm", now=NOW).html).words


@pytest.mark.parametrize(("features", "values", "classes"), [(300, 2, 3), (1, 2, 256)])
def test_a_page_of_a_large_schema_is_bounded_and_says_what_is_left_out(tmp_path, features, values, classes):
    (tmp_path / "m.hsm").write_bytes(model_of(wide(features, values, classes), CARDS["huge"]))
    found = check(page_of(tmp_path / "m.hsm", now=NOW).html)
    assert "left out" in found.words
    assert "hearsay export-model MODEL" in found.words


@pytest.mark.slow
def test_a_page_of_a_store_with_many_features_is_bounded(tmp_path):
    raw = Publisher(schema=wide(35, 4, 3)).campaign()
    campaign = opened(raw)
    made = stored(tmp_path, raw, batch(campaign, [report(campaign, device, device) for device in range(300)]), now=NOW)
    assert "left out" in check(page_of(made, now=NOW).html).words


def test_the_sizes_of_the_parts_add_up_to_less_than_a_page():
    parts = rendering.LARGEST_BYTES + (rendering.MOST_SECTIONS - 1) * rendering.SECTION_BYTES
    assert parts + 25_000 < rendering.PAGE_BYTES
    assert len(rendering._style()) < 15_000
