"""The files of a dealer's folder: how they are made, and how the public file and the secret are read."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from aggregator.common.files import storage_errors, sync_folder, write_output
from aggregator.nodes.campaigns.dealer_file import DealerPublic, public_bytes, read_dealer
from aggregator.nodes.dealer.journal import create_journal
from aggregator.nodes.dealer.place import check_place, machine_mark
from aggregator.nodes.dealer.secret_keys import new_modulus
from aggregator.publishing.keys import key_file, read_key, write_key
from protocol.documents.envelope import KEY_BYTES, SigningKey
from protocol.errors import InputError, StorageError

ROLE = "dealer"
KEY_FILE, PUBLIC_FILE, JOURNAL_FILE = "dealer.key", "dealer.pub", "journal.sqlite"


def create_folder(
    path: Path, passphrase: bytes | None, modulus: int | None, entropy: Callable[[int], bytes], made_at: int
) -> None:
    """Make a dealer's folder. It appears complete or not at all.

    Args:
        path: an absolute path of a folder that does not exist, or is empty.
        passphrase: encrypts the secret; None keeps it in the clear.
        modulus: N of 2048 bits; None makes a new one.
        entropy: returns as many random bytes as it is asked for.
        made_at: seconds since 1970.

    Raises:
        InputError, StorageError: the reasons of :meth:`aggregator.nodes.dealer.dealer.Dealer.create`.
    """
    _check_new(path)
    signer = SigningKey.from_seed(entropy(KEY_BYTES))
    kept = key_file(ROLE, signer, passphrase, entropy=entropy)
    public = public_bytes(signer, new_modulus() if modulus is None else modulus)
    hidden = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        with storage_errors(f"'{path}' could not be written"):
            hidden.mkdir(mode=0o700)
            write_key(hidden / KEY_FILE, kept)
            write_output(hidden / PUBLIC_FILE, public)
            create_journal(hidden / JOURNAL_FILE, signer.public, machine_mark(), made_at)
            hidden.rename(path)
            sync_folder(path.parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _check_new(path: Path) -> None:
    """Refuse a path at which no dealer's folder can be made.

    Raises:
        InputError: ``output_invalid``: the path has a zero byte; ``dealer_in_workspace``.
        StorageError: ``dealer_exists``: the path is no folder, or a folder with content.
    """
    if "\0" in str(path):
        raise InputError("output_invalid", "the path of a folder can not have a zero byte; choose another name")
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise StorageError("dealer_exists", f"'{path}' exists and is not an empty folder; nothing was changed")
    check_place(path)


def open_secret(path: Path, public: DealerPublic, passphrase: Callable[[], bytes]) -> SigningKey:
    """The dealer's key pair, whose seed is the secret.

    Args:
        path: the dealer's folder.
        public: the dealer that the secret must belong to.
        passphrase: returns the passphrase; called if the key file is encrypted.

    Raises:
        InputError: the reasons of a passphrase.
        StorageError: ``dealer_damaged``: the key file is lost, damaged or another dealer's.
    """
    problem, found = "", None
    try:
        found = read_key(path / KEY_FILE, (ROLE,))
    except InputError as error:
        problem = error.detail
    if found is None or found.public != public.key:
        raise StorageError("dealer_damaged", f"'{KEY_FILE}' can not be used: {problem or 'another dealer has it'}")
    return found.open(passphrase)


def read_public(path: Path) -> DealerPublic:
    """The public file in a dealer's folder.

    Raises:
        StorageError: ``dealer_damaged``: it is lost or damaged.
    """
    problem = ""
    try:
        return read_dealer(path / PUBLIC_FILE)
    except InputError as error:
        problem = error.detail
    raise StorageError("dealer_damaged", f"'{PUBLIC_FILE}' can not be used: {problem}")
