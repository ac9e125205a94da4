"""For every signature check of docs/formats.md, section 5, some vector fails if a verifier leaves out the check.

Without these vectors another implementation of Ed25519 could leave out a check and pass all vectors.
"""

import pytest
from support.ed25519 import verifies
from vectors import kinds, runner

from protocol.documents import envelope

CASES = {name: case for name, case in runner.load_all() if name.startswith("signatures/")}
assert kinds  # importing it registers its kinds


def broken(monkeypatch, **options):
    monkeypatch.setattr(envelope, "_verifies", lambda *signed: verifies(*signed, **options))
    found = set()
    for name, case in CASES.items():
        try:
            runner.run(case)
        except AssertionError:
            found.add(name.removeprefix("signatures/"))
    return found


def test_the_rules_of_the_document_decide_every_case_as_libsodium_does(monkeypatch):
    assert len(CASES) >= 20
    assert not broken(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({"without": ("scalar",)}, {f"s_plus_{number}_times_the_order" for number in (1, 2, 8, 14)}),
        ({"without": ("key order",)}, {f"key_of_order_{order}" for order in (1, 2, 4, 8)}),
        ({"without": ("point order",)}, {"point_of_order_1"}),
        ({"cofactored": True}, {"point_with_a_part_of_small_order", "key_whose_part_of_small_order_is_left_over"}),
    ],
)
def test_a_check_that_is_left_out_or_changed_breaks_a_vector(faults, expected, monkeypatch):
    found = broken(monkeypatch, **faults)
    assert found >= expected
    assert "cofactored" not in faults or found == expected


@pytest.mark.slow
def test_spellings_that_are_not_the_shortest_are_refused_even_where_orders_are_not_looked_at(monkeypatch):
    """Only points of small order: for no other point with two encodings is a secret known."""
    plain = broken(monkeypatch, without=("key order", "point order"))
    lax = broken(monkeypatch, without=("key order", "point order", "key spelling", "point spelling"))
    assert lax - plain >= {"key_of_order_1_spelled_with_p_added", "point_of_order_1_spelled_with_p_added"}
