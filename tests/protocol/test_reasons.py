"""docs/reference/reasons.md explains every reason in the source, and no other."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol", "edge_sdk", "aggregator", "simulation", "research")
CARRIERS = {"HearsayError", "InputError", "DocumentError", "PolicyError", "StorageError", "Damage", "complain"}
COUNTED = {"FAULTS", "_FAULTS", "WHY_NOT"}
"""Tables of reasons that are counted or listed, never raised."""
WORD = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def is_reason_name(name):
    return name == "reason" or name.upper().endswith("REASON")


def is_pair(node):
    """Whether a node is a pair of reason and sentence for an error: ``"disk_full", "there is no space left"``."""
    return (
        isinstance(node, ast.Tuple)
        and len(node.elts) == 2
        and isinstance(node.elts[0], ast.Constant)
        and isinstance(node.elts[1], ast.Constant | ast.JoinedStr)
        and WORD.fullmatch(str(node.elts[0].value)) is not None
        and " " in ast.unparse(node.elts[1])
    )


def texts(node):
    """The string constants that an expression may evaluate to; None for unsupported forms of expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.Constant) and node.value is None:
        return set()
    if isinstance(node, ast.IfExp):
        one, other = texts(node.body), texts(node.orelse)
        return None if one is None or other is None else one | other
    collected_elsewhere = (
        (isinstance(node, ast.Name) and is_reason_name(node.id))
        or (isinstance(node, ast.Attribute) and (node.attr == "reason" or ast.unparse(node.value) == "self.reasons"))
        or (isinstance(node, ast.Starred) and isinstance(node.value, ast.Name))  # a pair of reason and sentence
    )
    return set() if collected_elsewhere else None


def reasons(source):
    """The reasons that a source text may raise, and the places whose reason can not be determined."""
    found, unclear = set(), []

    def take(node):
        seen = texts(node)
        if seen is None:
            unclear.append((node.lineno, ast.unparse(node)))
        found.update(seen or ())

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in CARRIERS and node.args:
                take(node.args[0])
            for each in node.args if name == "Reasons" else ():
                take(each)
        elif isinstance(node, ast.Assign | ast.Return) and is_pair(node.value):
            take(node.value.elts[0])
        elif isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and is_reason_name(t.id) for t in node.targets
        ):
            take(node.value)
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id in COUNTED for t in node.targets):
            for each in node.value.keys if isinstance(node.value, ast.Dict) else node.value.elts:
                take(each)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "rejected":
            found.update({node.slice.value} if isinstance(node.slice, ast.Constant) else ())
        elif isinstance(node, ast.FunctionDef) and node.name.endswith("_fault"):
            for each in ast.walk(node):
                found.update(texts(each.value) or () if isinstance(each, ast.Return) and each.value else ())
        elif isinstance(node, ast.arguments):
            defaults = node.defaults + node.kw_defaults
            plain = node.posonlyargs + node.args
            named = plain[len(plain) - len(node.defaults) :] + node.kwonlyargs
            for argument, default in zip(named, defaults, strict=True):
                if default is not None and is_reason_name(argument.arg):
                    take(default)
    return found, unclear


@cache
def of_package(package):
    found, unclear = set(), []
    for path in sorted((ROOT / package).rglob("*.py")):
        some, places = reasons(path.read_text(encoding="utf-8"))
        found |= some
        unclear += [(path.name, *place) for place in places]
    return found, unclear


def documented():
    page = (ROOT / "docs" / "reference" / "reasons.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert all(meaning.endswith(".") and advice.endswith(".") for _, meaning, advice in rows)
    return [reason for reason, _, _ in rows]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_reason_is_documented(package):
    found, unclear = of_package(package)
    assert unclear == []
    assert found <= set(documented())
    assert all(WORD.fullmatch(reason) for reason in found)


@pytest.mark.parametrize(
    ("package", "some"),
    [
        ("protocol", {"malformed", "invalid_campaign", "invalid_model", "truncated", "epsilon_invalid"}),
        ("edge_sdk", {"budget_exhausted", "policy_refused", "state_busy", "entropy_unavailable"}),
        ("aggregator", {"store_busy", "not_utf8", "report_conflict", "report_too_early", "usage", "is_folder"}),
        ("aggregator", {"unrecognized_campaign", "question_not_assigned", "internal_error"}),
        ("simulation", {"split_invalid"}),
    ],
)
def test_the_walk_finds_what_packages_surely_raise_count_and_print(package, some):
    assert some <= of_package(package)[0]
    assert len(of_package("protocol")[0]) > 30


def test_no_row_is_repeated_or_about_nothing():
    rows = documented()
    assert len(set(rows)) == len(rows)
    source = "\n".join(
        path.read_text(encoding="utf-8") for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    )
    assert [reason for reason in rows if f'"{reason}"' not in source] == []


def test_the_walk_sees_each_way_of_naming_a_reason():
    found, unclear = reasons(
        "_REASON = 'a'\n"
        "def f(x, reason='b', *, other_reason='c'):\n"
        "    reason = 'd' if x else 'e'\n"
        "    raise errors.InputError('f', 'text')\n"
        "    raise InputError(reason, 'text')\n"
        "    raise DocumentError(x.y, 'text')\n"
        "    yield Damage('g', 0, 1)\n"
        "    problem = ('h', f'{x} is wrong')\n"
        "    raise InputError(*problem)\n"
        "    raise InputError(error.reason, 'text')\n"
        "    rejected['i'] += 1\n"
        "    return 'j', 'a sentence'\n"
        "    return 'not_a_reason', 'word'\n"
        "_FAULTS = ('k', 'l')\n"
        "def _header_fault():\n"
        "    return 'm' if x else None\n"
    )
    assert found == set("abcdefghijklm")
    assert unclear == [(6, "x.y")]
