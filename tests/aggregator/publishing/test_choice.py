"""Mechanisms: what ``auto`` chooses on both sides of a border, and laws of counts beside drawn answers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from support.commands import run
from support.failures import reason
from support.mechanisms import inputs_of, made
from support.mixtures import mixed_payload
from support.publisher import NOW, Publisher
from support.reports import opened

from aggregator.operations.report_store import create_store
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.publishing.mechanisms.choice import AUTO, _noise_of_table, candidates, choose, mechanism_for
from aggregator.publishing.mechanisms.draws import _Drawn, _Unary, count_law
from edge_sdk import Device
from protocol import mechanisms
from protocol.documents.campaign import parse_campaign
from protocol.epsilon import exp_below
from protocol.features import Categorical, Numeric
from protocol.mechanisms import from_micro
from protocol.schema import Label, build_schema

MICRO = 1_000_000
LABEL = Label("label", ["e", "p"])


def sum_of_variances(mechanism):
    """By the exact distribution, over the values: the variance of an estimate is that of its bit over (p − q)²."""
    table = mechanism.distribution(0)
    chances = [sum(c for answer, c in table.items() if mechanism.supports(answer, i)) for i in range(mechanism.size)]
    return sum(chance * (1 - chance) for chance in chances) / (chances[0] - chances[1]) ** 2


@pytest.mark.parametrize("epsilon_micro", [1_000, 250_000, 500_000, MICRO, 1_500_000, 2 * MICRO, 4 * MICRO])
def test_auto_takes_what_needs_the_fewest_devices_and_of_nearly_equal_ones_the_older(epsilon_micro):
    """Never more than direct below 3e^ε + 2 values and oue beyond them, as it chose before ``subset``."""
    for size in (*range(2, 12), 20, 50, 130, 2000, 65536):
        chosen = mechanism_for(AUTO, epsilon_micro, size)
        made_all = [from_micro(name, epsilon_micro, size) for name in ("direct", "oue", "subset")]
        noise = [_noise_of_table(one) for one in made_all]
        assert chosen == next(one for one, own in zip(made_all, noise, strict=True) if own * 19 <= min(noise) * 20)
        before = made_all[size >= 3 * math.exp(epsilon_micro / MICRO) + 2]
        assert _noise_of_table(chosen) <= _noise_of_table(before)
        if size < 8:
            assert noise == [sum_of_variances(one) for one in made_all]
    assert mechanism_for(AUTO, 16 * MICRO, 65536).name == "direct"


@pytest.mark.parametrize("epsilon_micro", [1_000, 500_000, MICRO, 1_098_613, 2 * MICRO, 4 * MICRO])
def test_subset_has_the_best_number_of_ones(epsilon_micro):
    """Compared with every other number, by the sum of variances."""
    for size in (2, 3, 5, 8, 13, 24, 60):
        best = from_micro("subset", epsilon_micro, size)
        for ones in range(1, size):
            power = exp_below(epsilon_micro)
            p = int(2**32 * ones * power / (ones * power + size - ones))
            other = mechanisms.from_dict({**best.to_dict(), "w": ones, "p": p})
            assert _noise_of_table(best) <= _noise_of_table(other) * (1 + Fraction(1, 10**6))


def test_several_names_are_compared_and_numbers_are_not():
    assert mechanism_for("direct+oue", MICRO, 12).name == "oue"
    assert mechanism_for("direct+oue", MICRO, 8).name == "direct"
    assert mechanism_for("subset+hadamard", MICRO, 40).name == "subset"
    assert reason(mechanism_for, "direct+magic", MICRO, 6) == "mechanism_unknown"
    assert reason(mechanism_for, "direct+bit", MICRO, 1) == "size_invalid"
    assert reason(mechanism_for, "direct+she", MICRO, 6) == "mechanism_unknown"
    assert reason(mechanism_for, "direct+the", MICRO, 6, theta="0.5") == "option_unknown"


def test_a_named_mechanism_is_taken_as_named_and_what_can_not_be_chosen_is_refused():
    for name in ("direct", "oue", "sue", "the", "she"):
        assert mechanism_for(name, MICRO, 40).name == name
    assert mechanism_for("the", MICRO, 6, theta="0.5").to_dict()["theta_micro"] == 500_000
    assert reason(mechanism_for, "automatic", MICRO, 6) == "mechanism_unknown"
    assert reason(mechanism_for, AUTO, 0, 6) == "epsilon_invalid"
    assert reason(mechanism_for, AUTO, MICRO, 1) == "size_invalid"
    assert reason(mechanism_for, AUTO, MICRO, 6, theta="0.5") == "option_unknown"


# --- a campaign ---

SCHEMA = build_schema(
    LABEL,
    [Categorical("odor", [f"smell {n}" for n in range(12)]), Numeric("width", "0", "10", [0])],
)
PUBLISHER = Publisher(schema=SCHEMA)


def auto_campaign(schema=SCHEMA, **terms):
    return build_campaign(schema, CampaignParameters("auto", MICRO, **terms), 1, NOW)


def mixed():
    return mixed_payload(("direct", "oue", "direct"), publisher=PUBLISHER)


def test_a_campaign_mixes_the_mechanisms_its_questions_call_for():
    """The class has 2 values, odor and class 26, width and class 4; ``direct+oue`` takes no ``subset``."""
    campaign, same = (
        opened(PUBLISHER.sign("campaign", raw)) for raw in (auto_campaign(mechanism="direct+oue"), mixed())
    )
    assert [question.mechanism.name for question in campaign.questions] == ["direct", "oue", "direct"]
    assert [question.mechanism for question in campaign.questions] == [one.mechanism for one in same.questions]
    assert campaign.layout == (2, 4)
    schema = build_schema(LABEL, [Categorical("a", ["0", "1", "2"]), Numeric("w", "0", "1", [0])])
    for answers, expected in ((1, "subset"), (3, "subset")):
        campaign = parse_campaign(auto_campaign(schema, answers=answers))
        assert [question.size for question in campaign.questions] == [2, 8, 4]
        assert campaign.questions[1].mechanism.name == expected


@pytest.mark.parametrize("answers", [1, 3])
def test_devices_accept_it_and_their_reports_are_ingested(tmp_path, answers):
    raw = PUBLISHER.sign("campaign", auto_campaign(answers=answers))
    batches = []
    for number in range(60):
        with Device.open(None, trust=PUBLISHER.root(), clock=lambda: NOW) as device:
            campaign = device.enrol(raw)
            device.report(campaign.id, {"odor": f"smell {number % 12}", "width": number % 10}, label="ep"[number % 2])
            batches.append(tmp_path / f"{number}.hsr")
            assert device.drain(batches[-1]) == answers
    store = create_store(tmp_path / "store", raw)
    assert store.ingest(batches, now=NOW).rejected == {}
    report = store.tally_report()
    assert report.reports == 60 * answers
    assert report.rejected == {}
    if answers == 3:
        assert report.tally.n == (60, 60, 60)
        assert sum(report.tally.counts[0]) == 60  # one integer per answer


# --- numbers, by the variance ---


def numbers(count):
    return build_schema(LABEL, [Numeric(f"x{i}", "0", "1", [-30000, 0, 30000]) for i in range(count)])


def test_expected_variances_follow_the_formulas_and_noise_that_reports_can_not_hold_is_no_candidate():
    found = {(c.mechanism, c.approach): c for c in candidates(numbers(3), 1_000_000)}
    e = math.e
    one_bit = ((e + 1) / (e - 1)) ** 2 / 4
    assert found["bit", None].questions == 1 + 2 * 3 * 2
    assert found["bit", None].variance == pytest.approx(13 * one_bit, rel=1e-4)
    assert found["bits", None].variance == pytest.approx(7 * one_bit, rel=1e-4)
    assert found["laplace", 3].variance == pytest.approx(7 * 8 / 4, rel=1e-3)
    assert found["laplace", 1].variance == pytest.approx(3 * 2 * 36 / 4, rel=1e-3)
    assert found["duchi", None].questions == 3
    bits = found["bits", None]
    assert bits.standard_error(10_000) == pytest.approx(math.sqrt(bits.variance / 10_000))
    assert {c.family for c in found.values()} == {"gaussian"}, "a cell's variance is not comparable with a moment's"
    few, many = ({(c.mechanism, c.approach) for c in candidates(numbers(n), 1_000)} for n in (1, 60))
    assert few - many == {("laplace", 1)}
    assert ("laplace", 3) in many


@pytest.mark.parametrize("epsilon_micro", [100_000, 1_000_000, 8_000_000])
def test_mean_square_errors_about_the_worst_input_order_mechanisms_as_variances_do(epsilon_micro):
    order = [one.mechanism for one in candidates(numbers(1), epsilon_micro) if one.mechanism in ("bit", "piecewise")]
    errors = {}
    for name in order:
        mechanism = from_micro(name, epsilon_micro, 1)
        tables = ((x, mechanism.distribution(x).items()) for x in (-65536, 0, 65536))
        errors[name] = max(
            sum(float(chance) * (float(mechanism.estimate(answer)) - x) ** 2 for answer, chance in table)
            for x, table in tables
        )
    assert order == sorted(order, key=errors.__getitem__)


def test_only_what_is_left_open_is_chosen():
    schema = numbers(3)
    assert choose(schema, "discrete", "auto", None, 10**6) is None
    assert choose(schema, "gaussian", "bits", None, 10**6) is None
    assert choose(schema, "gaussian", "auto", None, 10**6) == candidates(schema, 10**6)[0]
    assert choose(schema, "gaussian", "auto", 1, 10**6)[1:3] == ("laplace", 1)
    categories = build_schema(LABEL, [Categorical("odor", ["x", "y", "z"])])
    assert reason(choose, categories, "gaussian", "auto", None, 10**6) == "no_numbers"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--family", "discrete", "--mechanism", "direct", "--approach", "1"], "approach_invalid"),
        (["--family", "gaussian", "--mechanism", "auto", "--approach", "2"], "approach_invalid"),
        (["--family", "gaussian", "--mechanism", "bit", "--theta", "0.3"], "option_unknown"),
        (["--family", "discrete", "--mechanism", "direct", "--devices", "100"], "devices_unused"),
        (["--family", "auto", "--mechanism", "bits", "--devices", "100"], "devices_unused"),
        (["--family", "gaussian", "--mechanism", "bits", "--split", "1:2:2", "--answers", "all"], "weights_invalid"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(tmp_path, arguments, reason):
    text = "".join(f"[[features]]\nname='x{i}'\nkind='numeric'\nlow=0\nhigh=1\nbins=4\n" for i in range(2))
    (tmp_path / "s.toml").write_text(f"name='n'\n[label]\nname='y'\nclasses=['a','b']\n{text}")
    run("init", tmp_path / "w", "--no-passphrase")
    common = ["campaign", tmp_path / "s.toml", "--workspace", tmp_path / "w", "--epsilon", "1"]
    refused = run(*common, "-o", tmp_path / "c.hsc", *arguments, status=1)
    assert refused.stderr.startswith(f"{reason}: ")
    assert not (tmp_path / "c.hsc").exists()


# Laws of counts ---------------------------------------------------------------------------------------


ANSWERS, CAMPAIGNS = 60, 800
DEVIATIONS = 5.5
"""A right law fails one comparison of a mean with probability 4e-8."""


def moments_of(law, rng):
    counts = np.array([law.counts(ANSWERS, rng) for _ in range(CAMPAIGNS)], float)
    return counts.mean(axis=0), counts.var(axis=0)


@pytest.mark.parametrize("name", mechanisms.names())
def test_counts_have_the_mean_and_variance_of_drawn_answers(name):
    mechanism = made(name, "2")
    inputs = np.array(inputs_of(mechanism))
    shares = np.linspace(1, 3, len(inputs))
    shares /= shares.sum()
    rng = np.random.default_rng(5)
    mean, variance = moments_of(count_law(mechanism, inputs, shares), rng)
    drawn_mean, drawn_variance = moments_of(_Drawn(mechanism, inputs, shares), rng)
    both = np.sqrt((variance + drawn_variance) / CAMPAIGNS)
    assert (np.abs(mean - drawn_mean) <= DEVIATIONS * both + 1e-9).all()
    seen = variance + drawn_variance > 1  # cells of piecewise have few answers each, and are compared in their sum
    if len(mean) > 100:
        np.testing.assert_allclose(variance.sum(), drawn_variance.sum(), rtol=0.06)
    else:
        np.testing.assert_allclose(variance[seen], drawn_variance[seen], rtol=0.35)


def covariances_of(mechanism, held):
    """The exact covariances of the bits of one answer of a random device."""
    rows = [(np.array(a), float(c) * own) for v, own in enumerate(held) for a, c in mechanism.distribution(v).items()]
    mean = sum(chance * row for row, chance in rows)
    return sum(chance * np.outer(row, row) for row, chance in rows) - np.outer(mean, mean)


def test_counts_of_subset_vary_together_as_its_answers_do_and_other_laws_are_seen():
    """A right law fails with probability below 1e-9 per entry, at seven standard deviations of a covariance."""
    mechanism, held = from_micro("subset", 500_000, 5), np.array([0.4, 0, 0.3, 0.2, 0.1])
    exact, sizes = covariances_of(mechanism, held), np.arange(5)

    def is_far(law, draws=1500, n=50):
        rng = np.random.default_rng(8)
        counts = np.array([law.counts(n, rng) for _ in range(draws)])
        assert set(counts.sum(axis=1)) == {n * mechanism.ones} or law is independent
        error = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / draws)
        return (abs(np.cov(counts.T) / n - exact) > 7 * error).any()

    independent = _Unary(held, float(mechanism.p), float(mechanism.q))
    assert not is_far(count_law(mechanism, sizes, held))
    assert is_far(independent)
    many = from_micro("subset", 500_000, 300)
    rng, even = np.random.default_rng(9), np.full(300, 1 / 300)
    drawn = np.array([count_law(many, np.arange(300), even).counts(1000, rng) for _ in range(100)])
    assert set(drawn.sum(axis=1)) == {1000 * many.ones}
    share = many.ones / 300
    assert drawn.var(axis=0).mean() == pytest.approx(1000 * share * (1 - share), rel=0.05)


def test_a_law_of_other_inputs_is_seen():
    mechanism = made("direct", "2")
    inputs = np.arange(3)
    rng = np.random.default_rng(5)
    mean, variance = moments_of(count_law(mechanism, inputs, np.array([0.5, 0.3, 0.2])), rng)
    other, _ = moments_of(_Drawn(mechanism, inputs, np.array([0.3, 0.5, 0.2])), rng)
    assert (np.abs(mean - other) > DEVIATIONS * np.sqrt(2 * variance / CAMPAIGNS)).any()
