"""The owner's policy: what campaigns may ask and spend on this device. No signature overrides it.

The policy is a local file, ``policy.toml`` in the state folder (docs/reference/policy.md). Without the file the
defaults of :class:`Policy` hold; if it is known that there was one, its absence is refused (``policy_missing``). An
empty file is refused, since a power cut leaves such files.
"""

from __future__ import annotations

import codecs
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_sdk.storage.atomic_files import is_no_file, read_regular
from edge_sdk.storage.marker import MARKER_FILE, note_in_marker, read_marker
from edge_sdk.storage.spool import Limits
from protocol.documents.payload import DAY_SECONDS, quoted
from protocol.epsilon import (
    DAY_MICRO,
    LIFETIME_DELTA_PICO,
    LIFETIME_MICRO,
    MICRO,
    PERIOD_DELTA_PICO,
    PERIOD_MICRO,
    Limit,
    format_micro,
    format_pico,
    micro_epsilon,
    pico_delta,
)
from protocol.errors import InputError, PolicyError
from protocol.questions import ADJACENCIES, CHANGE
from protocol.schema import refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edge_sdk.storage.ledger import Ledger
    from protocol.documents.campaign import Campaign, Series
    from protocol.documents.model import Evaluated
    from protocol.schema import Schema

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": DAY_SECONDS}
MOST = 1 << 40
"""Largest whole number of an entry, and of days of a window."""


def _epsilon(name: str, value: object) -> int:
    with suppress(InputError):
        return micro_epsilon(value)  # type: ignore[arg-type]
    raise InputError("policy_invalid", f"{name} is a number above 0 and below {MICRO}, with at most six decimal places")


def _delta(name: str, value: object) -> int:
    with suppress(InputError):
        return pico_delta(value)  # type: ignore[arg-type]
    raise InputError("policy_invalid", f"{name} is 0 or a number below 1, with at most twelve decimal places")


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError("policy_invalid", f"{name} is true or false")
    return value


