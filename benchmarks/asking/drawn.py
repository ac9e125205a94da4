"""The series of ``hearsay refine`` on counts that are drawn from their law: no reports, files or signatures.

The decisions, estimates and fits are the aggregator's own. A trial takes a fifth of the time of a series through report
files, which ``designs.py`` runs without ``--drawn``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import exp

import numpy as np

from aggregator.common.arrays import Integers
from aggregator.estimates.reports import estimate
from aggregator.models.postprocess.joint_tables import Tables
from aggregator.models.postprocess.posterior import posterior_tables
from aggregator.planning.feature_selection import steps
from aggregator.planning.feature_selection.candidates import Measurement
from aggregator.publishing.campaigns import CampaignParameters
from aggregator.publishing.mechanisms.draws import count_law
from aggregator.reports.tally.tally import Tally
from benchmarks.models.estimators import LABEL, Data
from benchmarks.shared.fleets import campaign_of
from protocol.epsilon import MICRO
from protocol.features import Categorical
from protocol.schema import Label, build_schema


class DrawnFleet:
    """A fleet whose answers are only counted.

    Args:
        people: shape (people,) int64, indices of the records on the devices.
        fleet: devices and ε.
    """

    def __init__(self, data: Data, people: Integers, fleet: steps.SeriesFleet, rng: np.random.Generator) -> None:
        self.features, self.classes = data.codes.shape[1], len(data.schema.label.classes)
        self._codes, self._labels = data.codes[people], data.labels[people]
        self._fleet, self._rng = fleet, rng
        parameters = CampaignParameters("drawn", fleet.epsilon_micro, "auto", class_question=False)
        self._campaign = campaign_of(data.schema, parameters)
        classes, shares = len(data.schema.label.classes), np.full(len(people), 1 / len(people))
        self._laws = [
            count_law(question.mechanism, self._codes[:, place] * classes + self._labels, shares)
            for place, question in enumerate(self._campaign.questions)
        ]
        self.answers = [0] * self.features
        self._counts = [np.zeros(question.size, np.int64) for question in self._campaign.questions]

    def ask(self, asked: steps.FeatureCampaign) -> None:
        """Let the campaign's share of the devices answer about its features."""
        weights = np.array(asked.weights or (1,) * len(asked.features), np.float64)
        numbers = self._rng.multinomial(round(asked.share.part * self._fleet.devices), weights / weights.sum())
        for feature, n in zip(asked.features, numbers.tolist(), strict=True):
            self.answers[feature] += n
            self._counts[feature] += self._laws[feature].counts(n, self._rng)

    def tables(self, summed: int | None = None) -> Tables:
        """Estimate P(class) and P(value | class) from all answers, for a model of ``summed`` features; None: all."""
        counts = tuple(tuple(each.tolist()) for each in self._counts)
        statistics = estimate(self._campaign, Tally(self._campaign.id, tuple(self.answers), counts))
        return posterior_tables(statistics, range(self.features), summed)

    def evaluate(self, step: steps.Step) -> steps.Evaluation:
        """Let a share of the devices tell, by randomised response, whether one candidate model is right.

        Candidates are made of the answers so far, since no campaign asks about features between evaluations.
        """
        assert step.share is not None
        keep = 1 / (1 + exp(-self._fleet.epsilon_micro / MICRO))
        n = round(step.share.part * self._fleet.devices / len(step.models))
        measured = {}
        made = {count: self.tables(count) for count in set(map(len, step.models))}
        for features in step.models:
            right = float((predicted(made[len(features)], features, self._codes) == self._labels).mean())
            said = self._rng.binomial(n, 1 - keep + (2 * keep - 1) * right) / n
            measured[features] = Measurement(n, (said - 1 + keep) / (2 * keep - 1))
        return steps.Evaluation(step.share, measured)


