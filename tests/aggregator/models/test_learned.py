"""``learned``: priors from all features together, votes of sums, and no confidence that noise does not allow."""

from dataclasses import replace

import numpy as np

from aggregator.estimates.source import Origin
from aggregator.estimates.sums import OF_SUMS, Curator, NoisySum, of_sums
from aggregator.models.fitting import fit
from aggregator.models.postprocess.learned import Normals, learned_normals, learned_weights
from aggregator.models.postprocess.methods import POSTPROCESSES
from aggregator.models.postprocess.posterior import Moments
from protocol.documents.campaign import DISCRETE, GAUSSIAN, Fit
from protocol.features import Categorical, Numeric
from protocol.questions import ONE_PER_CLASS, discrete_subjects, gaussian_subjects
from protocol.schema import Label, build_schema


def statistics_of(schema, sums, variance, records):
    """Statistics of sums with noise of this variance, one or one per subject; ``sums``: one list per subject."""
    family = GAUSSIAN if schema.numeric else DISCRETE
    subjects = gaussian_subjects(schema, ONE_PER_CLASS) if schema.numeric else discrete_subjects(schema)
    noisy = [
        NoisySum(subject, np.array(one, float), np.full(len(one), each), tuple(map(round, one)))
        for subject, one, each in zip(subjects, sums, np.broadcast_to(variance, len(sums)).tolist(), strict=True)
    ]
    source = Curator(Origin(bytes(32), "sums", "test"), records, tuple(one.released for one in noisy), {})
    return of_sums(noisy, schema, Fit(family, OF_SUMS, 100), source, is_counted=True)


def tables_of(tell, features, rng, sd=400.0, classes=2, records=4000):
    """Statistics of noisy tables whose log P(value | class) differ by ``tell`` between the classes, and the truth."""
    label = Label("y", [f"c{code}" for code in range(classes)])
    schema = build_schema(label, [Categorical(f"x{at}", list("abc"), substitute=0) for at in range(features)])
    logits = tell * rng.normal(size=(features, 3, classes))
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    exact = [np.full(classes, records / classes), *(truth * records / classes).reshape(features, -1)]
    sums = [each + rng.normal(0, sd, len(each)) for each in exact]
    return statistics_of(schema, sums, sd**2, records), truth


def apart(table):
    return float(np.abs(np.log(table[:, 0] / table[:, 1])).mean())


def test_what_one_table_tells_depends_on_all_other_tables():
    """The same noisy table is believed beside tables that tell, and hardly beside 60 that tell nothing."""
    rng = np.random.default_rng(4)
    telling, dull = tables_of(2.0, 60, rng)[0], tables_of(0.0, 60, rng)[0]
    first = telling.questions[1]
    beside_dull = replace(dull, questions=(dull.questions[0], first, *dull.questions[2:]))
    found = [POSTPROCESSES[OF_SUMS](each, range(60)).likelihood[0] for each in (telling, beside_dull)]
    assert apart(found[0]) > 1.5 * apart(found[1])


def test_learned_weights_are_the_most_probable_ones_of_the_mixture():
    """Against a grid over all weights of two priors, and with weights before that outweigh the evidence."""
    evidence = np.log(np.array([[4.0, 1.0], [3.0, 1.0], [1.0, 5.0], [6.0, 1.0]]))
    before, count = np.array([0.5, 0.5]), 2.0
    grid = np.linspace(0.001, 0.999, 999)[:, None]
    mixed = np.log(grid * np.exp(evidence[:, 0]) + (1 - grid) * np.exp(evidence[:, 1])).sum(axis=1)
    best = float(grid[(mixed + (np.log(grid) + np.log(1 - grid))[:, 0] * count / 2).argmax(), 0])
    own = learned_weights(evidence, before, count)
    odds = best * np.exp(evidence[:, 0])
    np.testing.assert_allclose(own[:, 0], odds / (odds + (1 - best) * np.exp(evidence[:, 1])), atol=2e-3)
    np.testing.assert_allclose(learned_weights(evidence, before, 1e9)[2], [1 / 6, 5 / 6], atol=1e-6)


def normals(first, second, variance):
    """Means and variances of F numbers in two classes of equal shares."""
    noise = np.full(first.shape, variance)
    return learned_normals(Moments(first, second, noise, noise, np.full(first.shape, 0.5)))


def test_numbers_without_noise_are_their_moments_and_hidden_ones_are_alike_in_all_classes():
    first, second = np.array([[0.1, -0.2], [0.05, 0.1]]), np.array([[0.1, 0.2], [0.05, 0.08]])
    exact = normals(first, second, 1e-10)
    mean = first / 0.5
    np.testing.assert_allclose(exact.mean, mean, atol=1e-3)
    np.testing.assert_allclose(exact.variance, second / 0.5 - mean**2, rtol=0.02)
    hidden: Normals = normals(first, second, 100.0)
    assert np.ptp(hidden.mean, axis=1).max() < 0.01
    assert np.ptp(np.log(hidden.variance), axis=1).max() < 0.01


def test_doubt_about_a_mean_widens_what_a_record_may_be():
    """The class of the noisier sum has the same variance of its records, and a wider law."""
    first, second = np.array([[0.1, -0.1]] * 8), np.array([[0.1, 0.1]] * 8)
    noise = np.tile([0.0, 0.01], (8, 1))
    found = learned_normals(Moments(first, second, noise, np.full((8, 2), 1e-9), np.full((8, 2), 0.5)))
    assert (found.variance[:, 1] > 1.05 * found.variance[:, 0]).all()


def test_sums_of_numbers_vote_for_the_classes_shares():
    """The class counts are noise; 30 numbers of mean 0.9 say that the first class has nine tenths of the records."""
    numbers = 30
    schema = build_schema(Label("y", ["n", "p"]), [Numeric(f"x{at}", "-1", "1", [0]) for at in range(numbers)])
    rng = np.random.default_rng(3)
    exact = [[500, 500], *[[810, 90]] * numbers, *[[738, 82]] * numbers]
    sums = [np.array(exact[0], float), *(np.array(one) + rng.normal(0, 60, 2) for one in exact[1:])]
    prior = np.exp(fit(statistics_of(schema, sums, [300.0**2, *[60.0**2] * 2 * numbers], 1000), OF_SUMS).log_prior)
    assert prior[0] > 0.85


def test_ten_classes_of_many_features_keep_what_floors_keep():
    """Twelve draws: at most a point below the better of the two older post-processings. The seed is fixed."""
    rng, right = np.random.default_rng(5), {name: [] for name in (OF_SUMS, "posterior", "floored")}
    for _ in range(12):
        found, truth = tables_of(1.0, 30, rng, sd=120.0, classes=10, records=4000)
        labels = np.repeat(np.arange(10), 60)
        ends = truth.cumsum(axis=1).transpose(2, 0, 1)[labels]
        codes = (rng.random((600, 30, 1)) > ends).sum(axis=2)
        codes = np.minimum(codes, 2)
        for name, seen in right.items():
            prior, terms = fit(found, name)
            score = prior + sum(term[codes[:, at]] for at, term in enumerate(terms))
            seen.append(float((score.argmax(axis=1) == labels).mean()))
    mean = {name: float(np.mean(seen)) for name, seen in right.items()}
    assert mean[OF_SUMS] > max(mean["posterior"], mean["floored"]) - 0.01
