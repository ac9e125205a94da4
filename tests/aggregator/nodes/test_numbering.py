"""The numbers u of parties: the invariant n/2 < u ≤ n over joins and leaves, and what the printed algorithm does."""

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from aggregator.nodes.campaigns.numbering import ROOM, Numbering, first_numbers, renumbered

SEQUENCES = st.lists(st.integers(min_value=-1, max_value=30), max_size=60)
"""−1: a join; another number: the party at this place, modulo n, leaves."""


def node(number):
    return number.to_bytes(8, "big")


def problems(numbers):
    """What is wrong with numbers of parties."""
    parties, holders = len(numbers), Counter(numbers.values())
    found = [f"{u} of {parties}" for u in numbers.values() if not parties < 2 * u <= 2 * parties]
    return found + [f"{u} has {held}" for u, held in holders.items() if held > ROOM]


def others_changed(before, after):
    return sum(before[each] != after[each] for each in before.keys() & after.keys())


class Printed(Numbering):
    """The algorithm as printed: without the case of a leaver who held the largest number with one other party."""

    def leave(self, node):
        parties, number = len(self._numbers), self._numbers[node]
        if parties % 2 == 0 and number == parties and len(self._holders[number]) == 2:
            del self._numbers[node]
            self._holders[number].remove(node)
            return
        super().leave(node)

    def _free(self, parties, freed=0):
        """The number that the case names, also if the broken invariant leaves it no room."""
        try:
            return super()._free(parties, freed)
        except StopIteration:
            return parties // 2 + 1


@examples(60)
@given(st.integers(min_value=0, max_value=9), SEQUENCES)
def test_joins_and_leaves_keep_the_invariant_and_change_two_others_at_most(start, steps):
    numbering, last = Numbering(first_numbers(map(node, range(start)))), start
    assert problems(numbering.numbers) == []
    for step in steps:
        before = numbering.numbers
        if step < 0 or not before:
            numbering.join(node(last))
            last += 1
        else:
            numbering.leave(sorted(before)[step % len(before)])
        assert problems(numbering.numbers) == []
        assert others_changed(before, numbering.numbers) <= 2


@examples(60)
@given(st.sets(st.integers(0, 40), max_size=25), st.sets(st.integers(0, 40), max_size=25))
def test_a_new_list_changes_two_others_for_each_join_or_leave_beyond_replacements(old, new):
    before = first_numbers(map(node, old))
    after = renumbered(before, map(node, new))
    assert after.keys() == set(map(node, new))
    assert problems(after) == []
    if old:
        assert others_changed(before, after) <= 2 * abs(len(old) - len(new))


def grown_and_shrunk(numbering, steps, seed):
    """Random joins and leaves; every second time that many leave, holders of the largest number go first.

    Returns:
        the first step with a broken invariant, 0 if there is none; and the last numbers.
    """
    generator, last, broken = random.Random(seed), 0, 0
    for step in range(1, steps + 1):
        numbers = numbering._numbers
        if generator.random() < (0.8 if step % 400 < 200 else 0.2) or len(numbers) < 2:
            numbering.join(node(last))
            last += 1
        else:
            largest = max(numbers.values())
            numbering.leave(generator.choice([each for each, u in numbers.items() if u == largest]))
        if not broken and problems(numbering._numbers):
            broken = step
    return broken, numbering.numbers


def test_the_invariant_holds_over_a_long_run_and_the_printed_algorithm_breaks_it():
    assert grown_and_shrunk(Numbering({}), 3_000, 1)[0] == 0
    broken, _ = grown_and_shrunk(Printed({}), 3_000, 1)
    assert 0 < broken < 50


def test_the_noise_of_the_printed_algorithm_falls_below_one_copy():
    """Divided noise: a party adds 1/u of a copy of the noise. With the invariant the sum Σ 1/u is at least one copy."""
    for kind, enough in ((Numbering, True), (Printed, False)):
        numbering = kind(first_numbers(map(node, range(64))))
        while len(numbering.numbers) > 8:
            numbers = numbering.numbers
            parties = len(numbers)
            leaver = min(numbers, key=lambda each: (numbers[each] != parties, numbers[each], each))
            numbering.leave(leaver)
        copies = sum(1 / u for u in numbering.numbers.values())
        assert (copies >= 1) is enough
        if not enough:
            assert copies < 0.15
