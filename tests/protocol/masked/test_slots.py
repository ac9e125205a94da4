"""Slots: totals are read back whatever their signs, what does not fit is refused, and what is no total is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from protocol.errors import DocumentError, InputError
from protocol.masked.fields import Slots


@st.composite
def tables(draw):
    """A width, and numbers of several nodes whose sums fit."""
    bits = 8 * draw(st.integers(5, 25))
    nodes, count = draw(st.integers(1, 4)), draw(st.integers(1, 120))
    limit = (2 ** (bits - 1) - 1) // nodes
    ends = st.sampled_from([-limit, -1, 0, 1, limit])
    return bits, [
        draw(st.lists(ends | st.integers(-limit, limit), min_size=count, max_size=count)) for _ in range(nodes)
    ]


@given(tables())
@examples(100)
def test_sums_of_plaintexts_are_plaintexts_of_the_sums(table):
    bits, rows = table
    slots = Slots(bits)
    packed = [slots.pack(row) for row in rows]
    totals = [sum(column) for column in zip(*packed, strict=True)]
    assert len(totals) == slots.plaintexts(len(rows[0])) == -(-len(rows[0]) // (2000 // bits))
    assert slots.unpack(totals, len(rows[0])) == [sum(column) for column in zip(*rows, strict=True)]
    assert all(abs(total) < 2**2000 for total in totals)


@pytest.mark.parametrize("bits", [40, 48, 200])
def test_a_number_fits_up_to_half_its_slot(bits):
    slots, limit = Slots(bits), 2 ** (bits - 1)
    for fits in (limit - 1, 1 - limit):
        assert slots.unpack(slots.pack([0, fits, 5]), 3) == [0, fits, 5]
    for large in (limit, -limit, 2**3000, -(2**3000)):
        with pytest.raises(InputError, match="slot_overflow: number 1 does not") as refused:
            slots.pack([0, large, 5])
        assert str(abs(large))[:9] not in str(refused.value)


@given(tables(), st.integers(0, 2**60), st.integers(0))
@examples(50)
def test_numbers_plus_noise_are_laid_out_without_a_refusal(table, size, place):
    bits, rows = table
    slots = Slots(bits)
    noise = [0] * len(rows[0])
    noise[place % len(noise)] = size << bits
    both = [exact + extra for exact, extra in zip(slots.pack(rows[0]), slots.spread(noise), strict=True)]
    assert both == slots.spread([exact + extra for exact, extra in zip(rows[0], noise, strict=True)])


def test_a_total_that_overflows_changes_its_neighbour_and_no_other():
    slots = Slots(40)
    half = 2**39
    assert slots.unpack(slots.spread([3, half + 7, 5, 6]), 4) == [3, 7 - half, 6, 6]


@given(st.integers(1, 120), st.integers(5, 25), st.data())
@examples(50)
def test_what_is_left_after_the_last_slot_is_a_mismatch(count, octets, data):
    slots = Slots(8 * octets)
    plaintexts = slots.pack([1] * count)
    place = data.draw(st.integers(0, len(plaintexts) - 1))
    used = slots.each if place + 1 < len(plaintexts) else count - slots.each * place
    plaintexts[place] += data.draw(st.integers(-(2**40), 2**40).filter(bool)) << (slots.bits * used)
    with pytest.raises(DocumentError, match="mask_mismatch"):
        slots.unpack(plaintexts, count)


def test_another_number_of_plaintexts_is_a_mismatch():
    for plaintexts in ([], [0], [0, 0, 0]):
        with pytest.raises(DocumentError, match="mask_mismatch"):
            Slots(40).unpack(plaintexts, 51)


@pytest.mark.parametrize("bits", [-1, 0, 1, 2001])
def test_a_width_that_holds_no_signed_number_is_refused(bits):
    with pytest.raises(InputError, match="argument_invalid"):
        Slots(bits)
