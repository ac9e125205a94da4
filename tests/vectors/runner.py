"""Runs conformance vectors: one JSON case in, nothing or an ``UnfitVectorError`` or an assertion out.

A case has a name, the section of docs/formats.md or docs/math.md it checks, a kind, the inputs of that
kind, and either ``expect`` (what comes out) or ``reason`` (the stable reason it must fail with). The
inputs of a kind are the parameters of the function registered for it: a case with a field that the
function does not take, or without one that it takes, is refused, so a vector can not be half checked.
"""

import inspect
import json
from functools import cache
from pathlib import Path

from protocol.errors import HearsayError

FOLDER = Path(__file__).parent
_COMMON = {"name", "spec", "kind", "notes", "expect", "reason"}
_FILE_FIELDS = {"source", "documents", "cases"}
_KINDS = {}


class UnfitVectorError(Exception):
    """The case itself is wrong: an unknown kind or field, a missing one, no or two expectations."""


def kind(function):
    """Register a function as the kind of its own name."""
    _KINDS[function.__name__] = function
    return function


def kinds():
    """The names of all registered kinds."""
    return frozenset(_KINDS)


@cache
def load_all():
    """Every case of every file, with a name that is unique over all files. Callers do not change the cases."""
    return tuple(
        (f"{path.stem}/{case.get('name')}", case)
        for path in sorted(FOLDER.glob("*/*.json"))
        for case in load(json.loads(path.read_text(encoding="utf-8")))
    )


def load(content):
    """The cases of one file; texts that begin with ``@`` are names of its shared documents."""
    if not set(content) <= _FILE_FIELDS or not {"source", "cases"} <= set(content):
        raise UnfitVectorError(f"a vector file has the fields {sorted(_FILE_FIELDS)}")
    documents = content.get("documents", {})
    cases = [_resolve(case, documents) for case in content["cases"]]
    names = [case.get("name") for case in cases]
    if len(set(names)) != len(names):
        raise UnfitVectorError("two cases of one file have the same name")
    return cases


def _resolve(value, documents):
    if isinstance(value, dict):
        return {key: _resolve(item, documents) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, documents) for item in value]
    if isinstance(value, str) and value.startswith("@"):
        if value[1:] not in documents:
            raise UnfitVectorError(f"no document is called {value[1:]}")
        return documents[value[1:]]
    return value


def run(case):
    """Check one case.

    Raises:
        UnfitVectorError: the case is not one this runner understands in full.
        AssertionError: the code disagrees with it.
    """
    function = _KINDS.get(case.get("kind", ""))
    if function is None:
        raise UnfitVectorError(f"unknown kind {case.get('kind')!r}")
    if not {"name", "spec"} <= set(case) or ("expect" in case) == ("reason" in case):
        raise UnfitVectorError("a case has name, spec, and one of expect and reason")
    inputs = {key: value for key, value in case.items() if key not in _COMMON}
    if set(inputs) != set(inspect.signature(function).parameters):
        raise UnfitVectorError(f"the fields of {case['kind']} are {list(inspect.signature(function).parameters)}")
    try:
        outcome = {"expect": function(**inputs)}
    except HearsayError as error:
        outcome = {"reason": error.reason}
    expected = {key: case[key] for key in ("expect", "reason") if key in case}
    assert outcome == expected, f"{case['name']}: got {outcome}, not {expected}"
