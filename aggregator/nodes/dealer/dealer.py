"""The dealer of masked sums: a folder with one secret, the public file and the journal. Run on a machine of its own.

The secret is ``dealer.key``, the public file ``dealer.pub``, and ``journal.sqlite`` says what was released
(docs/formats.md, section 11). The dealer never gets the parties' ciphertexts. It refuses a set of too few parties, and
a second set for a period, since the difference of two sums can be one party's numbers. A set is durable before its
release is handed out; the same request again gets the same bytes. Requests are not signed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Self

from aggregator.common.files import new_folder, read_file, write_output
from aggregator.common.passphrases import passphrase_from
from aggregator.nodes.campaigns.dealer_file import DealerPublic, public_bytes, read_dealer
from aggregator.nodes.dealer.issuing import (
    Documents,
    IssuedBook,
    ReleasedSum,
    campaign_row,
    check_documents,
    first_book,
    new_modulus,
    next_book,
    parsed_campaign,
    release_set,
    serial_after_adoption,
    signed_book,
)
from aggregator.nodes.dealer.journal import BookRow, CampaignRow, Journal, ReleaseRow, create_journal
from aggregator.publishing.keys import key_file, read_key, write_key
from aggregator.reports.storage.manifest import FILE_NAME as STORE_FILE
from aggregator.reports.storage.manifest import SUMMARIES_FILE
from protocol.database import machine_ids
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import KEY_BYTES, SIZE_LIMITS, SigningKey
from protocol.errors import InputError, StorageError
from protocol.masked.release import MAX_REQUEST_BYTES, parse_request

ROLE = "dealer"
KEY_FILE, PUBLIC_FILE, JOURNAL_FILE = "dealer.key", "dealer.pub", "journal.sqlite"
Given = bytes | str | Path
"""A document: its bytes, or its file."""
Passphrase = Callable[[], bytes] | bytes | str | None
Clock = Callable[[], float]
"""Seconds since 1970."""


class ServedCampaign(NamedTuple):
    """A campaign in its dealer's journal: its row, rows of all versions of its key book, and of its releases."""

    campaign: Campaign
    row: CampaignRow
    books: list[BookRow]
    releases: list[ReleaseRow]


