"""``hearsay simulate --trust federated`` and ``distributed``: engines agree, noise and sums are those of real nodes."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

import numpy as np
import pytest
from support.commands import invoke, told
from support.publisher import Publisher
from support.reference import need_reference
from support.reports import opened
from support.two_features import people

from aggregator.common.tables import read_table
from aggregator.models.encoding import label_codes, observe
from aggregator.nodes.campaigns.campaigns import Masking, masked_terms
from aggregator.nodes.statistics.federation import federated
from aggregator.nodes.statistics.totals import Totals
from aggregator.publishing.models import publish_model
from benchmarks.federated.data import Data
from benchmarks.masked.data import masked_campaign
from edge_sdk.node.release import noisy_sums
from edge_sdk.node.sums import ExactSums
from protocol.documents.campaign import GAUSSIAN, Fit, build_payload, parse_campaign
from protocol.documents.envelope import SigningKey
from protocol.documents.masked_terms import DILUTED, DIVIDED, unfit_modulus
from protocol.documents.payload import Header
from protocol.features import Categorical, Numeric
from protocol.masked.noise import noise_of
from protocol.nodes.summary import build_summary, read_summary
from protocol.nodes.terms import NodeTerms, ranges, released_vectors
from protocol.schema import FROM_RECORD, Label, build_schema
from simulation import drawn as vector
from simulation import nodes as of_nodes
from simulation import simulate_campaign
from simulation.drawn import TotalNoise, noise_of_total, numbers_of_setup, total_statistics, totals
from simulation.local import records_of
from simulation.parties import made_up_dealer, made_up_modulus
from simulation.preparing import prepare
from simulation.settings import Settings

simulate = partial(invoke, "simulate", "--label", "label", "--trust", "federated")
result_of = partial(told, "simulate", "--label", "label", "--trust", "federated")


@pytest.mark.parametrize("engine", ["device", "vector"])
def test_both_engines_learn(records, engine):
    found = result_of(records, "--epsilon", 30, "--nodes", 5, "--engine", engine, "--seed", 1)
    assert found["accuracy"] > 0.85
    assert (found["trust"], found["nodes"], found["node_records"], found["summaries"]) == ("federated", 5, [86, 87], 5)
    assert (found["epsilon_total"], found["epsilon_change"], found["rejected"]) == (30, 60, {})
    assert found["postprocess"] == "learned"


def test_a_seed_fixes_everything_and_engines_have_the_same_test_people(records):
    options = ("--epsilon", 5, "--nodes", 3, "--seed", 4)
    first, second = (result_of(records, *options, "--engine", "device") for _ in range(2))
    assert first == second
    other = result_of(records, *options, "--engine", "vector")
    assert other["accuracy_nonprivate"] == first["accuracy_nonprivate"]


def test_more_nodes_at_one_epsilon_add_noise(records):
    swept = simulate(
        records, "--engine", "vector", "--sweep", "nodes=1,400", "--epsilon", 0.5, "--repeats", 4, "--seed", 1, "--json"
    )
    one, many = (point["accuracy"] for point in json.loads(swept.stdout)["points"])
    assert one > many + 0.1


@pytest.mark.parametrize("rule", ["trimmed-mean:0.2", "median", "krum:1"])
def test_robust_rules(records, rule):
    found = result_of(records, "--epsilon", 50, "--nodes", 8, "--robust", rule, "--engine", "vector", "--seed", 1)
    assert found["robust"] == rule
    assert found["accuracy"] > 0.8


def test_the_text_says_both_costs(records):
    shown = simulate(records, "--epsilon", 4, "--nodes", 7, "--engine", "vector", "--seed", 1).stdout
    assert "4 for adding or removing a record, 8 for changing one" in shown
    assert "7 of 61 to 62 records" in shown


def test_smooth_sensitivity_states_what_it_covers(records):
    options = ("--epsilon", 20, "--nodes", 2, "--sensitivity", "smooth", "--seed", 1)
    found = result_of(records, *options)
    assert (found["adjacency"], found["epsilon_change"], found["sensitivity"]) == ("change-features", 20, "smooth")
    assert "20 for changing the features of a record" in simulate(records, *options).stdout


def campaign_of(most=1000):
    """A campaign for nodes with a category, a number with a substitute and one that may be missing."""
    features = [
        Categorical("odor", ["n", "f"], substitute=0),
        Numeric("width", "0", "10", [0], substitute=0),
        Numeric("depth", "-1", "1", [0], substitute=None),
    ]
    publisher = Publisher(schema=build_schema(Label("label", ["e", "p"]), features))
    return opened(publisher.node_campaign(max_records=most, family=GAUSSIAN))


def test_the_vector_engine_has_the_exact_sums_of_real_nodes():
    campaign, frame = campaign_of(), people(101)
    depth = np.random.default_rng(3).normal(0, 0.6, 101)
    frame["depth"] = np.where(depth > 1, np.nan, depth)
    frame.loc[5:9, "odor"] = "?"
    frame.loc[3:4, "label"] = "unknown"
    owners = vector.deal(101, 4, np.random.default_rng(1))
    assert sorted(Counter(owners.tolist()).values()) == [25, 25, 25, 26]
    subjects = released_vectors(campaign)
    labels = label_codes(frame, campaign.schema.label, substitute=True)
    found = vector.exact_sums(subjects, observe(frame, campaign.schema), labels, owners, 4)
    for node in range(4):
        own = ExactSums(campaign.schema, subjects)
        part = frame[owners == node]
        own.add_all([{**record, "label": label} for record, label in records_of(part, "label")], FROM_RECORD)
        assert found[node].tolist() == list(own.totals)


def test_equal_numbers_give_equal_statistics_by_arrays_and_by_signed_summaries():
    campaign = campaign_of()
    sizes = sum(subject.size for subject in released_vectors(campaign))
    period = campaign.header.not_before // campaign.time_precision
    values = vector.released(np.full((5, sizes), 40, np.int64), campaign, np.random.default_rng(7))
    totals = Totals(campaign)
    for node, row in enumerate(values.tolist()):
        key = SigningKey.from_seed(bytes([node]) * 32)
        totals.add(read_summary(build_summary(campaign, key, period, row))[1])
    signed, arrays = federated(campaign, totals.total()), vector.statistics_of(values, campaign, period)
    assert arrays.statistics_id == signed.statistics_id
    for one, other in zip(arrays.questions, signed.questions, strict=True):
        assert one.estimate.tolist() == other.estimate.tolist()
        assert one.noise_variance.tolist() == other.noise_variance.tolist()


def test_what_nodes_send_is_in_its_public_range():
    campaign = campaign_of(most=1)
    subjects = released_vectors(campaign)
    exact = np.full((3, sum(subject.size for subject in subjects)), 1 << 50)
    found, start = vector.released(exact, campaign, np.random.default_rng(1)), 0
    for subject, (_, high) in zip(subjects, ranges(campaign), strict=True):
        assert (found[:, start : start + subject.size] == high).all()
        start += subject.size


def test_both_engines_have_noise_of_one_law():
    """Mean and mean size of the noise of every number, over 400 nodes of each engine: within 5 standard errors."""
    campaign = campaign_of()
    zeros = np.zeros((400, sum(subject.size for subject in released_vectors(campaign))), np.int64)
    noise = vector.released(zeros, campaign, np.random.default_rng(5))
    real = np.array(
        [noisy_sums(campaign, [0] * zeros.shape[1], 1_000_000, bytes([n % 256, n // 256]) * 16) for n in range(400)]
    )
    for place in range(zeros.shape[1]):
        spread = np.sqrt(noise[:, place].var() / 400 + real[:, place].var() / 400)
        assert abs(noise[:, place].mean() - real[:, place].mean()) < 5 * spread
        ratio = np.abs(noise[:, place]).mean() / np.abs(real[:, place]).mean()
        assert 0.7 < ratio < 1.43  # the standard error of its logarithm is 0.07


# Parties with masked sums ----------------------------------------------------------------------------


DRAWS = 40_000
FEW = build_schema(Label("label", ["n", "p"]), [Categorical("c", ["r", "g"], substitute=0)])
FALSE_ALARM = 5.5
"""Standard deviations: with 200 cells, a right sampler fails with probability below 200·4e-8 = 8e-6."""


simulate_parties = partial(invoke, "simulate", "--label", "label", "--trust", "distributed")
result_of_parties = partial(told, "simulate", "--label", "label", "--trust", "distributed")


def laplace(rate, reach):
    """P(k) of a whole copy for k = −reach … reach."""
    q = np.exp(-rate)
    return (1 - q) / (1 + q) * q ** np.abs(np.arange(-reach, reach + 1))


def of_total(law: TotalNoise, reach: int = 400):
    """P(k) of the noise of all parties: the product of the characteristic functions of every party's noise."""
    whole = np.fft.fft(np.fft.ifftshift(laplace(law.rate, reach)))
    if law.shape is not None:
        return np.fft.fftshift(np.fft.ifft(whole**law.shape).real)
    found = np.ones_like(whole)
    for count, beta in zip(law.parties, law.chances, strict=True):
        found = found * (1 - beta + beta * whole) ** count
    return np.fft.fftshift(np.fft.ifft(found).real)


