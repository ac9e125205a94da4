"""What a campaign asks about: the table ``[ask]`` of a schema file, the option ``--ask``, and their form on the wire.

    [ask.odor]                            # a feature, or a component of the projection; others are not asked about
    groups = [["a", "l"], ["n"]]          # values asked about as one; all other codes are one last group

    [ask.width]
    bins = [2, 1, 1]                      # of a number: how many adjacent bins each group has, in order
    share = 3                             # is asked three times as often as a feature without share

    [ask."cap × ring"]                    # two or three features asked about as one: their combinations of values
    [ask.cap]
    groups = [["x", "y"]]
    share = 0                             # says the groups of cap, which is asked about in the join alone

In a group, ``(missing)`` and ``(other)`` name these codes, unless a listed value has that text. Source: decision 62.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from protocol.documents.asked import canonical_groups, restricted, ungroupable, unjoinable, with_joins
from protocol.documents.payload import quoted
from protocol.errors import InputError
from protocol.features import JOINED, Categorical, Feature, as_text
from protocol.schema import Component, Schema

MOST_SHARE = 10**6
_KEYS = {"groups", "bins", "share"}
_LISTED_NAMES = 8


class AskedFeature(NamedTuple):
    """How a campaign asks about one feature.

    ``groups``: the values of each group, of a category; ``bins``: number of adjacent bins in each group, of a number;
    empty if every value or bin is asked about by itself. ``share``: weight of its questions, 1 … 10⁶; that of the class
    alone has 1; 0 for a feature that only joins ask about.
    """

    groups: tuple[tuple[str, ...], ...] = ()
    bins: tuple[int, ...] = ()
    share: int = 1


Ask = Mapping[str, AskedFeature]
"""Feature, or names of joined features with ``×`` between them → how it is asked about. Empty: all features, alone."""


class AskedSchema(NamedTuple):
    """A schema with what a campaign asks about.

    ``stated``: all features, with groups of values and joins, as the campaign's file states them. ``shares``: index of
    every asked feature in ``stated.observed`` → weight of its questions.
    """

    stated: Schema
    shares: Mapping[int, int]

    @property
    def schema(self) -> Schema:
        """The schema of the statistics: the asked features alone, with their groups of values and joins."""
        return restricted(self.stated, self.shares)


def parse_ask(entries: Mapping[str, Any]) -> dict[str, AskedFeature]:
    """Read the table ``[ask]`` of a schema file, for :func:`resolve`. Raises ``schema_invalid`` for another form."""
    if not entries:
        raise InputError("schema_invalid", "[ask] names no feature; leave it out to ask about all")
    return {name: _parse_feature(name, entry) for name, entry in entries.items()}


def _parse_feature(name: str, entry: object) -> AskedFeature:
    where = f"[ask] {quoted(name)}"
    if not isinstance(entry, dict) or not entry.keys() <= _KEYS:
        raise InputError("schema_invalid", f"{where} is a table with the keys groups, bins and share, or none of them")
    groups, bins, share = entry.get("groups", []), entry.get("bins", []), entry.get("share", 1)
    if not isinstance(groups, list) or not all(isinstance(group, list) and group for group in groups):
        raise InputError("schema_invalid", f"{where}: groups is a list of lists of values")
    texts = [[as_text(value) for value in group] for group in groups]
    if any(text is None for group in texts for text in group):
        raise InputError("schema_invalid", f"{where}: a value of a group is no text")
    if not isinstance(bins, list) or not all(type(count) is int and count > 0 for count in bins):
        raise InputError("schema_invalid", f"{where}: bins is a list of positive whole numbers")
    if groups and bins:
        raise InputError("schema_invalid", f"{where}: groups is for a category and bins for a number; give one")
    if type(share) is not int or not 0 <= share <= MOST_SHARE:
        raise InputError("schema_invalid", f"{where}: share is a whole number from 0 to {MOST_SHARE}")
    named = tuple(tuple(text for text in group if text is not None) for group in texts)
    return AskedFeature(named, tuple(bins), share)


def ask_of(given: str | Iterable[str] | Ask | None, ask: Ask) -> Ask:
    """Return what to ask, from a caller's argument: names as one text, a list of names, or a table; None: the file's.

    Raises InputError ``ask_invalid``: a name is empty or given twice, or there is no name.
    """
    if given is None:
        return ask
    if isinstance(given, Mapping):
        return given
    names = _split(given) if isinstance(given, str) else list(given)
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise InputError("ask_invalid", "name each feature to ask about once, for example: odor,gill-size")
    return {name: AskedFeature() for name in names}


def asked_names(ask: Ask) -> list[str]:
    """Return the names of what a table asks about: features, and joins; not those that only state a member's groups."""
    return [name for name, one in ask.items() if one.share]


def _split(given: str) -> list[str]:
    try:
        return [name.strip() for row in csv.reader([given], skipinitialspace=True, strict=True) for name in row]
    except csv.Error:
        return []


def listed(names: Iterable[str]) -> str:
    """Return names as one text that :func:`ask_of` reads: with commas between, names with a comma in double quotes."""
    return ", ".join(
        '"' + name.replace('"', '""') + '"' if "," in name or name.startswith('"') else name for name in names
    )