class Dealer:
    """An open dealer's folder, for a ``with`` block. All methods may raise ``dealer_damaged`` and ``dealer_busy``."""

    def __init__(
        self, path: Path, journal: Journal, public: DealerPublic, passphrase: Callable[[], bytes], clock: Clock
    ) -> None:
        self.path = path
        self.public = public
        self._journal = journal
        self._passphrase = passphrase
        self._clock = clock

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        passphrase: bytes | str | None = None,
        modulus: int | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        clock: Clock = time.time,
    ) -> Self:
        """``hearsay masked new``: make a dealer's folder, and open it. It appears complete or not at all.

        Raises InputError: ``dealer_in_workspace``; ``missing_extra``: the library is not installed;
        ``passphrase_missing``; ``output_invalid``: no folder can have this path. Raises StorageError:
        ``dealer_exists``: the path is no folder, or a folder with content; ``memory_short``.

        Args:
            path: a folder that does not exist, or is empty.
            passphrase: encrypts the secret; None keeps it in the clear.
            modulus: N of 2048 bits, for tests; None makes a new one with the library ``cryptography``.
            entropy: returns as many random bytes as it is asked for.
        """
        path = Path(path).absolute()
        secret = passphrase.encode() if isinstance(passphrase, str) else passphrase
        _create_folder(path, secret, modulus, entropy, int(clock()))
        return cls.open(path, passphrase, clock=clock)

    @classmethod
    def open(cls, path: str | Path, passphrase: Passphrase = None, *, clock: Clock = time.time) -> Self:
        """Open a dealer's folder. The secret stays closed until something is signed.

        ``passphrase`` is that of the secret, or a function that returns it; None means the first line of the file that
        ``HEARSAY_PASSPHRASE_FILE`` names. Raises InputError ``dealer_in_workspace``: the folder is in one tree with a
        workspace or store. Raises StorageError: ``not_a_dealer``; ``dealer_damaged``: the public file is lost or
        another dealer's; ``dealer_copied``: the folder is a copy or a restored backup; ``dealer_newer``.
        """
        return cls._open(Path(path), passphrase, clock, machine_mark())

    @classmethod
    def adopt(cls, path: str | Path, passphrase: Passphrase = None, *, clock: Clock = time.time) -> Self:
        """``hearsay masked adopt``: go on with a copy, a restored backup or a folder on another disk, and open it.

        The other copy may have released sets that this copy does not know. So this copy never releases anything for a
        period that has begun, unless the same set is in its journal, and its next keys get serial numbers from a random
        number on. This is safe only if no other copy is in use from now on, and the clocks of both were right. Nodes
        that have a newer key book of the other copy refuse a book of the same version (``equivocation``) until
        ``rekey`` was run for as many lists. Arguments and errors are those of :meth:`open`, without ``dealer_copied``.
        """
        with cls._open(Path(path), passphrase, clock, None) as dealer:
            dealer.take_over()
        return cls.open(path, passphrase, clock=clock)

    def take_over(self) -> None:
        """Make this folder the original, for :meth:`adopt` alone: no begun period is released, keys get new serials."""
        now = int(self._clock())
        with self._journal.transaction():
            for row in self._journal.campaigns():
                next_period = parsed_campaign(row).period_at(now) + 1
                serial = serial_after_adoption(self._journal, row.campaign)
                self._journal.put(
                    "campaigns", row._replace(first_period=max(row.first_period, next_period), next_serial=serial)
                )
            self._journal.adopt(machine_mark(), now)

    @classmethod
    def _open(cls, path: Path, passphrase: Passphrase, clock: Clock, machine: bytes | None) -> Self:
        check_place(path)
        journal = Journal(path / JOURNAL_FILE, machine)
        try:
            public = _read_public(path)
            if journal.keeper().public != public.key:
                raise StorageError("dealer_damaged", "public file and journal are of two dealers; restore both")
        except BaseException:
            journal.close()
            raise
        return cls(path, journal, public, passphrase_from(passphrase), clock)

    def close(self) -> None:
        """Close the journal. A second call does nothing."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def setup(self, campaign: Given, listed: Given, trusted: Given) -> IssuedBook:
        """``hearsay masked setup``: make the keys of all parties of a campaign, once. Return the first key book.

        ``campaign`` names this dealer and its modulus; the nodes of ``listed`` become the parties; the campaign keys of
        the trust root ``trusted`` must have signed both. The book is in the journal on return: ``rekey`` with the same
        list gives it again. Raises InputError: ``already_set_up``; ``campaign_not_masked``; ``wrong_key``: the campaign
        names another dealer or modulus; ``parties_too_few``: less than 2; ``parties_too_many``; ``key_invalid``: no key
        can be sealed to a node; also the reasons of unreadable files and passphrases. Raises DocumentError
        ``bad_signature``, ``expired``, ``other_name``: the campaign names another list.
        """
        documents = self._documents(campaign, listed, trusted, begins=True)
        signer = self._signer()
        with self._journal.transaction():
            if self._journal.campaign(documents.campaign.id) is not None:
                raise InputError(
                    "already_set_up",
                    "the keys of this campaign were made; hearsay masked rekey makes a book for a newer list, or gives "
                    "the present one again",
                )
            return first_book(self._journal, signer, documents, int(self._clock()))

    def rekey(self, campaign: Given, listed: Given, trusted: Given) -> IssuedBook:
        """``hearsay masked rekey``: make the key book for a newer list of nodes.

        Arguments are those of :meth:`setup`, which says further errors. Parties that join get a key, and for each join
        or leave at most two other parties get a new number u and key. For the list of the present book that book is
        returned. Raises InputError ``not_set_up``: the campaign has no keys yet; DocumentError ``rollback``: the list
        is older than that of the present book; ``equivocation``: it is another list of the same version.
        """
        documents = self._documents(campaign, listed, trusted, begins=False)
        signer = self._signer()
        with self._journal.transaction():
            row = campaign_row(self._journal, documents.campaign.id)
            return next_book(self._journal, signer, documents, row, int(self._clock()))

    def book(self, campaign: bytes) -> bytes:
        """Return the bytes of a campaign's newest key book. Raises ``not_set_up``, ``passphrase_wrong``."""
        signer = self._signer()
        with self._journal.snapshot():
            return signed_book(self._journal, signer, campaign_row(self._journal, campaign))

    def release(self, request: Given, *, at_least: int = 0) -> ReleasedSum:
        """``hearsay masked release``: decrypt the sum of one set of parties, and of no other set of that period.

        ``request`` is the file that ``hearsay masked request`` writes. ``at_least`` is the fewest parties that the
        dealer's keeper wants in a set, if more than the campaign demands. The set is durable on return. Raises
        DocumentError ``malformed``, ``too_large``: the bytes are no request. Raises InputError: ``not_set_up``;
        ``book_unknown``: the campaign has no such version of the key book; ``party_unknown``: a party is not in that
        version; ``parties_too_few``; also the reasons of unreadable files and passphrases. Raises PolicyError:
        ``period_refused``: the period is not in the campaign's life, has not begun, or began before this copy of the
        dealer was adopted; ``set_released``: another set was released for the period.
        """
        raw = request if isinstance(request, bytes) else read_file(request, MAX_REQUEST_BYTES)
        asked = parse_request(raw)
        return release_set(self._journal, self._signer(), asked, at_least, int(self._clock()))

    def served(self) -> list[ServedCampaign]:
        """Return all campaigns for which keys were made, with their key books and releases."""
        with self._journal.snapshot():
            return [
                ServedCampaign(
                    parsed_campaign(row), row, self._journal.books(row.campaign), self._journal.releases(row.campaign)
                )
                for row in self._journal.campaigns()
            ]

    def _documents(self, campaign: Given, listed: Given, trusted: Given, *, begins: bool) -> Documents:
        """Return the verified campaign and node list. ``begins``: whether these are the campaign's first keys."""
        raw = [
            given if isinstance(given, bytes) else read_file(given, SIZE_LIMITS[role])
            for given, role in ((campaign, "campaign"), (listed, "nodes"), (trusted, "root"))
        ]
        return check_documents(self.public, raw[0], raw[1], raw[2], int(self._clock()) if begins else None)

    def _signer(self) -> SigningKey:
        problem, found = "", None
        try:
            found = read_key(self.path / KEY_FILE, (ROLE,))
        except InputError as error:
            problem = error.detail
        if found is None or found.public != self.public.key:
            raise StorageError("dealer_damaged", f"'{KEY_FILE}' can not be used: {problem or 'another dealer has it'}")
        return found.open(self._passphrase)


