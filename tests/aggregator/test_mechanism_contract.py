"""One contract for all mechanisms: parameters, privacy, description, answers, estimators, interval, draw, alarms.

Every test runs over the table and over the mechanisms of other packages (``support.mechanisms.EVERY``).
A right mechanism fails a comparison of samples with probability below
ALPHA per input, or at seven standard deviations of a normal law (3e-12 per coordinate); seeds are fixed.
The last tests show that broken mechanisms are seen.
"""

import re
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest
from support.binomial import seeds, violations
from support.failures import refusal
from support.mechanisms import (
    EVERY,
    as_answers,
    groups_of,
    has_whole_table,
    inputs_of,
    is_exact,
    kinds,
    made,
    sizes,
    sums_of,
    truth,
)
from vectors import runner

from aggregator.cards.alarms import alarms
from aggregator.cli.publishing.campaign import campaign
from aggregator.estimates.debias import Pairs, debias, marginal, noise_law, pairs_of, support_counts
from aggregator.estimates.intervals import count_interval, normal_interval
from aggregator.estimates.reports import estimate
from aggregator.publishing.mechanisms.completeness import missing_parts
from aggregator.publishing.mechanisms.draws import draw
from aggregator.reports.decoding.decode import decode_batches
from aggregator.reports.tally.profile import ProfileCounter
from aggregator.reports.tally.tally import count, settle
from benchmarks.guarantees import alarms as bench
from benchmarks.shared.made_batches import NOW, batch
from protocol import mechanisms
from protocol.batches.report import decode_answer, encode_answer, layout_for
from protocol.epsilon import exp_below, micro_epsilon
from protocol.mechanisms import BITS, SINGLE, FrequencyMechanism, ValueMechanism

ALPHA = Fraction(1, 10**9)
BY_DEVICE, BY_DRAW = 1000, 3000
DEVIATIONS = 7
SEED = bytes(range(32))

DOCUMENTS = Path(__file__).parents[2] / "docs"

every_mechanism = pytest.mark.parametrize("name", EVERY)
of_the_table = pytest.mark.parametrize("name", mechanisms.names())
of_values = pytest.mark.parametrize(
    "name", [name for name in kinds(ValueMechanism, EVERY) if has_whole_table(made(name))]
)


# Parameters -----------------------------------------------------------------------------------------


@every_mechanism
@pytest.mark.parametrize("epsilon", ["0.01", "1", "16"])
def test_a_document_says_all_there_is(name, epsilon):
    for size in sizes(name):
        mechanism = mechanisms.from_epsilon(name, epsilon, size)
        stated = mechanism.to_dict()
        assert stated["name"] == mechanism.name == name
        assert (stated["size"], stated["epsilon_micro"]) == (size, micro_epsilon(epsilon))
        assert all(type(value) is int for key, value in stated.items() if key != "name")
        assert set(mechanism.options()) == set(type(mechanism).option_names)
        for again in (
            mechanisms.from_dict(stated),
            mechanisms.from_micro(name, micro_epsilon(epsilon), size, **mechanism.options()),
        ):
            assert again == mechanism
            assert hash(again) == hash(mechanism)
        assert mechanism not in (mechanisms.from_epsilon(name, "2", size), stated)
        assert repr(mechanism).endswith(f"(epsilon={epsilon}, size={size})")
        assert mechanism.epsilon == float(epsilon)


@every_mechanism
def test_integers_that_are_missing_unknown_or_out_of_range_are_refused(name):
    stated = made(name).to_dict()
    own = set(stated) - {"name"}
    for key in own:
        assert refusal(mechanisms.from_dict, {k: v for k, v in stated.items() if k != key}) == "parameters_invalid"
        for wrong in (-1, 1 << 60, 1.0, True, "1", None):
            assert refusal(mechanisms.from_dict, {**stated, key: wrong}) in ("parameters_invalid", "size_invalid")
    assert refusal(mechanisms.from_dict, {**stated, "more": 1}) == "parameters_invalid"


