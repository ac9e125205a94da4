"""Mechanisms of other packages, by the entry-point group ``hearsay.mechanisms``: installed, broken, lying, absent."""

import importlib
import pickle
import sys

import pytest
from support.failures import failure, reason

from protocol import mechanisms
from protocol.errors import HearsayError
from protocol.mechanisms import Mechanism
from protocol.mechanisms.by_family import ByFamily
from protocol.mechanisms.direct import Direct

GOOD = """
from protocol.mechanisms.direct import Direct

class Own(Direct):
    __slots__ = ()
    name = "brought"
    estimators = "brought_estimators"
"""
BARE = "from protocol.mechanisms import Mechanism\nclass Own(Mechanism):\n    name = 'brought'"
ESTIMATORS = """
from brought_package import Own
from protocol.mechanisms import known

known.register(Own)(lambda mechanism: "its own")
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a package as pip would: modules and entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(mechanisms, "_foreign", {})
    mechanisms._derived.cache_clear()
    before = set(sys.modules)

    def put(source, distribution="brought", module="brought_package", **entries):
        information = tmp_path / f"{distribution}-1.0.dist-info"
        information.mkdir()
        (tmp_path / f"{module}.py").write_text(source, "utf-8")
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", "utf-8")
        lines = [f"{name} = {target}" for name, target in entries.items()]
        (information / "entry_points.txt").write_text("\n".join([f"[{mechanisms.GROUP}]", *lines, ""]), "utf-8")
        importlib.invalidate_caches()

    yield put
    mechanisms._derived.cache_clear()
    for name in set(sys.modules) - before:
        if name.startswith(("brought", "other_package")):
            del sys.modules[name]


def refusal(name):
    assert "\n" not in str(failure(mechanisms.from_epsilon, name, "1", 4))
    return reason(mechanisms.from_epsilon, name, "1", 4)


def test_an_installed_mechanism_is_found_by_its_name_and_is_none_of_the_table(install):
    assert refusal("brought") == "mechanism_unknown"
    install(GOOD, brought="brought_package:Own")
    made = mechanisms.from_epsilon("brought", "1", 4)
    assert made == mechanisms.from_dict(made.to_dict()) == pickle.loads(pickle.dumps(made))
    assert mechanisms.foreign() == ("brought",)
    assert "brought" not in mechanisms.names()


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 33, "é", None, 5, ["direct"], "protocol.mechanisms"])
def test_what_is_no_name_reads_no_list_of_packages(install, monkeypatch, name):
    monkeypatch.setattr(mechanisms, "_load", lambda _name: pytest.fail("the list of packages is read"))
    assert refusal(name) == "mechanism_unknown"


def test_no_package_takes_a_name_over(install):
    install(GOOD.replace('"brought"', '"direct"'), direct="brought_package:Own")
    assert type(mechanisms.from_epsilon("direct", "1", 4)) is Direct
    assert mechanisms.foreign() == ()
    assert reason(mechanisms.add, type("Own", (Direct,), {"__slots__": ()})) == "mechanism_unknown"


def test_of_a_name_that_two_packages_bring_none_is_used(install):
    install(GOOD, brought="brought_package:Own")
    install(GOOD, distribution="other", module="other_package", brought="other_package:Own")
    assert refusal("brought") == "mechanism_unknown"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("import absent_module", "brought_package:Own"),
        ("def", "brought_package:Own"),
        ("raise ValueError('no text of a package is shown')", "brought_package:Own"),
        (GOOD, "brought_package:Other"),
        ("Own = 5", "brought_package:Own"),
        ("class Own: name = 'brought'", "brought_package:Own"),
        (GOOD.replace('"brought"', '"another"'), "brought_package:Own"),
        (BARE, "brought_package:Own"),
    ],
)
def test_a_package_that_brings_no_whole_mechanism_is_refused(install, source, target):
    install(source, brought=target)
    assert refusal("brought") == "mechanism_incomplete"


def test_the_functions_of_the_aggregator_are_imported_at_the_first_call(install, monkeypatch):
    @ByFamily
    def known(_mechanism):
        return "nothing"

    monkeypatch.setattr(mechanisms, "known", known, raising=False)
    install(GOOD, brought="brought_package:Own")
    made = mechanisms.from_epsilon("brought", "1", 4)
    with pytest.raises(HearsayError, match=r"^mechanism_incomplete: brought_estimators can not be imported"):
        known(made)
    install(ESTIMATORS, distribution="second", module="brought_estimators")
    assert "brought_estimators" not in sys.modules, "a device imports none of it"
    assert (known(made), known.has(type(made))) == ("its own", True)
    assert (known(mechanisms.from_epsilon("direct", "1", 4)), known.has(Direct)) == ("nothing", False)


def test_the_answers_that_exist_are_asked_of_classes_that_say_nothing_too():
    class Silent(Direct):
        __slots__ = ()
        impossible = Mechanism.impossible

    made = Silent.from_micro(1_000_000, 4)
    assert made.impossible([0]) is None
    assert made.set_bits_law() is None