def _create_folder(
    path: Path, passphrase: bytes | None, modulus: int | None, entropy: Callable[[int], bytes], made_at: int
) -> None:
    """Make a dealer's folder at an absolute path. It appears complete or not at all."""
    if "\0" in str(path):
        raise InputError("output_invalid", "the path of a folder can not have a zero byte; choose another name")
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise StorageError("dealer_exists", f"'{path}' exists and is not an empty folder; nothing was changed")
    check_place(path)
    signer = SigningKey.from_seed(entropy(KEY_BYTES))
    kept = key_file(ROLE, signer, passphrase, entropy=entropy)
    public = public_bytes(signer, new_modulus() if modulus is None else modulus)
    with new_folder(path, f"'{path}' could not be written") as hidden:
        write_key(hidden / KEY_FILE, kept)
        write_output(hidden / PUBLIC_FILE, public)
        create_journal(hidden / JOURNAL_FILE, signer.public, machine_mark(), made_at)


def _read_public(path: Path) -> DealerPublic:
    problem = ""
    try:
        return read_dealer(path / PUBLIC_FILE)
    except InputError as error:
        problem = error.detail
    raise StorageError("dealer_damaged", f"'{PUBLIC_FILE}' can not be used: {problem}")


_MACHINE_TAG = b"hearsay/1/dealer-machine"
_MOST_FOLDERS = 10_000


def machine_mark() -> bytes:
    """Return 32 bytes that identify this machine without revealing its ids; equal on all machines without ids."""
    return sha256(_MACHINE_TAG + machine_ids()).digest()


def check_place(folder: Path) -> None:
    """Refuse a dealer's folder that is a workspace or store, is inside of one, or contains one. Links are followed.

    Also refused is a process whose current folder is in one. Whoever has the dealer's keys and the parties' ciphertexts
    reads every party's numbers, so people must keep them on two machines. Raises InputError ``dealer_in_workspace``.
    """
    real, current = Path(os.path.realpath(folder)), Path.cwd()
    for place in (real, *real.parents, current, *current.parents, *_below(real)):
        kind = _kind(place)
        if kind:
            raise InputError(
                "dealer_in_workspace",
                f"'{place}' is {kind}, and whoever has that and the dealer's keys can decrypt every party's numbers; "
                "keep the dealer on another machine",
            )


def _below(folder: Path) -> Iterator[Path]:
    for count, (place, _, _) in enumerate(os.walk(folder)):
        if count >= _MOST_FOLDERS:
            return
        yield Path(place)


def _kind(place: Path) -> str:
    """Return what a folder is, in words; empty if it is neither a workspace nor a store."""
    if (place / "root.hst").is_file() and (place / "keys").is_dir():
        return "a publisher's workspace"
    if (place / SUMMARIES_FILE).is_file() or ((place / STORE_FILE).is_file() and (place / "reports").is_dir()):
        return "an aggregator's store"
    return ""