@every_mechanism
def test_wrong_arguments_are_refused(name):
    for size in (0, -1, 1 << 17, 2.0):
        assert refusal(mechanisms.from_epsilon, name, 1, size) == "size_invalid"
    for epsilon in ("0", "-1", "nan", "16.000001", "0.0001"):
        assert refusal(mechanisms.from_epsilon, name, epsilon, sizes(name)[0]) == "epsilon_invalid"
    assert refusal(lambda: mechanisms.from_epsilon(name, 1, sizes(name)[0], unheard=1)) == "option_unknown"


# Privacy --------------------------------------------------------------------------------------------


@every_mechanism
@pytest.mark.parametrize("epsilon", ["0.1", "1", "2.5"])
def test_no_answer_tells_two_inputs_apart_by_more_than_is_said_and_some_answer_does_so_by_as_much(name, epsilon):
    mechanism = made(name, epsilon)
    loss = mechanism.privacy_loss()
    assert not loss.exceeds(micro_epsilon(epsilon))
    tables = [mechanism.distribution(value) for value in inputs_of(mechanism)]
    for table in tables:
        assert all(chance >= 0 for chance in table.values())
        assert (sum(table.values()) == 1) if is_exact(table) else (0 < table.mass < 1)
    if all(map(is_exact, tables)):
        assert all(table.keys() == tables[0].keys() for table in tables)
        bounds = [(min(chances), max(chances)) for chances in zip(*map(dict.values, same_order(tables)), strict=True)]
        assert max(most / least for least, most in bounds if most) == loss.ratio
        assert loss.ratio <= exp_below(micro_epsilon(epsilon))
    else:
        worst = max(one[answer] / other[answer] for one in tables for other in tables for answer in one.keys() & other)
        assert log(worst) <= float(loss) + 1e-12


def same_order(tables):
    return [{answer: table[answer] for answer in tables[0]} for table in tables]


@every_mechanism
def test_a_refusal_never_depends_on_randomness(name):
    mechanism = made(name)
    for wrong in (None, "1", 1.5, True, 1 << 40, -(1 << 40), (1 << 40,) * mechanism.size, (0,) * (mechanism.size + 1)):
        assert refusal(mechanism.perturb, wrong, b"no seed") == "value_out_of_domain"
        assert refusal(mechanism.distribution, wrong) == "value_out_of_domain"
    for seed in (bytes(31), bytes(33), "x" * 32, None):
        assert refusal(mechanism.perturb, inputs_of(mechanism)[0], seed) == "seed_invalid"


# Answers --------------------------------------------------------------------------------------------


@every_mechanism
def test_an_answer_follows_from_input_and_seed_and_fits_its_report(name):
    mechanism = made(name)
    layout = layout_for([mechanism])
    assert layout.kind == mechanism.layout
    for value in inputs_of(mechanism):
        answer = mechanism.perturb(value, SEED)
        assert mechanism.perturb(value, SEED) == answer
        field = encode_answer(mechanism, answer, layout)
        assert len(field) == layout.answer_bytes
        assert decode_answer(mechanism, field, layout) == answer
        if mechanism.layout == SINGLE:
            assert 0 <= answer < mechanism.answers
        else:
            least, most = (0, 1) if mechanism.layout == BITS else mechanism.bounds
            assert len(answer) == mechanism.answers
            assert all(type(part) is int and least <= part <= most for part in answer)


def all_answers(mechanism):
    """Every answer that the layout can hold, or the integers of the widest table."""
    if mechanism.layout == SINGLE:
        return list(range(mechanism.answers))
    return list(product((0, 1), repeat=mechanism.answers))


def impossible(mechanism, answers):
    array = np.array(answers, np.int64)
    found = mechanism.impossible(array)
    if found is None:
        return [False] * len(answers)
    assert found.shape == (len(answers),)
    assert found.dtype == bool
    assert mechanism.impossible(array[:0]) is not None, "None is said for every number of answers, or for none"
    return found.tolist()