MADE = re.compile(r"(even|few|falling|weak|copies):([1-9][0-9]?):([1-9][0-9]{0,2})")
"""Name of a data set that is made up: its kind, number of classes k and number of features F, as ``few:10:64``."""
RECORDS = 20_000


def made_up(name: str) -> Data:
    """Return records of k classes with independent features of four values, the same for equal names (:data:`MADE`).

    P(value | class) is drawn from Dirichlet(a): the smaller a, the more a feature tells. ``even`` has a = 1.5 for all,
    ``weak`` a = 8, ``falling`` from 0.3 to 60; ``few`` has 0.3 for an eighth of the features, and the others tell
    nothing; in ``copies`` a sixth has a = 0.6, and the other features repeat this sixth in nine of ten records.
    """
    found = MADE.fullmatch(name)
    assert found is not None
    kind, classes, features = found[1], int(found[2]), int(found[3])
    rng = np.random.default_rng([1, *name.encode()])
    labels = rng.integers(0, classes, RECORDS)
    strong = max(4, features // (6 if kind == "copies" else 8))
    ways = {
        "even": [1.5] * features,
        "weak": [8.0] * features,
        "falling": np.geomspace(0.3, 60, features).tolist(),
        "few": [0.3] * strong + [1e6] * (features - strong),
        "copies": [0.6] * strong,
    }
    columns = []
    for each in ways[kind]:
        ends = np.cumsum(rng.dirichlet(np.full(4, each), classes), axis=1)[labels]
        columns.append(np.minimum((rng.random((RECORDS, 1)) > ends).sum(axis=1), 3))
    for place in range(features - len(columns)):
        again = rng.random(RECORDS) < 0.9
        columns.append(np.where(again, columns[place % strong], rng.integers(0, 4, RECORDS)))
    order = rng.permutation(features)
    asked = [Categorical(f"f{place}", list("abcd"), substitute=0) for place in range(features)]
    schema = build_schema(Label(LABEL, [f"c{number}" for number in range(classes)]), asked)
    return Data(np.column_stack([columns[place] for place in order]), labels, schema)


def predicted(tables: Tables, features: Sequence[int], codes: Integers) -> Integers:
    """Return the class that a model of some features predicts: shape (records,) int64."""
    score = np.tile(np.log(tables.prior), (len(codes), 1))
    for feature in features:
        score += np.log(tables.likelihood[feature])[codes[:, feature]]
    return np.asarray(score.argmax(axis=1), np.int64)


def drawn_trial(
    data: Data, people: Integers, test: Integers, fleet: steps.SeriesFleet, rng: np.random.Generator, *, refines: bool
) -> tuple[float, int, float]:
    """Run a trial: return accuracy in points, number of features of the model, share of the fleet that evaluated.

    ``people`` and ``test`` are indices of records, int64. Without ``refines`` all features are asked about.
    """
    crowd = DrawnFleet(data, people, fleet, rng)
    asked, waves, evaluated = [], [], 0.0
    about = crowd.features, crowd.classes, fleet
    while (step := steps.next_round(*about, asked, crowd.tables() if asked else None)) is not None:
        asked += step.asks if refines else [step.asks[0]._replace(share=step.asks[0].share._replace(high=1 << 32))]
        crowd.ask(asked[-1])
        if asked[-1].share.high == 1 << 32:
            break
    tables = crowd.tables()
    while (
        asked[-1].share.high < 1 << 32 and (found := steps.next_evaluation(tables, fleet, asked, waves, 1)) is not None
    ):
        assert found.kind == steps.EVALUATE
        waves.append(crowd.evaluate(found))
        evaluated += waves[-1].share.part
    shares = [each.share for each in asked] + [each.share for each in waves]
    end = steps.conclusion(*about, crowd.answers, waves, shares)
    for each in end.asks:
        crowd.ask(each)
    assert end.features is not None
    right = predicted(crowd.tables(len(end.features)), end.features, data.codes[test]) == data.labels[test]
    return 100 * float(right.mean()), len(end.features), evaluated
