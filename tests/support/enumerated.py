"""Exact distributions of samplers, by following every sequence of random choices.

A sampler draws integers with ``Stream.below``. Here a replacement of the stream makes every choice in turn and
multiplies the probabilities.
"""

from collections import Counter
from fractions import Fraction


def enumerated(draw, least):
    """The exact probabilities of what a sampler returns, over all sequences of choices that are likely enough.

    Args:
        draw: calls the sampler with a stream, of which it uses ``below`` alone.
        least: sequences with a smaller probability are not followed.

    Returns:
        result → probability of the sequences that were followed, and the probability of all others.
    """
    walk = _Walk(least)
    found = Counter()
    pending = [()]
    missing = Fraction(0)
    while pending:
        walk.start(pending.pop(), pending)
        try:
            found[draw(walk)] += walk.probability
        except _UnlikelyError:
            missing += walk.probability
    return found, missing


class _UnlikelyError(Exception):
    pass


class _Walk:
    """A stream that makes one sequence of choices: those of ``prefix``, and then the first choice each time."""

    def __init__(self, least):
        self.least = least

    def start(self, prefix, pending):
        self.prefix, self.pending, self.made, self.probability = prefix, pending, (), Fraction(1)

    def below(self, bound):
        return _Drawn(self, bound)

    def choose(self, chances):
        """The index of the choice that this sequence makes among choices with these probabilities."""
        if 1 in chances:
            return chances.index(Fraction(1))
        depth = len(self.made)
        if depth < len(self.prefix):
            index = self.prefix[depth]
        else:
            self.pending.extend((*self.made, other) for other in range(1, len(chances)) if chances[other])
            index = 0
        self.made += (index,)
        self.probability *= chances[index]
        if 0 < self.probability < self.least:
            raise _UnlikelyError
        return index


class _Drawn:
    """A uniform integer below a bound, known to be in a range that comparisons make smaller."""

    def __init__(self, walk, bound):
        self.walk, self.low, self.high = walk, 0, bound

    def __lt__(self, other):
        other = min(max(other, self.low), self.high)
        chance = Fraction(other - self.low, self.high - self.low)
        is_below = self.walk.choose([1 - chance, chance]) == 1
        self.low, self.high = (self.low, other) if is_below else (other, self.high)
        return is_below

    def __index__(self):
        count = self.high - self.low
        self.low += self.walk.choose([Fraction(1, count)] * count)
        self.high = self.low + 1
        return self.low

    def __add__(self, other):
        return int(self) + other

    __radd__ = __add__

    def __divmod__(self, other):
        return divmod(int(self), other)

    def __bool__(self):
        return int(self) != 0
