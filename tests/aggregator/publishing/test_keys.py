"""Key files: under a passphrase or not, opened by nobody else, and never a way to eat time or memory."""

import stat
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.failures import everything_said, reason
from support.publisher import key

from aggregator.common.sealing import STANDARD, Cost
from aggregator.publishing import keys
from aggregator.publishing.keys import key_file, parse_key, parse_public, public_line, read_key, write_key
from protocol import canonical
from protocol.errors import InputError, StorageError

CHEAP = Cost(1, 8192)
SECRET = b"correct horse"
WRONG = b"battery staple"


def sealed(passphrase=SECRET, role="campaign", number=5):
    return key_file(role, key(number), passphrase, cost=CHEAP)


def changed(**fields):
    return canonical.pack({**canonical.unpack(sealed().to_bytes()), **fields})


def resealed(**fields):
    return changed(sealed=canonical.pack({**canonical.unpack(sealed().sealed), **fields}))


@pytest.mark.parametrize("passphrase", [None, SECRET, "Schlüssel".encode(), b"x" * 1024])
def test_a_key_comes_back_from_its_file(tmp_path, passphrase):
    made = sealed(passphrase)
    write_key(tmp_path / "a.key", made)
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600
    found = read_key(tmp_path / "a.key")
    assert found == made
    assert (found.role, found.public, found.encrypted) == ("campaign", key(5).public, passphrase is not None)
    assert found.open(lambda: passphrase) == key(5)


def test_an_encrypted_file_shows_no_seed_and_has_a_salt_and_nonce_of_its_own():
    one, other = sealed(), sealed()
    assert key(5).seed not in one.to_bytes()
    assert key(5).seed in sealed(None).to_bytes()
    assert repr(one) == f"<encrypted campaign key {one.id}>"
    assert repr(sealed(None)) == f"<campaign key {one.id}>"
    parts = [canonical.unpack(each.sealed) for each in (one, other)]
    assert all(parts[0][name] != parts[1][name] for name in ("salt", "nonce", "box"))


def test_a_wrong_passphrase_says_nothing_and_what_stands_beside_the_box_is_not_believed():
    with pytest.raises(InputError) as refused:
        sealed().open(lambda: WRONG)
    assert refused.value.reason == "passphrase_wrong"
    assert WRONG.decode() not in everything_said(refused.value)
    assert reason(sealed().open) == "passphrase_missing"
    assert reason(key_file, "root", key(1), b"") == "passphrase_missing"
    for fields in ({"role": "root"}, {"public": key(6).public}):
        assert reason(parse_key(changed(**fields)).open, lambda: SECRET) == "passphrase_wrong"


@examples(60)
@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_opens_another_key(position, bit):
    raw = bytearray(sealed().to_bytes())
    raw[position % len(raw)] ^= 1 << bit
    try:
        opened = parse_key(bytes(raw)).open(lambda: SECRET)
    except (InputError, StorageError) as error:
        opened = None
        why = error.reason
    assert opened == key(5) or why in ("key_invalid", "key_newer", "passphrase_wrong", "memory_short")


HOSTILE = [
    *(resealed(memory=memory) for memory in ((1 << 30) + 1, 1 << 62, 0, True, "8192")),
    *(resealed(passes=passes) for passes in (17, 1 << 40, 0)),
    *(resealed(**fields) for fields in ({"salt": bytes(15)}, {"nonce": bytes(25)}, {"box": None})),
    *(changed(sealed=value) for value in (None, b"")),
    *(changed(role=role) for role in ("node", None)),
    *(changed(hearsay_key=number) for number in (0, -1, -(1 << 63))),
    changed(public=bytes(31)),
    *(b"", b"\xc0", b"\x80", b"hello", b"\xdd\xff\xff\xff\xff", canonical.pack({"hearsay_key": "1"})),
]


@pytest.mark.parametrize("raw", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_files_are_refused_before_any_work(raw):
    tracemalloc.start()
    assert reason(parse_key, raw) == "key_invalid"
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_files_that_are_newer_or_large(tmp_path):
    assert reason(parse_key, canonical.pack({"hearsay_key": 3})) == "key_newer"
    (tmp_path / "a.key").write_bytes(bytes(5000))
    assert reason(read_key, tmp_path / "a.key") == "too_large"


def test_too_little_memory_has_a_name(monkeypatch):
    from nacl.pwhash import argon2id

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(argon2id, "kdf", fail)
    assert reason(sealed(None).open) is None
    assert reason(sealed, SECRET) == "memory_short"


def test_new_files_cost_a_second():
    assert keys.COST == STANDARD == (3, 256 << 20)


def test_the_public_part_is_a_line_for_one_role():
    line = public_line(sealed())
    assert line == f"hearsay-key-1 campaign {key(5).public.hex()}\n"
    assert parse_public(line.encode(), "campaign") == key(5).public
    assert reason(parse_public, line.encode(), "model") == "wrong_key"
    spoilt = line.replace(key(5).public.hex()[:2], "zz")
    for wrong in ("", "hearsay-key-1 campaign", line.replace("1 c", "2 c"), line[:-3], "\xff" * 80, spoilt):
        assert reason(parse_public, wrong.encode("latin-1"), "campaign") == "key_invalid"