def furthest(law, drawn, reach=400):
    """The largest distance of a cell's share from its probability, in standard deviations, over |k| ≤ 100."""
    expected = np.clip(of_total(law, reach), 1e-12, 1)
    counts = np.bincount(np.clip(drawn, -reach, reach) + reach, minlength=2 * reach + 1)
    cells = slice(reach - 100, reach + 101)
    spread = np.sqrt(DRAWS * expected * (1 - expected)) + 1
    return (np.abs(counts - DRAWS * expected) / spread)[cells].max()


def masked_of(kind, numbers):
    """A masked campaign on one category: two vectors, each with the rate 0.2; γ = ½."""
    delta = None if kind == DIVIDED else "0.0005"
    masking = Masking(made_up_dealer(), "0.5", sum(numbers.values()), noise=kind, delta=delta)
    masked = masked_terms(masking, NodeTerms("nodes", 10, 400_000), FEW, "discrete", 400_000)
    payload = build_payload(
        Header("masked", 1, 10, 10, 864_000), FEW, (), epsilon_micro=400_000, purpose="a test", contact="nobody",
        time_precision=86_400, min_batch_size=1, fit=Fit("discrete", "floored", None),
        nodes=NodeTerms("nodes", 10, 400_000), masked=masked,
    )  # fmt: skip
    return parse_campaign(payload)