def resolve(schema: Schema, ask: Ask) -> AskedSchema:
    """Find the features, components of the projection and codes that ``ask`` names in a schema, and return them.

    An empty ``ask`` asks about all features, with the schema's own groups and joins.

    Raises InputError ``ask_invalid``: a name is not one of the observed features, a group names a value that the
    feature does not list or a value twice, ``bins`` do not add up, all values are in one group, or every group has one
    value; features can not be joined (:func:`protocol.documents.asked.unjoinable`), a join states groups, or only a
    feature in no join has the share 0.
    """
    single = schema.ungrouped
    if not ask:
        stated = with_joins(schema, schema.joins)
        return AskedSchema(stated, {place: 1 for place, part in enumerate(stated.parts) if part in schema.parts})
    groups: list[tuple[int, ...] | None] = [None] * len(single)
    shares: dict[tuple[int, ...], int] = {}
    for name, one in ask.items():
        part = _part(name, schema)
        if part in shares:
            raise InputError("ask_invalid", f"{quoted(name)} is named twice")
        shares[part] = one.share
        if len(part) == 1:
            groups[part[0]] = _groups(single[part[0]], one)
        elif one.groups or one.bins:
            raise InputError("ask_invalid", f"{quoted(name)} is a join; give groups and bins of its members, share 0")
    joins = sorted(part for part in shares if len(part) > 1)
    stated = schema._replace(groups=tuple(groups) if any(groups) else ())
    members = {index for join in joins for index in join}
    unread = [part for part, share in shares.items() if not share and (len(part) > 1 or part[0] not in members)]
    problem = unjoinable(stated, joins) or ("a feature of share 0 is in no join" if unread else "")
    if problem:
        raise InputError("ask_invalid", problem)
    stated = with_joins(stated, joins)
    return AskedSchema(stated, {place: shares[part] for place, part in enumerate(stated.parts) if shares.get(part)})


def _part(name: str, schema: Schema) -> tuple[int, ...]:
    """Return the indices in ``schema.ungrouped`` of the features that ``name`` means: one, or those of a join."""
    places = {feature.name: place for place, feature in enumerate(schema.ungrouped)}
    names = [name] if name in places else name.split(JOINED)
    for each in names:
        if each not in places:
            raise InputError("ask_invalid", _unknown(each, schema, list(places)))
    return tuple(sorted(places[each] for each in names))


def _unknown(name: str, schema: Schema, known: Sequence[str]) -> str:
    if name == schema.label.name:
        return f"{quoted(name)} is the label, which every question is about; name features"
    if any(feature.name == name for feature in schema.features):
        return f"{quoted(name)} is an input of the projection; ask about components: {', '.join(map(quoted, known))}"
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"there is no feature {quoted(name)}; near: {', '.join(map(quoted, near))}"
    more = ", …" if len(known) > _LISTED_NAMES else ""
    return f"there is no feature {quoted(name)}; there are {', '.join(map(quoted, known[:_LISTED_NAMES]))}{more}"


def _groups(feature: Feature | Component, one: AskedFeature) -> tuple[int, ...] | None:
    if not one.groups and not one.bins:
        return None
    if bool(one.groups) != isinstance(feature, Categorical):
        right = "groups" if isinstance(feature, Categorical) else "bins"
        raise InputError("ask_invalid", f"feature {quoted(feature.name)} is divided by {right}, not by the other key")
    found = _of_values(feature, one.groups) if isinstance(feature, Categorical) else _of_bins(feature, one.bins)
    groups = canonical_groups(found)
    problem = ungroupable(feature, groups)
    if problem:
        raise InputError("ask_invalid", problem)
    return groups


def _of_values(feature: Categorical, groups: Sequence[Sequence[str]]) -> list[int]:
    codes: dict[str, int] = {}
    for code, label in enumerate(feature.labels()):
        codes.setdefault(label, code)  # A listed value comes before a code without a value that has its name.
    found = [len(groups)] * feature.size
    for number, group in enumerate(groups):
        for value in group:
            if value not in codes:
                near = get_close_matches(value, list(codes), n=3, cutoff=0.5)
                hint = f"; near: {', '.join(map(quoted, near))}" if near else ""
                raise InputError("ask_invalid", f"feature {quoted(feature.name)} lists no value {quoted(value)}{hint}")
            if found[codes[value]] != len(groups):
                raise InputError("ask_invalid", f"feature {quoted(feature.name)}: {quoted(value)} is in two groups")
            found[codes[value]] = number
    return found


def _of_bins(feature: Feature | Component, bins: Sequence[int]) -> list[int]:
    edges = () if isinstance(feature, Categorical) else feature.edges
    if sum(bins) != len(edges) + 1:
        raise InputError(
            "ask_invalid", f"feature {quoted(feature.name)} has {len(edges) + 1} bins; bins = … must add up to that"
        )
    found = [number for number, count in enumerate(bins) for _ in range(count)]
    return found + [len(bins)] * (feature.size - len(found))
