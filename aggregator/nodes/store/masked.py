"""The store of masked messages: files of messages → requests to the dealer → decrypted totals → statistics.

Its documents are those of every store of nodes' envelopes, and:

    keys N       version N of the dealer's key book
    request P    the request for the sum of period P that was written last
    release P    the dealer's release for period P, which decrypted the sum
    total P      the decrypted sum, [version of the key book, parties, numbers as text]

A *party* is a node with a key. A decrypted period does not change any more, because the dealer releases the sum of one
set of parties per period. Messages that come later are kept, but do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

import msgpack

from aggregator.estimates.statistics import Statistics
from aggregator.nodes.statistics.masked import PeriodTotal, check_numbers, masked_statistics
from aggregator.nodes.statistics.robust import Rule
from aggregator.nodes.store.database import Database, Row
from aggregator.nodes.store.envelope_store import Arrival, EnvelopeStore
from aggregator.nodes.store.node_list import needed, read_list
from protocol import canonical
from protocol.documents.campaign import Campaign
from protocol.errors import DocumentError, InputError, PolicyError, StorageError
from protocol.masked.cipher import Unmasking
from protocol.masked.costs import ciphertexts_of, least_parties, masked_terms_of
from protocol.masked.fields import Slots
from protocol.masked.keys import KeyBook, read_key_book
from protocol.masked.message import ROLE, Message, judge_message, read_message
from protocol.masked.release import Release, build_request, parse_request, read_release
from protocol.nodes.terms import released_vectors

_KEYS, _REQUEST, _RELEASE, _TOTAL = "keys", "request", "release", "total"
_MOST_ITEMS = 1 << 20
_STALE_REASON = "stale_key"
LATE_REASON = "not_in_sum"
"""Why a message of a decrypted period does not count: it came after the request, or its key is of another version."""


class StoredMessage(NamedTuple):
    """A kept and judged message: its key's serial number, and J joined ciphertexts of 512 bytes each."""

    period: int
    node: bytes
    serial: int
    ciphertexts: bytes

    @classmethod
    def of(cls, row: Row) -> StoredMessage:
        """Return the message in a row. The store has compared its bytes with their digest; it is not judged again."""
        body = msgpack.unpackb(msgpack.unpackb(row.envelope)[2])
        return cls(row.period, row.node, body["serial"], body["ciphertexts"])


class PartySet(NamedTuple):
    """The parties, sorted by id, whose sum to ask for, and how many messages that count are not in the set."""

    period: int
    book: KeyBook
    parties: tuple[bytes, ...]
    left_out: int