@pytest.mark.parametrize("kind", [DIVIDED, DILUTED])
@pytest.mark.parametrize("numbers", [{40: 40}, {40: 30, 21: 10}])
def test_one_draw_has_the_law_of_the_noise_of_all_parties(kind, numbers):
    campaign = masked_of(kind, numbers)
    law = noise_of_total(campaign, numbers)[0]
    drawn = law.draw(DRAWS, np.random.default_rng(1))
    assert furthest(law, drawn) < FALSE_ALARM
    # A sampler that forgets a quarter of the parties is rejected.
    fewer = noise_of_total(campaign, {u: count * 3 // 4 for u, count in numbers.items()})[0]
    assert furthest(law, fewer.draw(DRAWS, np.random.default_rng(1))) > FALSE_ALARM
    # The parties' own laws add up to the same moments, and their chances are the same up to 2^-32.
    own = [(noise_of(campaign, u)[0], count) for u, count in numbers.items()]
    variance = sum(noise.variance * count for noise, count in own)
    assert law.variance == pytest.approx(variance)
    assert law.kurtosis == pytest.approx(sum(noise.fourth_cumulant * count for noise, count in own) / variance**2)
    assert law.copies == pytest.approx(float(sum(noise.copies * count for noise, count in own)))
    assert abs(drawn.var() / variance - 1) < 0.1


def test_all_honest_parties_together_add_one_whole_copy_of_divided_noise():
    """γ = ½: the 40 parties, of which 20 are honest, add two copies."""
    law = noise_of_total(masked_of(DIVIDED, {40: 40}), {40: 40})[0]
    one = law._replace(shape=law.shape / 2)
    assert law.shape == 2
    np.testing.assert_allclose(of_total(one), laplace(0.2, 400), atol=1e-12)


def test_the_dealer_s_numbers_and_modulus_are_those_of_a_setup():
    assert numbers_of_setup(5) == {5: 1, 4: 2, 3: 2}
    assert numbers_of_setup(6) == {6: 2, 5: 2, 4: 2}
    assert sum(count / u for u, count in numbers_of_setup(10_000).items()) == pytest.approx(2 * np.log(2), rel=1e-3)
    assert unfit_modulus(made_up_modulus()) == ""


@pytest.fixture(scope="module")
def car():
    need_reference()
    return Data.load("car")


@pytest.mark.parametrize("chosen", [(DIVIDED, None), (DILUTED, "1e-5")])
def test_statistics_state_the_variance_of_the_total_s_noise(car, chosen):
    """60 totals of 88 counts: the variance of 5,280 numbers has a relative standard error of 3 %; 5 are allowed."""
    campaign = masked_campaign(car, "1.4", 60, 1728, *chosen)
    exact = car.exact(campaign, np.arange(1728), 1, np.random.default_rng(1))[0]
    rng, numbers = np.random.default_rng(2), numbers_of_setup(60)
    drawn = np.array([totals(exact, campaign, numbers, rng) for _ in range(60)])
    found = total_statistics(drawn[0].tolist(), campaign, numbers, 20_000)
    stated = float(found.questions[0].noise_variance[0])
    assert abs(((drawn - exact) ** 2).mean() / stated - 1) < 0.15
    assert stated == pytest.approx(2 * sum(noise_of(campaign, u)[0].variance for u in range(31, 61)))
    assert {float(one) for question in found.questions for one in question.noise_variance} == {stated}


def test_the_noise_of_a_masked_total_does_not_grow_with_the_parties(records):
    few, many = (result_of_parties(records, "--epsilon", 3, "--nodes", nodes, "--engine", "vector", "--seed", 1)
                 for nodes in (10, 300))  # fmt: skip
    assert 1 < few["noise_copies"] < many["noise_copies"] < 2 * np.log(2)
    assert min(few["accuracy"], many["accuracy"]) > 0.85
    assert (many["nodes"], many["node_records"], many["messages"]) == (300, [1, 2], 300)


def test_the_result_names_cost_noise_and_ciphertexts(records):
    shares = ("--honest-share", "0.5", "--colluding-share", "0.25")
    noise = ("--noise", "diluted", "--delta", "1e-6")
    found = result_of_parties(
        records, "--epsilon", 6, "--nodes", 50, "--engine", "vector", "--repeats", 2, *noise, *shares
    )
    # Class, odor, sum and squares of the width: four counts of a record, of which a change moves two each.
    assert (found["trust"], found["queries"], found["ciphertexts"], found["unit"]) == ("distributed", 4, 1, "record")
    assert (found["epsilon_total"], found["epsilon_change"]) == (6, 12)
    assert (found["delta_total"], found["delta_change"]) == (1e-6, 2e-6)
    assert (found["noise"], found["honest_share"], found["colluding_share"]) == ("diluted", 0.5, 0.25)
    assert found["noise_copies"] == pytest.approx(2 * sum(1 - 2.5e-7 ** (1 / -(-u // 2)) for u in range(26, 51)))
    assert (found["postprocess"], found["engine"], found["messages"], found["trials"]) == ("learned", "vector", 100, 2)
    printed = simulate_parties(records, "--epsilon", 6, "--nodes", 50, "--engine", "vector").stdout
    assert "6, δ = 0 for adding or removing a record; 12, δ = 0 for changing it" in printed
    assert "divided, 1.37 whole copies in a total" in printed


def test_all_records_of_a_party_have_the_noise_of_their_number(records):
    options = ("--epsilon", 6, "--nodes", 40, "--engine", "vector", "--seed", 3)
    found = result_of_parties(records, *options, "--unit", "party")
    assert (found["unit"], found["node_records"]) == ("party", [10, 11])
    prepared = {unit: simulate_campaign(records, "label", epsilon=6, trust="distributed", nodes=40, engine="vector",
                                        unit=unit, repeats=4, seed=1).result["accuracy"]
                for unit in ("record", "party")}  # fmt: skip
    assert prepared["record"] > prepared["party"]


def test_a_sweep_compares_the_kinds_of_noise(records):
    found = result_of_parties(records, "--epsilon", 2, "--nodes", 100, "--engine", "vector", "--seed", 1,
                      "--sweep", "noise=divided,diluted", "--sweep", "unit=record,party")  # fmt: skip
    points = found["points"]
    assert [point["setting"] for point in points] == [
        {"noise": noise, "unit": unit} for noise in ("divided", "diluted") for unit in ("record", "party")
    ]
    assert [point["delta_total"] for point in points] == [0, 0, 1e-5, 1e-5]


def test_real_parties_and_a_dealer_learn_and_a_seed_repeats_them(records):
    options = ("--epsilon", 30, "--nodes", 4, "--seed", 1, "--test-share", "0.5")
    first, second = (result_of_parties(records, *options, "--noise", "diluted") for _ in range(2))
    assert first == second
    assert first["accuracy"] > 0.85
    assert (first["engine"], first["messages"], first["rejected"]) == ("device", 4, {})
    other = result_of_parties(records, *options, "--noise", "diluted", "--engine", "vector")
    same = set(first) - {"accuracy", "engine"}
    assert {key: other[key] for key in same} == {key: first[key] for key in same}


def test_without_noise_both_engines_have_the_exact_totals(monkeypatch):
    """At ε = 4000 all noise is 0, except with probability e^-900: what is decrypted are the sums of all records."""
    found, table = {}, people(90).drop(columns="width")

    def kept(_, statistics, *others, **named):
        found[engine] = statistics.source
        return publish_model(_, statistics, *others, **named)

    monkeypatch.setattr(of_nodes, "publish_model", kept)
    for engine in ("device", "vector"):
        simulate_campaign(table, "label", epsilon=4000, trust="distributed", nodes=3, engine=engine, seed=2)
    assert found["device"].card()["trust"] == "distributed"
    found = {engine: source.total.numbers for engine, source in found.items()}
    assert found["device"] == found["vector"]
    assert sum(found["device"][:2]) == 72  # 90 less a fifth for tests


def test_slow_engines_are_announced_before_they_run(records):
    given = Settings("1", trust="distributed", nodes=400)
    [text] = prepare(given, read_table(records), "label").warnings
    assert "computes 401 powers of 4224 bits in every trial, about 8 s, or 72 s without gmpy2" in text
    assert prepare(given._replace(engine="vector"), read_table(records), "label").warnings == ()
    assert prepare(given._replace(nodes=30), read_table(records), "label").warnings == ()