def _number(name: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= MOST:
        raise InputError("policy_invalid", f"{name} is a whole number from 1 to 2^40")
    return value


def _days(name: str, value: object) -> int:
    return _number(name, value) * DAY_SECONDS


def _duration(name: str, value: object) -> int:
    if isinstance(value, str) and value[-1:] in _UNITS and value[:-1].isascii() and value[:-1].isdigit():
        return _number(name, int(value[:-1][:13]) * _UNITS[value[-1]])
    if isinstance(value, str):
        raise InputError("policy_invalid", f'{name} is a duration such as "90s", "15m", "1h" or "1d"')
    return _number(name, value)


def _names(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise InputError("policy_invalid", f"{name} is a list of names")
    return tuple(value)


def _keys(name: str, value: object) -> tuple[bytes, ...]:
    digits = _names(name, value)
    if not all(len(each) == 64 and set(each) <= set("0123456789abcdef") for each in digits):
        raise InputError("policy_invalid", f"{name} is a list of keys, each of 64 hexadecimal digits in lower case")
    return tuple(map(bytes.fromhex, digits))


def _adjacency(name: str, value: object) -> str:
    if value not in ADJACENCIES:
        raise InputError("policy_invalid", f"{name} is one of {', '.join(ADJACENCIES)}")
    return str(value)


ENTRIES: dict[str, tuple[str, Callable[[str, object], Any]]] = {
    "epsilon_per_period": ("period_micro", _epsilon),
    "epsilon_per_day": ("day_micro", _epsilon),
    "epsilon_per_window": ("window_micro", _epsilon),
    "window_days": ("window_seconds", _days),
    "epsilon_lifetime": ("lifetime_micro", _epsilon),
    "shortest_period": ("shortest_period", _duration),
    "smallest_batch": ("smallest_batch", _number),
    "report_bytes": ("report_bytes", _number),
    "features": ("features", _names),
    "campaigns": ("campaigns", _names),
    "spool_reports": ("reports", _number),
    "spool_bytes": ("size_bytes", _number),
    "spool_days": ("age_seconds", _days),
    "allow_refuse": ("allow_refuse", _flag),
    "node_adjacency": ("node_adjacency", _adjacency),
    "allow_masked": ("allow_masked", _flag),
    "delta_per_period": ("period_delta_pico", _delta),
    "delta_lifetime": ("lifetime_delta_pico", _delta),
    "collectors": ("collectors", _keys),
}
"""Key of ``policy.toml`` → the field of :class:`edge_sdk.policy.Policy`, or of its limits on stored reports, and the
function that reads the value."""

_FRAME_BYTES = 400
"""Upper bound of the bytes of a node's summary without its numbers."""
LONGEST_WINDOW = MOST * DAY_SECONDS
"""Seconds of the longest window that a policy may have."""


class Spent(NamedTuple):
    """What a device has spent, in millionths of ε: in the last day, the last window, and in all."""

    day_micro: int
    window_micro: int
    lifetime_micro: int


class Policy(NamedTuple):
    """The owner's limits on what campaigns may ask and spend. All ε are in millionths, all δ in 10⁻¹².

    Attributes:
        period_micro: largest ε that a campaign may spend per period, summed over the answers of the period.
        lifetime_micro: largest ε in all, over all campaigns, for the life of the device, whatever the clock says.
        allow_refuse: whether a campaign may refuse unlisted values. In such a campaign the record decides whether
            there is a report, and ε does not cover that.
        day_micro: largest ε in any 24 hours, over all campaigns; None for no such limit. The default is 4, or
            ``epsilon_per_period`` if that is larger, since else it could not be spent.
        window_micro: largest ε in any ``window_seconds``; None for no such limit.
        window_seconds: length of the rolling window.
        shortest_period: campaigns with shorter periods, in seconds, are refused.
        smallest_batch: campaigns with a smaller ``min_batch_size`` are refused.
        report_bytes: campaigns with more bytes of answers per period are refused, since answers cost time and space.
        features: the only names that a campaign's schema may have for its features and its label; None for any.
        campaigns: the only names that a campaign may have, where ``*`` stands for any characters; None for any.
        node_adjacency: of a node: the change of records whose ε is counted. ``change``: a replaced record;
            ``add-remove``: one more or less; ``change-features``: other features of a record with the same label.
        allow_masked: whether masked campaigns are accepted, in which protection also rests on the dealer of the keys,
            who could decrypt every message, and on the noise of other nodes.
        period_delta_pico: largest δ that a campaign may spend per period; None for that of :meth:`most_delta`.
        lifetime_delta_pico: largest δ in all, over all campaigns and for the life of the device or node.
        collectors: public keys of the only collectors that may get shares of this device's records. Two of them that
            work together see every record.
        spool: the most reports that may wait to be acknowledged; those of the newest period always may.
    """

    period_micro: int = PERIOD_MICRO
    lifetime_micro: int = LIFETIME_MICRO
    allow_refuse: bool = False
    day_micro: int | None = DAY_MICRO
    window_micro: int | None = None
    window_seconds: int = 30 * DAY_SECONDS
    shortest_period: int = 60
    smallest_batch: int = 1
    report_bytes: int = 100_000
    features: tuple[str, ...] | None = None
    campaigns: tuple[str, ...] | None = None
    node_adjacency: str = CHANGE
    allow_masked: bool = False
    period_delta_pico: int | None = None
    lifetime_delta_pico: int = LIFETIME_DELTA_PICO
    collectors: tuple[bytes, ...] = ()
    spool: Limits = Limits(100_000, 8_000_000, 365 * DAY_SECONDS)

    @classmethod
    def of(cls, **entries: Any) -> Policy:
        """Make a policy of ``entries``: keys and values of ``policy.toml``. Keys that are left out keep their defaults.

        Raise InputError ``policy_invalid`` for an unknown key or a wrong value; the text names the key and its range.
        """
        unknown = set(entries) - set(ENTRIES)
        if unknown:
            keys = ", ".join(ENTRIES)
            raise InputError("policy_invalid", f"has an unknown key {quoted(min(unknown))}; the keys are {keys}")
        fields: dict[str, Any] = {}
        limits: dict[str, int] = {}
        for name, value in entries.items():
            field, parse = ENTRIES[name]
            (limits if field in Limits._fields else fields)[field] = parse(name, value)
        fields.setdefault("day_micro", max(DAY_MICRO, fields.get("period_micro", 0)))
        return cls(**fields, spool=cls().spool._replace(**limits))

    @property
    def limits(self) -> list[Limit]:
        """The owner's limits on ε in a time span: in 24 hours, and in the policy's window, if they are set."""
        both = ((self.day_micro, DAY_SECONDS), (self.window_micro, self.window_seconds))
        return [Limit(micro, seconds) for micro, seconds in both if micro is not None]

    def rates(self, spent: Spent) -> list[tuple[int, int, str]]:
        """Return for each limit per time: the limit and what of it is spent, in millionths of ε; the time in words."""
        both = (self.day_micro, spent.day_micro, "24 hours"), (self.window_micro, spent.window_micro, self.window_text)
        return [(most, used, what) for most, used, what in both if most is not None]

    @property
    def lifetime(self) -> tuple[int, int]:
        """The ε in millionths and the δ in 10⁻¹² for the life; δ is 0 if no campaign that costs one is allowed."""
        return self.lifetime_micro, self.lifetime_delta_pico if self.allow_masked or self.collectors else 0

    @property
    def window_text(self) -> str:
        """The length of the window in words: ``1 day``, ``30 days``."""
        days = self.window_seconds // DAY_SECONDS
        return f"{days} day{'' if days == 1 else 's'}"

    @property
    def longest_window(self) -> int:
        """Length in seconds of the longest window over which ε is counted or shown; at least a day."""
        return max(DAY_SECONDS, self.window_seconds)

    def cost_micro(self, campaign: Campaign, epsilon_micro: int | None = None) -> int:
        """Return the ε in millionths that limits and ledger count for one period; 0 if the campaign has ended.

        Of a campaign with memory it is the cost of the whole campaign, which the first answer pays.
        ``epsilon_micro`` is the ε that a node's summary states; None for the campaign's ε. Raise PolicyError
        ``adjacency_uncovered`` if the campaign's noise does not hide the change of records that ``node_adjacency``
        names.
        """
        if campaign.nodes is None:
            return campaign.epsilon_micro if campaign.memory is None else campaign.life_micro(1)
        from protocol.nodes.terms import cost_micro

        return cost_micro(campaign, self.node_adjacency, epsilon_micro)

    def cost_delta(self, campaign: Campaign) -> int:
        """Return the δ in 10⁻¹² of an answer of one period, for the change of records that ``node_adjacency`` names.

        It is 0 unless the campaign is masked and its noise ``diluted``, or shared and its noise ``gaussian``.
        """
        if campaign.shared is not None:
            return campaign.shared.delta_pico
        if campaign.masked is None:
            return 0
        from protocol.masked.costs import cost

        return cost(campaign, self.node_adjacency)[1]

    def check_adjacency(self, campaign: Campaign, booked: str | None, spent_micro: int) -> None:
        """Raise PolicyError ``adjacency_fixed`` if a summary's ε would be added to ε of another adjacency.

        Their sum would bound nothing. ``booked`` is the adjacency whose ε the ledger counts; None if no summary was
        made yet, and for a device. ``spent_micro`` is what was spent so far.
        """
        if campaign.nodes is not None and booked not in (None, self.node_adjacency):
            raise PolicyError(
                "adjacency_fixed",
                f"this node's ledger counts the ε of {booked} since its first summary, {format_micro(spent_micro)} so "
                f'far, and the policy names {self.node_adjacency}; set node_adjacency = "{booked}", or begin a new '
                "node in a state folder of its own",
            )

    def refusals(self, campaign: Campaign, evaluated: Sequence[Evaluated] = ()) -> Iterator[str]:
        """Yield a sentence for each rule that the campaign breaks. Of an ended campaign only the name is judged.

        The rule on features holds for the features of the models ``evaluated``, too.
        """
        name = campaign.header.name
        if self.campaigns is not None and not _matches(name, self.campaigns):
            yield "the owner does not take part in campaigns of this name (campaigns)"
        if not campaign.ended:
            yield from self._cost_refusals(campaign)
            yield from self._mask_refusals(campaign)
            yield from self._share_refusals(campaign)
            yield from self._delta_refusals(campaign)
            yield from self._extent_refusals(campaign)
            yield from self._feature_refusals(campaign, evaluated)

    def _cost_refusals(self, campaign: Campaign) -> Iterator[str]:
        """Yield refusals by the limits on ε. A campaign for nodes is judged by the smallest ε that it allows."""
        least = None if campaign.nodes is None else campaign.nodes.least_epsilon_micro
        try:
            micro = self.cost_micro(campaign, least)
        except PolicyError as error:
            yield error.detail
        else:
            when = "per period" if campaign.memory is None else "with its first answer"
            for refusal in self.limit_refusals(micro, when):
                yield f"the campaign spends {refusal}"

    def _mask_refusals(self, campaign: Campaign) -> Iterator[str]:
        if campaign.masked is not None and not self.allow_masked:
            yield (
                "the campaign is masked: its noise protects only together with that of other nodes, and the dealer of "
                "its keys could decrypt this node's message; whoever accepts that sets allow_masked = true"
            )

    def _share_refusals(self, campaign: Campaign) -> Iterator[str]:
        for one in () if campaign.shared is None else campaign.shared.collectors:
            if one.key not in self.collectors:
                yield (
                    f"{quoted(one.name)} would get a share of the record, and whoever has both shares sees the record; "
                    f"whoever accepts this collector adds its key {one.key.hex()} to the list collectors"
                )

    def most_delta(self, campaign: Campaign) -> int:
        """Return the largest δ per period in 10⁻¹². Without one in the policy: 2e-5 of nodes, 0 of devices."""
        if self.period_delta_pico is not None:
            return self.period_delta_pico
        return 0 if campaign.nodes is None else PERIOD_DELTA_PICO

    def _delta_refusals(self, campaign: Campaign) -> Iterator[str]:
        delta, most = self.cost_delta(campaign), self.most_delta(campaign)
        if delta > most:
            kind = CHANGE if campaign.nodes is None else self.node_adjacency
            yield (
                f"the campaign spends δ = {format_pico(delta)} per period for {kind}; "
                f"the owner allows {format_pico(most)} (delta_per_period)"
            )

    def limit_refusals(self, micro: int, when: str = "per period") -> Iterator[str]:
        """Yield the end of a sentence for each limit that one answer alone exceeds, whatever was spent before.

        ``micro`` is the cost of the answer in millionths of ε, ``when`` says in words how often it is paid.
        """
        cost = format_micro(micro)
        for most, name in (
            (self.period_micro, "epsilon_per_period"),
            (self.day_micro, "epsilon_per_day"),
            (self.window_micro, "epsilon_per_window"),
        ):
            if most is not None and micro > most:
                yield f"ε = {cost} {when}; the owner allows {format_micro(most)} ({name})"

    def _extent_refusals(self, campaign: Campaign) -> Iterator[str]:
        if campaign.time_precision < self.shortest_period:
            yield (
                f"a period lasts {campaign.time_precision} s; "
                f"the owner allows no shorter ones than {self.shortest_period} s (shortest_period)"
            )
        size = _answer_bytes(campaign)
        if size > self.report_bytes:
            yield (f"one period's answers have {size} bytes; the owner allows {self.report_bytes} (report_bytes)")
        if campaign.min_batch_size < self.smallest_batch:
            yield (
                f"the campaign waits for {campaign.min_batch_size} reports only; "
                f"the owner asks for {self.smallest_batch} (smallest_batch)"
            )
        if not self.allow_refuse and refusing(campaign.schema):
            yield (
                "the campaign refuses unlisted values, so whether there is a report would depend on the record; "
                "the owner allows that with allow_refuse = true, for development"
            )

    def _feature_refusals(self, campaign: Campaign, evaluated: Sequence[Evaluated]) -> Iterator[str]:
        allowed = self.features
        if allowed is None:
            return
        asked = [name for name in _names_read(campaign.schema) if name not in allowed]
        if asked:
            yield f"the owner does not answer about {quoted(asked[0])} (features)"
        hidden = [(model, name) for model in evaluated for name in _names_read(model.schema) if name not in allowed]
        if hidden:
            model, name = hidden[0]
            which = "the model that it evaluates" if len(evaluated) == 1 else f"its model {quoted(model.header.name)}"
            yield f"{which} reads {quoted(name)}, about which the owner does not answer (features)"

    def check_campaign(self, campaign: Campaign, evaluated: Sequence[Evaluated] = ()) -> None:
        """Raise PolicyError ``policy_refused`` or ``adjacency_uncovered`` if the owner does not allow a campaign.

        ``evaluated``: the models that the campaign evaluates.
        """
        self.cost_micro(campaign)
        for refusal in self.refusals(campaign, evaluated):
            raise PolicyError("policy_refused", refusal)

    def check_budget(self, spent: Spent, micro: int) -> None:
        """Raise PolicyError if an answer that costs ``micro`` millionths of ε would exceed one of the owner's limits.

        ``budget_exhausted``: the limit for the device's life; ``budget_paused``: that of a day or of the window, so the
        answer may be allowed later.
        """
        if spent.lifetime_micro + micro > self.lifetime_micro:
            raise PolicyError(
                "budget_exhausted",
                f"of the lifetime's ε = {format_micro(self.lifetime_micro)}, {format_micro(spent.lifetime_micro)} "
                f"is spent; this answer would need {format_micro(micro)}",
            )
        for most, used, what in self.rates(spent):
            if used + micro > most:
                raise PolicyError(
                    "budget_paused",
                    f"of ε = {format_micro(most)} per {what}, {format_micro(used)} is spent; "
                    f"this answer would need {format_micro(micro)}; try again later",
                )

    def check_delta(self, spent_pico: int, delta_pico: int) -> None:
        """Raise PolicyError ``budget_exhausted`` if an answer would exceed the owner's limit on δ for the node's life.

        ``spent_pico`` is the δ that was spent in all, and ``delta_pico`` the δ of the answer, in 10⁻¹².
        """
        if delta_pico and spent_pico + delta_pico > self.lifetime_delta_pico:
            raise PolicyError(
                "budget_exhausted",
                f"of the lifetime's δ = {format_pico(self.lifetime_delta_pico)} (delta_lifetime), "
                f"{format_pico(spent_pico)} is spent; this answer would need {format_pico(delta_pico)}",
            )


def _answer_bytes(campaign: Campaign) -> int:
    """Return the bytes of a device's reports of one period; of a node's summary or masked message, an upper bound."""
    if campaign.nodes is None:
        return campaign.report_bytes
    from protocol.nodes.terms import released_vectors

    numbers = sum(subject.size for subject in released_vectors(campaign))
    if campaign.masked is None:
        return 8 * numbers + _FRAME_BYTES
    from protocol.documents.masked_terms import MODULUS_BYTES, ciphertexts_needed

    return 2 * MODULUS_BYTES * ciphertexts_needed(numbers, campaign.masked.slot_bits) + _FRAME_BYTES


def _names_read(schema: Schema) -> list[str]:
    return [*(feature.name for feature in schema.features), schema.label.name]


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name matches one of the patterns. ``*`` stands for any characters, all others for themselves."""
    return any(_matches_pieces(name, pattern.split("*")) for pattern in patterns)


def _matches_pieces(name: str, pieces: list[str]) -> bool:
    """Return whether ``name`` begins with the first piece, ends with the last, and has the rest between, in order."""
    first, *others = pieces
    if not others:
        return name == first
    last = others.pop()
    place, end = len(first), len(name) - len(last)
    if place > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for piece in others:
        found = name.find(piece, place, end)
        if found < 0:
            return False
        place = found + len(piece)
    return True


POLICY_FILE = "policy.toml"
_MAX_BYTES = 1 << 20
_EMPTY = (
    " is empty, as a power cut leaves a file that was being written; write a new file and mv it to this name. "
    "If the defaults are to hold, write the line '# defaults' into it"
)


def load_policy(path: str) -> Policy:
    """Return the policy in the owner's file at ``path``; the defaults if there is neither a file nor a link.

    Raise InputError ``policy_invalid`` if the file can not be read, is empty, or has an unknown key or a wrong value.
    """
    if not os.path.lexists(path):
        return Policy()
    import tomllib

    try:
        raw = read_regular(path, _MAX_BYTES + 1)
        content = raw.removeprefix(codecs.BOM_UTF8)  # some editors begin a text with it
        if len(raw) > _MAX_BYTES:
            problem = f" has more than {_MAX_BYTES} bytes"
        elif content.strip():
            return Policy.of(**tomllib.loads(content.decode()))
        else:
            problem = _EMPTY
    except InputError as error:
        problem = f": {error.detail}"
    except (OSError, ValueError, RecursionError) as error:
        # Only the position of the error is told, since the error's text may quote the file.
        place = re.search(r"\(at [a-z0-9, ]*\)$", str(error))
        problem = f" can not be read: {type(error).__name__}{f' {place[0]}' if place else ''}"
        if is_no_file(path):
            problem = (
                " is no regular file, but a folder, a pipe, a device or a link that leads nowhere; put a file there"
            )
    raise InputError("policy_invalid", POLICY_FILE + problem)


class PolicyGiven:
    """The policy that an application gives, or the defaults, with the interface of :class:`PolicyFile`.

    Attributes:
        in_file, marks: false, since there is no file and nothing to write into the marker.
        origin: ``application``, or ``defaults`` if the application gives none.
    """

    in_file = False
    marks = False

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy or Policy()
        self.origin = "defaults" if policy is None else "application"

    def __call__(self) -> Policy:
        """Return the policy."""
        return self._policy


class PolicyFile:
    """The owner's policy file in a state folder. It is read again after each change, so changes hold at once.

    If there was a file, as the install marker or this object remembers, and it is gone, calls are refused.

    Attributes:
        marks: whether a call notes the file in the install marker; false until the state is open for writing.
    """

    def __init__(self, folder: str) -> None:
        self.marks = False
        self._marker = os.path.join(folder, MARKER_FILE)
        self._folder = folder
        self._path = os.path.join(folder, POLICY_FILE)
        self._seen: tuple[int, ...] = ()
        self._was_there = False
        self._policy: Policy | None = None

    @property
    def in_file(self) -> bool:
        """Whether there is a file or a link named ``policy.toml`` in the folder."""
        return os.path.lexists(self._path)

    @property
    def origin(self) -> str:
        """Where the policy that holds now is from: ``policy.toml`` or ``defaults``."""
        return POLICY_FILE if self.in_file else "defaults"

    def __call__(self) -> Policy:
        """Return the policy that holds now. Raises the errors of :attr:`edge_sdk.Device.policy`."""
        seen = _identity_of(self._path)
        if self._policy is None or seen != self._seen:
            self._policy = None
            self._was_there = self._was_there or bool(seen)
            policy = load_policy(self._path)
            marker = read_marker(self._marker)
            if not seen and (self._was_there or (marker is not None and marker.policy)):
                raise InputError(
                    "policy_missing",
                    f"{POLICY_FILE} was here and is gone; restore it, or put a file with the line '# defaults' there "
                    "if the defaults are to hold",
                )
            if marker is not None and self.marks:
                note_in_marker(self._folder, policy=bool(seen))
            self._policy, self._seen = policy, seen
        return self._policy


def _identity_of(path: str) -> tuple[int, ...]:
    """Return numbers that differ if the file at a path was changed; () if there is none, (0,) if it is unreadable."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return (0,) if os.path.lexists(path) else ()


def series_refusal(series: Series | None, ledger: Ledger, secret: bytes | None) -> PolicyError | None:
    """Return why a device answers no new period of a campaign in ``series``; None if it may, or without a series.

    ``series_answered``: the device has answered in the series; ``series_begun``: the device was reset after the series
    had begun; ``series_not_member``: the device is not in the share of devices that the campaign asks.
    """
    if series is None:
        return None
    name = quoted(series.name)
    if ledger.answered_in(series.name):
        return PolicyError(
            "series_answered", f"this device has answered in the series {name}, in which it answers once; all is done"
        )
    after = ledger.series_after()
    if after is not None and series.begins <= after:
        return PolicyError(
            "series_begun",
            f"this device was reset when the series {name} had begun; it may have answered before, so it answers only "
            "series that begin later",
        )
    if secret is not None and not series.has(secret):
        return PolicyError(
            "series_not_member",
            f"this device is not in the share of the series {name} that this campaign asks; nothing is to be done",
        )
    return None
