"""One contract for all mechanisms: parameters, privacy, description, answers, estimator, interval, draw.

Every test runs over ``mechanisms.names()``. A right mechanism fails a comparison of samples with probability below
ALPHA per input, or at seven standard deviations of a normal law (3e-12 per coordinate); seeds are fixed.
The last tests show that broken mechanisms are seen.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import log, sqrt

import numpy as np
import pytest
from support.binomial import seeds, violations
from support.mechanisms import as_answers, has_whole_table, inputs_of, is_exact, made, sizes, sums_of, truth
from vectors import runner

from aggregator.cli.documents.campaign import campaign
from aggregator.estimates.debias import debias
from aggregator.estimates.intervals import count_interval, normal_interval
from aggregator.planning.completeness import missing_parts
from aggregator.planning.draws import draw
from protocol import mechanisms
from protocol.batches.report import decode_answer, encode_answer, layout_for
from protocol.epsilon import exp_below, micro_epsilon
from protocol.errors import HearsayError
from protocol.mechanisms import BITS, SINGLE

ALPHA = Fraction(1, 10**9)
BY_DEVICE, BY_DRAW = 2000, 6000
DEVIATIONS = 7
SEED = bytes(range(32))


every_mechanism = pytest.mark.parametrize("name", mechanisms.names())


def reason(call, *arguments):
    with pytest.raises(HearsayError) as caught:
        call(*arguments)
    return caught.value.reason


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
        assert mechanism != mechanisms.from_epsilon(name, "2", size)


@every_mechanism
def test_integers_that_are_missing_unknown_or_out_of_range_are_refused(name):
    stated = made(name).to_dict()
    own = set(stated) - {"name"}
    for key in own:
        assert reason(mechanisms.from_dict, {k: v for k, v in stated.items() if k != key}) == "parameters_invalid"
        for wrong in (-1, 1 << 60, 1.0, True, "1", None):
            assert reason(mechanisms.from_dict, {**stated, key: wrong}) in ("parameters_invalid", "size_invalid")
    assert reason(mechanisms.from_dict, {**stated, "more": 1}) == "parameters_invalid"


@every_mechanism
def test_wrong_arguments_are_refused(name):
    for size in (0, -1, 1 << 17, 2.0):
        assert reason(mechanisms.from_epsilon, name, 1, size) == "size_invalid"
    for epsilon in ("0", "-1", "nan", "16.000001", "0.0001"):
        assert reason(mechanisms.from_epsilon, name, epsilon, sizes(name)[0]) == "epsilon_invalid"
    assert reason(lambda: mechanisms.from_epsilon(name, 1, sizes(name)[0], unheard=1)) == "option_unknown"


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
        assert reason(mechanism.perturb, wrong, b"no seed") == "value_out_of_domain"
        assert reason(mechanism.distribution, wrong) == "value_out_of_domain"
    for seed in (bytes(31), bytes(33), "x" * 32, None):
        assert reason(mechanism.perturb, inputs_of(mechanism)[0], seed) == "seed_invalid"


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


def check_samples(mechanism, value, sampled, purpose):
    """Refuse samples that do not follow the exact distribution."""
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
    found = debias(mechanism, n, sums_of(mechanism, sampled))
    for estimate, variance, true in zip(found.estimate, found.noise_variance, truth(mechanism, value), strict=True):
        assert abs(estimate - n * true) <= DEVIATIONS * sqrt(variance) + 1e-3


def check_device(mechanism, perturb):
    """Compare the answers of ``perturb`` with the exact distribution, if there is one, and with the estimator."""
    for value in inputs_of(mechanism):
        sampled = [perturb(value, seed) for seed in seeds(f"contract/{mechanism.name}/{value}", BY_DEVICE)]
        if is_exact(mechanism.distribution(value)):
            check_samples(mechanism, value, sampled, mechanism.name)
        check_estimates(mechanism, value, sampled)


def check_draw(mechanism, draw_all):
    """The same for a vectorised draw."""
    rng = np.random.default_rng(3)
    for value in inputs_of(mechanism):
        sampled = as_answers(mechanism, draw_all(mechanism, np.array([value] * BY_DRAW, np.int64), rng))
        if is_exact(mechanism.distribution(value)):
            check_samples(mechanism, value, sampled, mechanism.name)
        check_estimates(mechanism, value, sampled)


@every_mechanism
def test_a_device_answers_by_the_stated_distribution(name):
    mechanism = made(name)
    check_device(mechanism, mechanism.perturb)


@every_mechanism
def test_the_vectorised_draw_follows_the_same_distribution(name):
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
        mean = debias(mechanism, 1, sums).estimate
        assert mean.tolist() == pytest.approx(truth(mechanism, value), abs=1e-6)


@every_mechanism
def test_nothing_is_known_from_no_answers(name):
    mechanism = made(name)
    shape = mechanism.answers
    found = debias(mechanism, 0, [0] * shape)
    assert not found.estimate.any()
    assert np.isposinf(found.noise_variance).all()


def covered(mechanism, repeats=300, n=400):
    """How many intervals, and how many half as wide, hold the mean of a population that all inputs are drawn from."""
    rng = np.random.default_rng(5)
    inputs = inputs_of(mechanism)
    truths = np.array([truth(mechanism, value) for value in inputs])
    held = np.zeros(2, int)
    for _ in range(repeats):
        who = rng.integers(0, len(inputs), n)
        answers = as_answers(mechanism, draw(mechanism, np.array([inputs[i] for i in who], np.int64), rng))
        found = debias(mechanism, n, sums_of(mechanism, answers))
        ends = count_interval(mechanism, n, found.estimate)
        if ends is None:
            sampling = 0 if found.holds_sampling else n * truths.var(axis=0)
            ends = normal_interval(found.estimate, np.sqrt(found.noise_variance + sampling))
        middle, half = (ends.low + ends.high)[0] / 2, (ends.high - ends.low)[0] / 2
        held += abs(middle - n * truths.mean(axis=0)[0]) <= half * np.array([1, 0.5])
    return held.tolist()


@every_mechanism
def test_an_interval_holds_the_truth_nineteen_times_in_twenty_and_half_of_it_does_not(name):
    """Of 300 intervals that hold it with probability 0.93, fewer than 258 do with probability below 1e-5."""
    whole, half = covered(made(name))
    assert half < 258 <= whole


# Words ----------------------------------------------------------------------------------------------


@every_mechanism
def test_nothing_is_missing_and_each_size_and_mechanism_has_its_own_description(name):
    mechanism = made(name)
    assert missing_parts(mechanism) == []
    assert not mechanism.describe().endswith(".")
    described = {made(other).describe() for other in mechanisms.names()}
    assert len(described) == len(mechanisms.names())


@every_mechanism
def test_the_help_of_the_command_names_it(name):
    assert re.search(rf"\b{name}\b", campaign.help)


@every_mechanism
def test_vectors_hold_its_parameters_and_its_answers(name):
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


@pytest.mark.parametrize("name", [name for name in mechanisms.names() if has_whole_table(made(name))])
def test_a_device_that_prefers_the_truth_is_seen(name):
    """The likeliest answer of the others is the middle of their noise: less spread, which the next test is about."""
    mechanism = made(name)
    with pytest.raises(AssertionError):
        check_device(mechanism, truthful(mechanism))


@every_mechanism
def test_a_draw_without_noise_is_seen(name):
    with pytest.raises(AssertionError):
        check_draw(made(name), constant)


@every_mechanism
def test_an_input_that_is_moved_is_seen(name):
    mechanism = made(name)
    values = inputs_of(mechanism)
    moved = {value: values[(place + 1) % len(values)] for place, value in enumerate(values)}
    with pytest.raises(AssertionError):
        check_device(mechanism, lambda value, seed: mechanism.perturb(moved[value], seed))