@pytest.mark.parametrize("name", [name for name in EVERY if has_whole_table(made(name))])
def test_the_aggregator_refuses_exactly_the_answers_that_no_device_gives(name):
    for size in sizes(name, 5):
        mechanism = mechanisms.from_epsilon(name, "1", size)
        given = {answer for value in inputs_of(mechanism) for answer in mechanism.distribution(value)}
        answers = all_answers(mechanism)
        assert impossible(mechanism, answers) == [answer not in given for answer in answers]


@every_mechanism
def test_no_answer_of_a_device_or_of_a_draw_is_refused(name):
    mechanism = made(name)
    for value in inputs_of(mechanism):
        device = [mechanism.perturb(value, seed) for seed in seeds(f"possible/{name}/{value}", 200)]
        drawn = as_answers(mechanism, draw(mechanism, np.array([value] * 200, np.int64), np.random.default_rng(6)))
        assert not any(impossible(mechanism, device + drawn))


@pytest.mark.parametrize("name", [name for name in EVERY if mechanisms.kind(name).layout == BITS])
def test_the_law_of_set_bits_is_that_of_every_input_or_there_is_none(name):
    mechanism = made(name)
    laws = []
    for value in inputs_of(mechanism):
        law = Counter()
        for answer, chance in mechanism.distribution(value).items():
            law[sum(answer)] += chance
        laws.append([float(law[ones]) for ones in range(mechanism.answers + 1)])
    stated = mechanism.set_bits_law()
    if stated is None:
        assert any(law != laws[0] for law in laws), "the law is the same for every input, so that alarms can use it"
    else:
        for law in laws:
            assert law == pytest.approx(list(stated), abs=1e-12)


