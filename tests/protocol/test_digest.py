"""The interpreter's SHA-256 and OpenSSL's give the same bytes. The first does not load OpenSSL."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from protocol.stream import bulk_sha256, hmac_sha256, sha256


@given(st.binary(max_size=300))
def test_both_are_sha256(data):
    assert sha256(data).digest() == bulk_sha256(data).digest() == hashlib.sha256(data).digest()


@given(st.binary(max_size=64), st.binary(max_size=200))
def test_the_hmac_is_that_of_the_standard_library(key, message):
    assert hmac_sha256(key, message) == hmac.digest(key, message, "sha256")


def test_rfc_4231_case_2():
    assert hmac_sha256(b"Jefe", b"what do ya want for nothing?").hex() == (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


def loads_openssl(code: str) -> bool:
    probe = f"import sys\n{code}\nprint('_hashlib' in sys.modules)"
    run = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, check=True, text=True)
    return run.stdout.strip() == "True"


def test_signed_documents_are_read_without_openssl():
    assert not loads_openssl(
        "import protocol.documents.campaign, protocol.documents.model, protocol.batches.batch, protocol.documents.trust"
    )
    assert loads_openssl("from protocol.stream import bulk_sha256\nbulk_sha256(b'')")
