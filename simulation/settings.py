"""The settings of a simulation, and checks of their types and ranges."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real
from typing import Any, NamedTuple

from aggregator.curator.terms import AUTO
from aggregator.models.postprocess.methods import DEFAULT, NEED_CLASS_QUESTION
from aggregator.nodes.campaigns.campaigns import POSTPROCESS as OF_NODES
from aggregator.publishing.schemas.schema_draft import DEFAULT_BINS, DEFAULT_MAX_VALUES
from protocol.documents.campaign import DISCRETE
from protocol.errors import InputError

DEFAULT_TEST_SHARE = 0.2
DEFAULT_MECHANISM = "direct"
LOCAL, CENTRAL, FEDERATED, DISTRIBUTED, VERTICAL = "local", "central", "federated", "distributed", "vertical"
TRUSTS = (LOCAL, CENTRAL, FEDERATED, DISTRIBUTED, VERTICAL)
_MADE = ("engine", "family", "postprocess", "reduce", "reduce_fit", "ridge")
_OWN = {
    LOCAL: ("mechanism", "answers", "approach", "theta", "class_question", "evaluate", "asking", *_MADE),
    CENTRAL: ("mechanism", "delta", "adjacency", "division", "noise", "trim", *_MADE[1:]),
    FEDERATED: ("nodes", "sensitivity", "robust", *_MADE),
    DISTRIBUTED: ("nodes", "noise", "delta", "honest_share", "colluding_share", "unit", *_MADE),
    VERTICAL: ("nodes", "engine", "reduce_fit"),
}
"""Kind of trust → the settings that go with it, of those that do not go with every kind."""
ALIEN = {
    trust: tuple(name for name in dict.fromkeys(name for names in _OWN.values() for name in names) if name not in own)
    for trust, own in _OWN.items()
}
"""Kind of trust → the settings that do not go with it."""
POSTPROCESS = {LOCAL: DEFAULT, CENTRAL: AUTO, FEDERATED: OF_NODES, DISTRIBUTED: OF_NODES, VERTICAL: ""}
"""Kind of trust → post-processing if none is named."""
REDUCE_FITS = ("pilot", "train")
LEAST_PILOT = 60
"""Records of the pilot by which the family ``auto`` chooses, if a third of all records are as many."""
_WHOLE: tuple[tuple[str, int | None, bool], ...] = (
    ("bins", None, False),
    ("max_values", 0, False),
    ("approach", None, True),
    ("folds", None, True),
    ("devices", 1, True),
    ("nodes", 1, True),
    ("repeats", 1, False),
    ("seed", 0, True),
)
"""Settings that are whole numbers: name, smallest value, and whether None is allowed. Later steps check the range of
settings without a smallest value."""
_KINDS = (
    ("reduce", str, "a text: none, pca:K or dca:K"),
    ("sensitivity", str, "a text: global or smooth"),
    ("robust", str | None, "a text: trimmed-mean:SHARE, median or krum:LIARS"),
    ("unit", str, "a text: record or party"),
    ("drop", tuple | list, "a tuple or list of column names"),
    ("evaluate", bool, "True or False"),
)
"""Settings of other types: name, type, and what the error says."""


ALL, PILOT, REFINE = "all", "pilot", "refine"
ENGINES = ("device", "vector")


class Asking(NamedTuple):
    """How the questions are chosen: ``all``, ``pilot`` with its number of records, or ``refine``."""

    way: str
    records: int = 0

    @classmethod
    def parse(cls, text: str) -> Asking:
        """Read ``all``, ``pilot:K`` or ``refine``.

        Raises:
            InputError: ``setting_invalid``.
        """
        way, _, count = text.partition(":")
        if text in (ALL, REFINE):
            return cls(text)
        if way == PILOT and count.isascii() and count.isdecimal() and 1 <= int(count[:7]) <= 10**6:
            return cls(PILOT, int(count))
        raise InputError("setting_invalid", "a design is all, refine, or pilot:K with K records")


class Settings(NamedTuple):
    """All settings of a simulation except its records.

    Attributes:
        epsilon: total ε per device, or of a curator's fit, as text or number.
        mechanism: name of the campaign's mechanism, or ``auto``; None for ``direct``, with the family ``auto`` for
            ``auto``. With a curator the name of a method; None for ``sums``.
        answers: answers per device: ``one``, ``all``, ``auto``, or a number as text or integer.
        family: ``discrete``, ``gaussian``, or ``auto`` for the family and mechanism of the largest expected accuracy on
            a pilot (:func:`aggregator.planning.power_analysis.families.best_of_families`), whose people take no further
            part. None for ``discrete``. With a curator a family of :data:`aggregator.curator.terms.FAMILIES`; None or
            ``auto`` for the choice of :func:`aggregator.curator.fitting.settled`.
        approach: 1 or 3, only for ``laplace`` in a Gaussian campaign; None is 3.
        theta: threshold of the mechanism ``the``; None for the default.
        bins: bins of a numeric feature in a drafted schema, and of components.
        max_values: largest number of different whole numbers of a categorical feature in a drafted schema.
        drop: columns that a drafted schema leaves out.
        reduce: the projection: ``none``, ``pca:K`` or ``dca:K`` with K components.
        reduce_fit: the records on which bounds and projection are fitted: ``pilot`` or ``train``.
        ridge: ρ of DCA.
        postprocess: name of the method that turns estimates into probabilities; empty for that of :data:`POSTPROCESS`.
        class_question: whether devices are also asked for the class alone.
        test_share: share of a random test part; None for :data:`DEFAULT_TEST_SHARE`.
        folds: number of folds, each of which is the test part once; None for one random test part.
        devices: number of people to learn from, drawn with replacement from the learning part: each has a device, or is
            a record of the curator or of one of the nodes. None for every person once.
        engine: ``device`` runs the device code; ``vector`` draws all reports by numpy.
        repeats: number of repetitions.
        seed: seed of all randomness; None for entropy of the operating system.
        evaluate: whether the devices of the test people also evaluate the model privately.
        asking: how it is chosen what to ask: ``all``, ``pilot:K`` or ``refine``; None asks what the campaign says.
        trust: ``local``: devices answer; ``central``: a curator fits the learning part (:mod:`simulation.curator`);
            ``federated``: nodes with many records send noisy sums (:mod:`simulation.nodes`); ``distributed``: only the
            total of the nodes can be decrypted (:mod:`simulation.parties`); ``vertical``: nodes hold different features
            of the same records. :data:`ALIEN` lists the settings that do not go with each kind of trust. The settings
            below are not for local trust.
        delta: δ of a curator's fit, None for 0; or of a whole masked total with ``diluted`` noise, None for 1e-5. It
            is text or a number. ``divided`` noise has δ = 0 and does not use this setting.
        adjacency: which data sets are neighbours; None for ``change``, or what the method covers.
        division: how ε is divided; None for the default of :class:`aggregator.curator.terms.FitTerms`.
        noise: a curator's kind of noise, None for the method's first kind; or the kind of noise in a masked total,
            ``divided`` or ``diluted``, None for ``divided``.
        trim: share that trimmed means leave out at either end; None for the default.
        nodes: number of nodes, to which the records of the learning part (with vertical trust the features) are dealt
            at random, in equal shares.
        sensitivity: to what the nodes' noise is scaled: ``global`` or ``smooth``.
        robust: rule in place of plain addition, as :func:`aggregator.nodes.statistics.robust.parse_rule` reads it; None
            for addition.
        honest_share: γ, the share of parties whose noise must suffice, as text or number.
        colluding_share: κ, the share of parties that may reveal their noise to the aggregator, as text or number.
        unit: what the noise of a masked total hides: one ``record``, or all records of a ``party``.
    """

    epsilon: str | float
    mechanism: str | None = None
    answers: str | int = "one"
    family: str | None = None
    approach: int | None = None
    theta: str | None = None
    bins: int = DEFAULT_BINS
    max_values: int = DEFAULT_MAX_VALUES
    drop: tuple[str, ...] = ()
    reduce: str = "none"
    reduce_fit: str = "pilot"
    ridge: float = 1e-3
    postprocess: str = ""
    class_question: bool = True
    test_share: float | None = None
    folds: int | None = None
    devices: int | None = None
    engine: str = "device"
    repeats: int = 1
    seed: int | None = None
    evaluate: bool = False
    asking: str | None = None
    trust: str = LOCAL
    delta: str | float | None = None
    adjacency: str | None = None
    division: str | None = None
    noise: str | None = None
    trim: float | None = None
    nodes: int | None = None
    sensitivity: str = "global"
    robust: str | None = None
    honest_share: str | float = "1"
    colluding_share: str | float = "0"
    unit: str = "record"


def checked(settings: Settings) -> Settings:
    """Check types and ranges that no later step checks, and return the settings with numbers as int and float.

    ``postprocess`` is never empty in the result.

    Raises:
        InputError: ``setting_invalid``, with the name of the first wrong setting.
    """
    for name, choices in (("trust", TRUSTS), ("engine", ENGINES), ("reduce_fit", REDUCE_FITS)):
        if getattr(settings, name) not in choices:
            raise InputError("setting_invalid", f"{name} is one of {', '.join(choices)}")
    for name, kinds, said in _KINDS:
        if not isinstance(getattr(settings, name), kinds):
            raise InputError("setting_invalid", f"{name} is {said}")
    settings = settings._replace(**_numbers(settings))
    settings = settings._replace(postprocess=settings.postprocess or POSTPROCESS[settings.trust])
    for name in ALIEN[settings.trust]:
        if getattr(settings, name) != Settings._field_defaults[name]:
            raise InputError("setting_invalid", f"{name} does not go with {settings.trust} trust; leave it out")
    if settings.trust != LOCAL:
        return settings
    settings = settings._replace(family=settings.family or DISCRETE)
    if settings.asking is not None:
        _check_asking(settings)
    return settings


def _check_asking(settings: Settings) -> None:
    """Raise an error for settings that can not be combined with a choice of what to ask."""
    if not isinstance(settings.asking, str):
        raise InputError("setting_invalid", "a design is a text: all, refine, or pilot:K")
    Asking.parse(settings.asking)
    needed = {"engine": "vector", "family": "discrete", "answers": "one", "reduce": "none", "evaluate": False}
    for name, value in needed.items():
        if getattr(settings, name) != value:
            raise InputError(
                "setting_invalid", f"a design goes with {name} {value} only".replace("evaluate False", "no evaluation")
            )
    if settings.postprocess in NEED_CLASS_QUESTION:
        raise InputError(
            "setting_invalid", f"a design asks no question about the class alone, which {settings.postprocess} needs"
        )


def _numbers(settings: Settings) -> dict[str, Any]:
    """Return the settings that are numbers, as int and float; ``answers`` as text."""
    found: dict[str, Any] = {}
    for name, least, optional in _WHOLE:
        value = getattr(settings, name)
        number = _as_whole(value)
        if value is None and optional:
            continue
        if number is None or (least is not None and number < least):
            ending = "" if least is None else f", {least} or more"
            raise InputError("setting_invalid", f"{name} is a whole number{ending}")
        found[name] = number
    for name in ("ridge", "test_share"):
        value = getattr(settings, name)
        if value is None and name == "test_share":
            continue
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InputError("setting_invalid", f"{name} is a number")
        found[name] = float(value)
    if not 0 <= found["ridge"] < inf:
        raise InputError("setting_invalid", "ridge (--rho) is a number, 0 or more")
    answers = settings.answers if isinstance(settings.answers, str) else _as_whole(settings.answers)
    if answers is None:
        raise InputError("setting_invalid", "answers is one, all, auto, or a whole number")
    return {**found, "answers": str(answers)}


def _as_whole(value: object) -> int | None:
    """Return an integer of any type, for example numpy's, as int; None for anything else, also for a truth value."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