def check_samples(mechanism, value, sampled, purpose):
    table = mechanism.distribution(value)
    if len(table) > 200:  # thousands of cells: as 64 groups of neighbours
        groups = len(table) // 64
        gathered = {}
        for answer, chance in table.items():
            gathered[answer // groups] = gathered.get(answer // groups, 0) + chance
        table, sampled = gathered, [answer // groups for answer in sampled]
    found = iter(sampled)
    wrong = violations(
        lambda _seed: next(found), table, lambda answer: [answer], purpose=purpose, n=len(sampled), alpha=ALPHA
    )
    assert wrong == []


def check_estimates(mechanism, value, sampled):
    """Refuse samples whose estimate is not the input's, within seven standard deviations."""
    n = len(sampled)
    found = debias(mechanism, n, support_counts(mechanism, sums_of(mechanism, sampled)))
    for mean, variance, true in zip(found.estimate, found.noise_variance, truth(mechanism, value), strict=True):
        assert abs(mean - n * true) <= DEVIATIONS * sqrt(variance) + 1e-3


def check(mechanism, sample):
    """Compare the answers of ``sample(value)`` with the exact distribution, if there is one, and with the estimator."""
    for value in inputs_of(mechanism):
        sampled = sample(value)
        if is_exact(mechanism.distribution(value)):
            check_samples(mechanism, value, sampled, mechanism.name)
        check_estimates(mechanism, value, sampled)


def check_device(mechanism, perturb):
    name = mechanism.name
    check(mechanism, lambda value: [perturb(value, seed) for seed in seeds(f"contract/{name}/{value}", BY_DEVICE)])


def check_draw(mechanism, draw_all):
    rng = np.random.default_rng(3)
    check(
        mechanism, lambda value: as_answers(mechanism, draw_all(mechanism, np.array([value] * BY_DRAW, np.int64), rng))
    )


@every_mechanism
def test_a_device_answers_by_the_stated_distribution_and_so_does_the_vectorised_draw(name):
    check_device(made(name), made(name).perturb)
    check_draw(made(name), draw)


@every_mechanism
def test_a_draw_spreads_as_a_device_does(name):
    """Second moments: mechanisms whose distributions have no whole table are held by nothing else here."""
    mechanism, value = made(name), inputs_of(made(name))[0]
    device = [mechanism.perturb(value, seed) for seed in seeds(f"spread/{name}", BY_DEVICE)]
    drawn = as_answers(mechanism, draw(mechanism, np.array([value] * BY_DRAW, np.int64), np.random.default_rng(4)))
    one, other = (np.array(part, float).reshape(len(part), -1) for part in (device, drawn))
    for mine, theirs in zip(one.T, other.T, strict=True):
        fourth = ((theirs - theirs.mean()) ** 4).mean() - theirs.var() ** 2
        of_means = DEVIATIONS**2 * theirs.var() / BY_DEVICE
        most = DEVIATIONS * sqrt(fourth * (1 / BY_DEVICE + 1 / BY_DRAW)) + of_means
        assert abs(mine.var() - theirs.var()) <= most


# Estimates ------------------------------------------------------------------------------------------


@every_mechanism
@pytest.mark.parametrize("epsilon", ["0.5", "3"])
def test_the_estimator_is_unbiased_by_the_exact_distribution(name, epsilon):
    mechanism = made(name, epsilon)
    for value in inputs_of(mechanism):
        table = mechanism.distribution(value)
        if not is_exact(table):
            continue  # held by check_estimates
        sums = [0.0] * mechanism.answers
        for answer, chance in table.items():
            for place, part in enumerate(answer) if mechanism.layout == BITS else ((answer, 1),):
                sums[place] += float(chance) * part
        mean = debias(mechanism, 1, support_counts(mechanism, sums)).estimate
        assert mean.tolist() == pytest.approx(truth(mechanism, value), abs=1e-6)


@every_mechanism
def test_nothing_is_known_from_no_answers(name):
    mechanism = made(name)
    found = debias(mechanism, 0, support_counts(mechanism, [0] * mechanism.answers))
    assert not found.estimate.any()
    assert np.isposinf(found.noise_variance).all()


def covered(mechanism, repeats=150, n=400):
    """How many intervals, and how many half as wide, hold the mean of a population that all inputs are drawn from."""
    rng = np.random.default_rng(5)
    inputs = inputs_of(mechanism)
    truths = np.array([truth(mechanism, value) for value in inputs])
    held = np.zeros(2, int)
    for _ in range(repeats):
        who = rng.integers(0, len(inputs), n)
        answers = as_answers(mechanism, draw(mechanism, np.array([inputs[i] for i in who], np.int64), rng))
        found = debias(mechanism, n, support_counts(mechanism, sums_of(mechanism, answers)))
        ends = count_interval(mechanism, n, found.estimate)
        if ends is None:
            sampling = 0 if found.holds_sampling else n * truths.var(axis=0)
            ends = normal_interval(found.estimate, np.sqrt(found.noise_variance + sampling))
        middle, half = (ends.low + ends.high)[0] / 2, (ends.high - ends.low)[0] / 2
        held += abs(middle - n * truths.mean(axis=0)[0]) <= half * np.array([1, 0.5])
    return held.tolist()


@every_mechanism
def test_an_interval_holds_the_truth_nineteen_times_in_twenty_and_half_of_it_does_not(name):
    """Of 150 intervals that hold it with probability 0.93, fewer than 124 do with probability below 1e-5."""
    whole, half = covered(made(name))
    assert half < 124 <= whole


@lru_cache(maxsize=64)
def one_answer(name, size):
    """For each value the chances of all answers, and each answer's estimates of the shares of all values."""
    mechanism = mechanisms.from_epsilon(name, "0.7", size)
    chances, estimates = [], None
    for value in range(size):
        table = mechanism.distribution(value)
        if estimates is None:
            answers = list(table)
            counts = [support_counts(mechanism, sums_of(mechanism, [answer])) for answer in answers]
            estimates = np.array([debias(mechanism, 1, each).estimate for each in counts])
        chances.append([float(table[answer]) for answer in answers])
    return mechanism, counts, np.array(chances), estimates


def covariance(chances, one, other):
    return chances @ (one * other) - (chances @ one) * (chances @ other)


@pytest.mark.parametrize("name", kinds(FrequencyMechanism, EVERY))
def test_p_and_q_are_the_chances_with_which_an_answer_supports_a_value(name):
    for size in sizes(name, 5):
        mechanism = mechanisms.from_epsilon(name, "0.7", size)
        for value in range(size):
            for other in range(size):
                table = mechanism.distribution(value).items()
                chance = sum(chance for answer, chance in table if mechanism.supports(answer, other))
                assert chance == (mechanism.p if other == value else mechanism.q)
        if mechanism.layout == BITS:
            answers = list(mechanism.distribution(0))
            assert all(mechanism.supports(answer, i) == answer[i] for answer in answers for i in range(size))


@of_values
def test_the_noise_law_is_that_of_the_exact_distribution(name):
    for size in sizes(name, 6):
        mechanism, _counts, chances, estimates = one_answer(name, size)
        law = noise_law(mechanism)
        for value in range(size):
            for other in range(size):
                exact = covariance(chances[value], estimates[:, other], estimates[:, other])
                assert exact == pytest.approx(law.at_one if value == other else law.at_zero, rel=1e-9)


def check_pairs(name, stated):
    for size in sizes(name, 6):
        mechanism, _counts, chances, estimates = one_answer(name, size)
        pairs = stated(mechanism)
        for value, one, other in product(range(size), repeat=3):
            if one < other and pairs is not None:
                exact = covariance(chances[value], estimates[:, one], estimates[:, other])
                assert exact == pytest.approx(pairs.at_one if value in (one, other) else pairs.at_zero, abs=1e-9)


def check_marginal(name, stated):
    """Estimates of groups are unbiased; their variance is the law, or at most the law if there are no covariances."""
    for size in sizes(name, 6):
        mechanism, counts, chances, _estimates = one_answer(name, size)
        for groups in groups_of(mechanism):
            found = [stated(mechanism, 1, each, groups) for each in counts]
            estimates, law = np.array([each.estimate for each in found]), found[0].law
            for value, group in product(range(size), range(groups)):
                mine = value % groups == group
                assert chances[value] @ estimates[:, group] == pytest.approx(float(mine), abs=1e-6)
                exact = covariance(chances[value], estimates[:, group], estimates[:, group])
                limit = law.at_one if mine else law.at_zero
                if groups == 1:
                    assert exact <= limit + 1e-9
                elif pairs_of(mechanism) is None:
                    assert limit / 2 <= exact <= limit * (1 + 1e-9)
                else:
                    assert exact == pytest.approx(limit, rel=1e-6)


# Reports --------------------------------------------------------------------------------------------


def reports_of(name, lies=None):
    """Reports about twelve values of a feature and a class through real bytes: the campaign and its rows."""
    own = bench.campaign_of(bench.Setting(name, "1", (4, 4, 6)))
    rng = np.random.default_rng(7)
    rows = bench.honest_rows(own, 20_000, rng)
    if lies:
        bench.lie(own, rows, lies, rng)
    return own, rows


@pytest.mark.parametrize("name", kinds(ValueMechanism, EVERY))
def test_honest_reports_raise_no_alarm(name):
    """A right mechanism fails with probability below LEVEL, 0.6 %; the seed is fixed."""
    assert bench.alarms_of(*reports_of(name)).raised == ()


def refused_and_alarms(own, rows):
    decoded = decode_batches(batch(own, rows), own, now=NOW)
    records = settle(decoded.records).records
    counter = ProfileCounter(own)
    counter.add(records)
    tally = count(own, records)
    return dict(decoded.rejected), alarms(own, tally, estimate(own, tally), counter.profile()).raised


@pytest.mark.parametrize("name", kinds(FrequencyMechanism, EVERY))
def test_one_set_bit_is_refused_where_no_device_gives_it_and_raises_an_alarm_where_few_do(name):
    """One report in a hundred speaks for one value alone. Of single values every answer does so."""
    is_row = made(name).layout == BITS
    own, rows = reports_of(name, "one bit" if is_row else "choose")
    rejected, raised = refused_and_alarms(own, rows)
    if is_row and impossible(own.questions[1].mechanism, [(1,) + (0,) * 7])[0]:
        assert rejected.keys() == {"value_out_of_domain"}
        assert rejected["value_out_of_domain"] > 100, "of 200; the question about the class may be another"
        assert raised == ()
    else:
        assert rejected == {}
        assert raised or not is_row


# Words ----------------------------------------------------------------------------------------------


@every_mechanism
def test_nothing_is_missing_and_each_size_and_mechanism_has_its_own_description(name):
    mechanism = made(name)
    assert missing_parts(mechanism) == []
    assert not mechanism.describe().endswith(".")
    described = {made(other).describe() for other in EVERY}
    assert len(described) == len(EVERY)


@of_the_table
def test_help_pages_and_vectors_have_it(name):
    assert re.search(rf"\b{name}\b", campaign.help)
    own = set(made(name).to_dict()) - {"name", "size", "epsilon_micro"}
    formats = (DOCUMENTS / "formats.md").read_text("utf-8")
    rows = [line for line in formats.splitlines() if re.match(rf"\| [^|]*`{name}`[^|]*\|", line)]
    stated = [set(re.findall(r"`(\w+)`", line.split("|")[2])) for line in rows]
    assert any(own <= each for each in stated), f"docs/formats.md, section 5, lacks integers of {name}"
    mathematics = (DOCUMENTS / "math.md").read_text("utf-8")
    headings = re.findall(r"^###? (.*)$", mathematics, re.MULTILINE)
    assert any(f"`{name}`" in heading for heading in headings), f"docs/math.md has no section on {name}"

    kinds = {case["kind"] for _, case in runner.load_all() if case.get("mechanism") == name}
    assert any(kind.startswith("parameters") for kind in kinds), f"tests/vectors has no parameters of {name}"
    assert any(kind.startswith(("perturb", "accumulated")) for kind in kinds), f"tests/vectors has no answers of {name}"


# Broken mechanisms are seen -------------------------------------------------------------------------


def truthful(mechanism):
    """A device that gives the likeliest answer of its value a quarter of the time."""
    likeliest = {}
    for value in inputs_of(mechanism):
        table = mechanism.distribution(value)
        likeliest[value] = max(table, key=table.get)
    return lambda value, seed: likeliest[value] if seed[0] < 64 else mechanism.perturb(value, seed)


def constant(mechanism, inputs, rng):
    return np.repeat(draw(mechanism, inputs[:1], rng), len(inputs), axis=0)


@of_values
def test_estimates_of_groups_are_unbiased_and_vary_by_their_law_and_wrong_ones_are_seen(name):
    """Wrong: twice the sum of a group, or the law of single values."""
    check_marginal(name, marginal)

    def twice(mechanism, n, counts, groups):
        right = marginal(mechanism, n, counts, groups)
        return right._replace(estimate=2 * right.estimate)

    def of_single_values(mechanism, n, counts, groups):
        return marginal(mechanism, n, counts, groups)._replace(law=noise_law(mechanism))

    for wrong in (twice, of_single_values):
        with pytest.raises(AssertionError):
            check_marginal(name, wrong)


@of_values
def test_the_covariances_are_those_of_the_exact_distribution_and_wrong_ones_are_seen(name):
    check_pairs(name, pairs_of)
    pairs = pairs_of(made(name)) or Pairs(0.0, 0.0)
    for wrong in (pairs._replace(at_zero=pairs.at_zero + 0.1), pairs._replace(at_one=pairs.at_one + 0.1)):
        with pytest.raises(AssertionError):
            check_pairs(name, lambda _mechanism, wrong=wrong: wrong)


@pytest.mark.parametrize("name", [name for name in EVERY if has_whole_table(made(name))])
def test_a_device_that_prefers_the_truth_is_seen(name):
    mechanism = made(name)
    with pytest.raises(AssertionError):
        check_device(mechanism, truthful(mechanism))


@every_mechanism
def test_a_draw_without_noise_and_an_input_that_is_moved_are_seen(name):
    mechanism = made(name)
    with pytest.raises(AssertionError):
        check_draw(mechanism, constant)
    values = inputs_of(mechanism)
    moved = {value: values[(place + 1) % len(values)] for place, value in enumerate(values)}
    with pytest.raises(AssertionError):
        check_device(mechanism, lambda value, seed: mechanism.perturb(moved[value], seed))