class MaskedStore(EnvelopeStore):
    """One masked campaign's messages on disk, and what was decrypted of them."""

    what = "messages"
    suffix = ".hse"
    role = ROLE

    @staticmethod
    def check(campaign: Campaign) -> None:
        """Refuse a campaign whose nodes send summaries in the clear: ``campaign_not_masked``."""
        masked_terms_of(campaign)

    def give_book(self, raw: bytes) -> KeyBook:
        """Give the store a version of the dealer's key book. All versions are kept, since messages may use any of them.

        Raises DocumentError: the reasons of :func:`protocol.masked.keys.read_key_book`; ``equivocation``: the store has
        another book of this version.
        """
        book = read_key_book(raw, self.campaign)
        name = f"{_KEYS} {book.version}"
        with closing(Database(self.path)) as database, database.transaction():
            kept = database.document(name)
            if kept is None:
                database.put_document(name, raw)
        if kept is not None and read_key_book(kept, self.campaign).identity != book.identity:
            raise DocumentError("equivocation", f"the store has another key book {book.version}; ask the dealer")
        return book

    def books(self, documents: Mapping[str, bytes] | None = None) -> list[KeyBook]:
        """Return all key books in ``documents`` (None: the store's), newest first. Raises ``keys_unknown``."""
        documents = self.documents() if documents is None else documents
        found = [read_key_book(raw, self.campaign) for name, raw in documents.items() if name.startswith(f"{_KEYS} ")]
        if not found:
            raise InputError("keys_unknown", "the store has no key book yet: give one with --keys BOOK.hsk")
        return sorted(found, key=lambda book: -book.version)

    def judge(self, documents: Mapping[str, bytes], now: int) -> Callable[[bytes], Message]:
        """Return a function that judges one message by the newest list of nodes, all key books and ``now``.

        It is :func:`protocol.masked.message.judge_message`, tried with each version of the key book. A message whose
        key is in no version that the store was given is refused as ``stale_key``.
        """
        listed = read_list(needed(documents.get("list")), self.campaign)
        *newer, oldest = self.books(documents)

        def judged(envelope: bytes) -> Message:
            for book in newer:
                try:
                    return judge_message(envelope, self.campaign, listed, book, now)
                except DocumentError as error:
                    if error.reason != _STALE_REASON:
                        raise
            return judge_message(envelope, self.campaign, listed, oldest, now)

        return judged

    @staticmethod
    def content(envelope: bytes) -> Message:
        """Return the message in an envelope. Its signature is not checked."""
        return read_message(envelope)[1]

    def messages(self) -> Iterator[tuple[StoredMessage, str | None]]:
        """Yield all kept messages by period and node, each with the reason why it does not count, or None.

        A message in a decrypted sum counts for ever, since it can not be taken out. All other messages of a decrypted
        period are ``not_in_sum``, if they have no other fault. Raises the errors of :meth:`arrivals`.
        """
        sums = {total.period: set(total.parties) for total in self.totals()}
        for row, fault in self.judged():
            kept = StoredMessage.of(row)
            waiting = sums.get(kept.period)
            if waiting is None:
                yield kept, fault
            elif kept.node in waiting:
                waiting.remove(kept.node)
                yield kept, None
            else:
                yield kept, fault or LATE_REASON

    def arrivals(self) -> Iterator[tuple[Arrival, str | None]]:
        """Return all kept messages without their ciphertexts (:meth:`messages`)."""
        micro = self.campaign.epsilon_micro
        return ((Arrival(kept.period, kept.node, micro), fault) for kept, fault in self.messages())

    def wanted(self, period: int) -> PartySet:
        """Return the largest set of parties whose sum can be asked for, by one version of the key book.

        Versions with enough parties for the dealer come first, then the most parties, then the newest version. Raises
        InputError ``periods_absent``: no message of the period counts. Raises PolicyError ``parties_too_few``.
        """
        serials = {kept.node: kept.serial for kept, fault in self.messages() if kept.period == period and fault is None}
        if not serials:
            raise InputError("periods_absent", f"period {period} has no message that counts; hearsay status shows all")
        found = []
        for book in self.books():
            keys = {(node, party.serial) for node, party in book.parties.items()}
            parties = tuple(sorted(node for node, serial in serials.items() if (node, serial) in keys))
            found.append(PartySet(period, book, parties, len(serials) - len(parties)))
        terms = masked_terms_of(self.campaign)
        enough = [one for one in found if len(one.parties) >= least_parties(terms, len(one.book.parties))]
        best = max(enough or found, key=lambda wanted: len(wanted.parties))
        least = least_parties(terms, len(best.book.parties))
        if len(best.parties) < least:
            raise PolicyError(
                "parties_too_few",
                f"{len(best.parties)} of {len(best.book.parties)} parties sent a message for period {period}; the "
                f"dealer releases sums from {least} on",
            )
        return best

    def needed(self, period: int) -> int:
        """Return the smallest number of parties whose sum the dealer releases for a period.

        The version of the key book is that of the decrypted sum, else of the request, else the newest. Raises
        InputError ``keys_unknown`` if the store lacks it.
        """
        documents = self.documents()
        request, decrypted = documents.get(f"{_REQUEST} {period}"), self.totals(range(period, period + 1))
        if decrypted:
            book = decrypted[0].book
        elif request is not None:
            book = self._book(documents, parse_request(request).version)
        else:
            book = self.books(documents)[0]
        return least_parties(masked_terms_of(self.campaign), len(book.parties))

    def messages_in(self, period: int) -> int:
        """Return the number of messages of a period that count, or came too late for its sum."""
        return sum(kept.period == period and fault in (None, LATE_REASON) for kept, fault in self.messages())

    def waiting(self) -> list[int]:
        """Return the periods that have messages which count, and no decrypted sum yet; rising."""
        heard = {kept.period for kept, fault in self.messages() if fault is None}
        return sorted(heard - {total.period for total in self.totals()})

    def request(self, period: int, *, again: bool = False) -> bytes:
        """Return the request to the dealer for the sum of a period, and keep it. A kept request is returned unchanged.

        ``again`` makes a new one, for the parties that sent messages by now, if the dealer has not seen the earlier
        one. Raises InputError ``period_decrypted``; and the errors of :meth:`wanted`.
        """
        documents = self.documents()
        if f"{_TOTAL} {period}" in documents:
            raise InputError("period_decrypted", f"the sum of period {period} was decrypted; a period has one sum")
        kept = documents.get(f"{_REQUEST} {period}")
        if kept is not None and not again:
            return kept
        wanted = self.wanted(period)
        raw = build_request(self.campaign.id, period, wanted.book.version, wanted.parties)
        with closing(Database(self.path)) as database, database.transaction():
            # Another process may have written a request or a total meanwhile.
            if database.document(f"{_TOTAL} {period}") is not None:
                raise InputError("period_decrypted", f"the sum of period {period} was decrypted; a period has one sum")
            other = database.document(f"{_REQUEST} {period}")
            if other is not None and other != kept:
                return other
            database.put_document(f"{_REQUEST} {period}", raw)
        return raw

    def decrypt(self, raw: bytes) -> PeriodTotal:
        """Decrypt the sum of the parties of a dealer's release, and keep it. The same again changes nothing.

        If a party sent two different messages with the same key, the one with the smaller identity is taken. Raises
        InputError: ``keys_unknown``: the store lacks the release's version of the key book; ``message_missing``. Raises
        DocumentError: the reasons of :func:`protocol.masked.release.read_release`; ``equivocation``: another release
        decrypted the period before; ``release_mismatch``: a party is not in the key book; ``mask_mismatch``: a message
        or the release was changed, or a party encrypted wrongly; ``value_out_of_domain``: a sum is larger than the
        parties' ranges allow. Raises PolicyError ``parties_too_few``: the release is of fewer parties than the campaign
        allows. Raises StorageError ``store_damaged``, ``store_busy``.
        """
        release = read_release(raw, self.campaign)
        documents = self.documents()
        if self._decrypted(release, documents.get(f"{_RELEASE} {release.period}")):
            return self._total_in(release.period, documents)
        book = self._book(documents, release.version)
        self._check_set(release, book)
        numbers = self._opened(release, book)
        entry = [release.version, b"".join(release.parties), [str(number) for number in numbers]]
        with closing(Database(self.path)) as database, database.transaction():
            # Another process may have decrypted this period meanwhile.
            if not self._decrypted(release, database.document(f"{_RELEASE} {release.period}")):
                for name, content in ((_RELEASE, raw), (_TOTAL, canonical.pack(entry))):
                    database.put_document(f"{name} {release.period}", content)
        return PeriodTotal(release.period, book, release.parties, numbers)

    def _decrypted(self, release: Release, before: bytes | None) -> bool:
        """Return whether this release decrypted its period before; raise an error if another one, ``before``, did."""
        if before is not None and read_release(before, self.campaign).identity != release.identity:
            raise DocumentError("equivocation", "another release decrypted this period before; ask the dealer")
        return before is not None

    def _check_set(self, release: Release, book: KeyBook) -> None:
        strange = [party for party in release.parties if party not in book.parties]
        if strange:
            raise DocumentError("release_mismatch", f"party {strange[0].hex()} is not in key book {book.version}")
        least = least_parties(masked_terms_of(self.campaign), len(book.parties))
        if len(release.parties) < least:
            raise PolicyError(
                "parties_too_few", f"the release is of {len(release.parties)} parties; the campaign asks for {least}"
            )

    def _opened(self, release: Release, book: KeyBook) -> tuple[int, ...]:
        """Decrypt the sums of the parties of a release, and return them. Raise the errors of :meth:`decrypt`."""
        terms = masked_terms_of(self.campaign)
        product = Unmasking(terms.modulus, ciphertexts_of(self.campaign))
        missing = set(release.parties)
        for row in self.rows():
            if row.period != release.period or row.node not in missing:
                continue
            kept = StoredMessage.of(row)
            if kept.serial == book.parties[kept.node].serial:
                product.add_bytes(kept.ciphertexts)
                missing.remove(kept.node)
        if missing:
            raise InputError(
                "message_missing",
                f"the store lacks the messages of {len(missing)} parties of the release, such as {min(missing).hex()}; "
                "ingest them",
            )
        count = sum(subject.size for subject in released_vectors(self.campaign))
        numbers = tuple(Slots(terms.slot_bits).unpack(product.opened(release.elements), count))
        strange = check_numbers(self.campaign, numbers, len(release.parties))
        if strange is not None:
            raise DocumentError(
                "value_out_of_domain",
                f"decrypted number {strange} is larger than {len(release.parties)} parties can cause: a party lied",
            )
        return numbers

    def _book(self, documents: Mapping[str, bytes], version: int) -> KeyBook:
        raw = documents.get(f"{_KEYS} {version}")
        if raw is None:
            raise InputError("keys_unknown", f"the store lacks key book {version}: give it with --keys BOOK.hsk")
        return read_key_book(raw, self.campaign)

    def totals(self, periods: range | None = None) -> list[PeriodTotal]:
        """Return the decrypted sums of some periods, or of all (None), by rising period."""
        documents = self.documents()
        numbers = (int(name.split()[1]) for name in documents if name.startswith(f"{_TOTAL} "))
        chosen = sorted(number for number in numbers if periods is None or number in periods)
        return [self._total_in(number, documents) for number in chosen]

    def _total_in(self, period: int, documents: Mapping[str, bytes]) -> PeriodTotal:
        entry = canonical.unpack(documents[f"{_TOTAL} {period}"], _MOST_ITEMS)
        release = read_release(documents[f"{_RELEASE} {period}"], self.campaign)
        if not isinstance(entry, list) or entry[0] != release.version:
            raise StorageError("store_damaged", f"the total of period {period} is not of its release")
        book = self._book(documents, release.version)
        return PeriodTotal(period, book, release.parties, tuple(int(text) for text in entry[2]))

    def asked(self) -> dict[int, tuple[bytes, ...]]:
        """Return period → ids of the parties in the period's newest request."""
        found = (parse_request(raw) for name, raw in self.documents().items() if name.startswith(f"{_REQUEST} "))
        return {request.period: request.parties for request in found}

    def rejected(self) -> dict[str, int]:
        """Return how many parts of files, and kept messages, do not count, by reason in alphabetical order."""
        with closing(Database(self.path)) as database:
            found = Counter(database.rejected())
        found.update(fault for _, fault in self.messages() if fault is not None)
        return dict(sorted(found.items()))

    def sums(self, periods: range, rule: Rule | None, *, rejected: Mapping[str, int], words: str) -> Statistics:
        """Return the statistics of decrypted totals. Refuse a robust rule, which needs each party's sums."""
        if rule is not None:
            raise InputError("robust_invalid", "of masked messages only the sum is known; robust rules need each one")
        return masked_statistics(self.campaign, self.totals(periods), rejected=rejected, periods=words)
