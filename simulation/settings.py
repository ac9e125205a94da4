"""The settings of a simulation, and checks of their types and ranges."""

from __future__ import annotations

from math import inf
from numbers import Integral, Real
from typing import Any, NamedTuple

from aggregator.estimates.sums import OF_SUMS
from aggregator.models.postprocess.methods import DEFAULT, NEED_CLASS_QUESTION
from aggregator.publishing.schemas.schema_draft import DEFAULT_BINS, DEFAULT_MAX_VALUES
from protocol.documents.campaign import DISCRETE
from protocol.errors import InputError

DEFAULT_TEST_SHARE = 0.2
DEFAULT_MECHANISM = "direct"
LOCAL, SHARED, CENTRAL = "local", "shared", "central"
FEDERATED, DISTRIBUTED, VERTICAL = "federated", "distributed", "vertical"
TRUSTS = (LOCAL, SHARED, CENTRAL, FEDERATED, DISTRIBUTED, VERTICAL)
_MADE = ("engine", "family", "postprocess", "reduce", "reduce_fit", "ridge")
_OWN = {
    LOCAL: ("mechanism", "answers", "approach", "theta", "class_question", "evaluate", "asking", *_MADE),
    SHARED: ("delta", "noise", "asking", "evaluate", "engine", "postprocess", "reduce", "reduce_fit", "ridge"),
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
POSTPROCESS = {LOCAL: DEFAULT, **dict.fromkeys((SHARED, CENTRAL, FEDERATED, DISTRIBUTED), OF_SUMS), VERTICAL: ""}
"""Kind of trust → post-processing if none is named."""
REDUCE_FITS = ("pilot", "train")
LEAST_PILOT = 60
"""Records of the pilot by which the family ``auto`` chooses, if a third of all records are as many."""
WHOLE: dict[str, tuple[int | None, bool]] = {
    "bins": (None, False),
    "max_values": (0, False),
    "approach": (None, True),
    "folds": (None, True),
    "devices": (1, True),
    "nodes": (1, True),
    "repeats": (1, False),
    "seed": (0, True),
}
"""Settings that are whole numbers → smallest value, and whether None is allowed. Later steps check the range of
settings without a smallest value."""
OPTIONS = {"asking": "design", "class_question": "no-class-question", "ridge": "rho"}
"""Setting → its option of ``hearsay simulate``, where the two differ by more than ``_``."""
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
ENGINES = ("device", "files", "vector")
"""What makes reports; ``files`` is for shared trust alone (:mod:`simulation.collectors`)."""


class Asking(NamedTuple):
    """How the questions are chosen: ``all``, ``pilot`` with its number of records, or ``refine``.

    ``is_same``: whether each step of ``refine`` asks all devices with a part of ε, and not a part of the devices.
    ``counts``: whether the model is made from the pilot's ``records`` too.
    """

    way: str
    records: int = 0
    is_same: bool = False
    counts: bool = False

    @classmethod
    def parse(cls, text: str) -> Asking:
        """Read the text of ``--design``. Raises InputError ``setting_invalid``."""
        if text in (ALL, REFINE):
            return cls(text)
        if text == f"{REFINE}:same":
            return cls(REFINE, is_same=True)
        way, count, *rest = *text.split(":"), ""
        number = int(count[:7]) if count.isascii() and count.isdecimal() else 0
        if 1 <= number <= 10**6 and (way, *rest) in ((PILOT, ""), (PILOT, "count", ""), (ALL, "")):
            return cls(way, number, counts=way == ALL or rest[0] == "count")
        raise InputError(
            "setting_invalid", "a design is all, all:K, pilot:K, pilot:K:count with K records, refine or refine:same"
        )


class Settings(NamedTuple):
    """All settings of a simulation except its records; ``hearsay simulate --help`` explains options of the same names.

    Attributes:
        epsilon: total ε per device, or of a curator's fit, as text or number.
        mechanism: of the campaign; None for ``direct``, with the family ``auto`` for ``auto``. With a curator a method;
            None for ``sums``.
        answers: answers per device: ``one``, ``all``, ``auto``, or a number as text or integer.
        family: None for ``discrete``; ``auto`` for family and mechanism of the largest expected accuracy on a pilot,
            whose people take no further part. With a curator None or ``auto`` lets the fit choose.
        approach: 1 or 3, only for ``laplace`` in a Gaussian campaign; None is 3.
        theta, division, adjacency, trim: None for the default.
        bins, max_values, drop: of a drafted schema (:func:`aggregator.publishing.schemas.schema_draft.draft_schema`).
        ridge: ρ of DCA.
        postprocess: empty for that of :data:`POSTPROCESS`.
        test_share, folds: share of one random test part, None for :data:`DEFAULT_TEST_SHARE`; or the number of folds.
        devices: number of people to learn from, drawn with replacement from the learning part; None for everybody once.
        seed: seed of all randomness; None for entropy of the operating system.
        asking: ``all``, ``all:K``, ``pilot:K``, ``pilot:K:count`` or ``refine`` (``--design``); with shared trust also
            ``refine:same``, whose steps ask the same devices with a part of ε each. None asks what the campaign says.
        trust: one of :data:`TRUSTS`. :data:`ALIEN` lists the settings that do not go with each.
        delta: δ of a curator's fit or a shared report, None for 0; of a masked total with ``diluted`` noise, for 1e-5.
        noise: of a curator, None for the method's first kind; of two collectors, None for the smaller variance; or of a
            masked total, None for ``divided``.
        nodes: number of nodes, to which records (with vertical trust features) are dealt at random, in equal shares.
        robust: as :func:`aggregator.nodes.statistics.robust.parse_rule` reads it; None for addition.
        honest_share, colluding_share: γ, of parties whose noise must suffice; κ, of those that may reveal their noise.
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


def field_of(option: str) -> str:
    """Return the name of the setting that an option of ``hearsay simulate`` gives."""
    return next((name for name, own in OPTIONS.items() if own == option), option.replace("-", "_"))


def checked(settings: Settings) -> Settings:
    """Check types and ranges that no later step checks. Return the settings with numbers as int and float.

    ``postprocess`` is never empty in the result. ``setting_invalid`` names the first wrong setting.
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
    if settings.engine == "files" and settings.trust != SHARED:
        raise InputError("setting_invalid", "the engine files goes with shared trust only")
    if settings.trust != LOCAL:
        return settings
    settings = settings._replace(family=settings.family or DISCRETE)
    if settings.asking is not None:
        _check_asking(settings)
    return settings


def _check_asking(settings: Settings) -> None:
    if not isinstance(settings.asking, str):
        raise InputError("setting_invalid", "a design is a text: all, refine, or pilot:K")
    if Asking.parse(settings.asking).is_same:
        raise InputError("setting_invalid", "refine:same goes with shared trust; local devices answer once in a series")
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
    found: dict[str, Any] = {}
    for name, (least, optional) in WHOLE.items():
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
