"""Provisioning files: written files are read, damaged files are refused, and no text shows the secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hostile import every_bit

from protocol.documents.provisioning import Provisioning, build_provisioning, parse_provisioning
from protocol.errors import DocumentError, HearsayError

SECRET = bytes(range(32))
GOOD = build_provisioning(Provisioning("orchard", "gate 7", SECRET))
# Debian 12's hypothesis, with which the tests run on ARM, knows the older name of `categories` only.
names = st.text(st.characters(max_codepoint=0x7F, whitelist_categories=["L", "N", "P"]), min_size=1, max_size=40)


@given(fleet=names, device=names, secret=st.binary(min_size=32, max_size=32))
def test_what_is_written_is_read(fleet, device, secret):
    made = Provisioning(fleet, device, secret)
    assert parse_provisioning(build_provisioning(made)) == made


def test_every_truncation_and_every_flipped_bit_is_refused():
    for raw in (*(GOOD[:length] for length in range(len(GOOD))), *every_bit(GOOD)):
        with pytest.raises(DocumentError, match=r"^(malformed|unsupported_version)"):
            parse_provisioning(raw)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(raw):
    with pytest.raises(HearsayError):
        parse_provisioning(raw)


def test_neither_repr_nor_errors_show_the_secret():
    made = Provisioning("orchard", "gate 7", SECRET)
    assert "secret" not in repr(made)
    with pytest.raises(DocumentError) as caught:
        build_provisioning(made._replace(secret=b"thirty-one bytes of a true secret"))
    assert "thirty" not in str(caught.value)
