"""Masked sums: what a set's release opens, and that nothing else does."""

from __future__ import annotations

import random

import pytest

from protocol.errors import DocumentError
from protocol.masked.cipher import Unmasking, mask_all, new_secret, release_elements
from protocol.masked.slots import Slots

CAMPAIGN = bytes(range(32))
MODULUS = (2**127 - 1) * (2**89 - 1)
"""Two Mersenne primes: 216 bits."""


def test_a_release_opens_the_sums_of_its_set():
    generator = random.Random(1)
    slots = Slots(24, 168)
    secrets = [new_secret(generator.randbytes) for _ in range(5)]
    numbers = [[generator.randrange(-(10**5), 10**5) for _ in range(17)] for _ in secrets]
    count = slots.plaintexts(17)
    assert count == 3
    unmasking = Unmasking(MODULUS, count)
    for secret, own in zip(secrets, numbers, strict=True):
        unmasking.add(mask_all(slots.pack(own), secret, CAMPAIGN, 7, MODULUS))
    released = release_elements(sum(secrets), CAMPAIGN, 7, count, MODULUS)
    assert slots.unpack(unmasking.opened(released), 17) == [sum(column) for column in zip(*numbers, strict=True)]
    with pytest.raises(DocumentError, match="mask_mismatch"):
        unmasking.opened(release_elements(sum(secrets), CAMPAIGN, 8, count, MODULUS))
