"""A collector: a folder with one key and a journal, on a machine of its own. Two collectors make one total.

    collector.key    0600: the secret, as a key file, perhaps under a passphrase
    collector.pub    public: name, contact and key, for the other collector
    journal.sqlite   0600: what left for each period (:mod:`aggregator.collectors.journal`)
    periods/         0600: the files that left, and the leader's shares until the total is made

The leader checks its shares of a period's reports and writes a request; the helper checks both, and answers with
verdicts and its noisy sums; the leader adds its own noise and signs the total. What leaves is durable before. A period
leaves once: the same call gives the same bytes, and another set of reports is refused, since the difference of two
totals could be one device's record.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from aggregator.collectors import pair
from aggregator.collectors.elements import decoded
from aggregator.collectors.exchange import ANSWER, REQUEST, Head, Reader, rows_of, write_file
from aggregator.collectors.intake import Opened, fields_of, open_shares, read_reports
from aggregator.collectors.journal import Journal, PeriodRow
from aggregator.collectors.noise import cell_variance, noisy
from aggregator.collectors.total import Total, sign_total
from aggregator.collectors.verification import Shares, added, confirmed, prepared
from aggregator.common.files import (
    PRIVATE,
    open_output,
    read_file,
    read_regular,
    storage_errors,
    sync_folder,
    write_output,
)
from aggregator.common.journals import Keeper, machine_mark
from aggregator.common.passphrases import passphrase_from
from aggregator.publishing.keys import key_file, read_key, write_key
from aggregator.publishing.signatures import signed_campaign
from protocol import canonical
from protocol.batches.report import ID_BYTES
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import KEY_BYTES, SigningKey, read_envelope
from protocol.documents.shared_terms import HELPER, LEADER, SALT_BYTES, Collector
from protocol.errors import DocumentError, InputError, PolicyError, StorageError
from protocol.shared.prio3 import NONCE_BYTES, Prio3
from protocol.shared.report import Field, context_of, terms_of, variant_of
from protocol.shared.shape import PUBLIC_BYTES, SENDER_BYTES, box_lengths
from protocol.stream import SEED_BYTES

ROLE = "collector"
KEY_FILE, PUBLIC_FILE, JOURNAL_FILE, PERIODS = "collector.key", "collector.pub", "journal.sqlite", "periods"
AT_ONCE = 1024
"""Reports that are checked at once."""
MACHINE_TAG = b"hearsay/1/collector-machine"
REFUSALS = (
    "",
    "share_unreadable",
    "share_misplaced",
    "malformed",
    "value_out_of_domain",
    "proof_invalid",
    "public_share",
)
"""The helper's verdicts by number: accepted, or the reason of a refusal."""
_TAIL = 64
"""How many standard deviations of noise a total may be beyond possible counts."""


class Sent(NamedTuple):
    """What a collector did for one period.

    Attributes:
        period: number of the period.
        reports: number of reports in the file that left.
        refused: reason → number of reports that are not in it, or that it refuses.
        again: whether the same file had left before.
    """

    period: int
    reports: int
    refused: dict[str, int]
    again: bool


class CollectorFolder:
    """An open collector's folder. All methods may raise ``collector_damaged`` and ``collector_busy``.

    ``with CollectorFolder.open(path) as collector:`` closes it at the end.
    """

    def __init__(
        self,
        path: Path,
        journal: Journal,
        public: Collector,
        passphrase: Callable[[], bytes],
        clock: Callable[[], float],
        entropy: Callable[[int], bytes],
    ) -> None:
        self.path, self.public = path, public
        self._journal, self._passphrase, self._clock, self._entropy = journal, passphrase, clock, entropy

    @classmethod
    def create(
        cls,
        path: str | Path,
        name: str,
        contact: str,
        *,
        passphrase: bytes | str | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """``hearsay collector new``: make a folder that appears complete or not at all, and open it.

        Args:
            path: a folder that does not exist, or is empty.
            name, contact: who runs the collector, and where to reach them.
            passphrase: encrypts the key; None keeps it in the clear.
            entropy: returns as many random bytes as it is asked for.
            clock: returns the time in seconds since 1970.

        Raises:
            InputError: ``collectors_invalid``: name or contact is empty or does not print.
            StorageError: ``collector_exists``: the path is no folder, or a folder with content.
        """
        path = Path(path).absolute()
        if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
            raise StorageError("collector_exists", f"'{path}' exists and is not an empty folder; nothing was changed")
        signer = SigningKey.from_seed(entropy(KEY_BYTES))
        raw = pair.write_public(Collector(name, contact, signer.public))
        pair.read_public(raw)
        secret = passphrase.encode() if isinstance(passphrase, str) else passphrase
        kept = key_file(ROLE, signer, secret, entropy=entropy)
        hidden = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
        try:
            with storage_errors(f"'{path}' could not be written"):
                hidden.mkdir(mode=0o700)
                (hidden / PERIODS).mkdir(mode=0o700)
                write_key(hidden / KEY_FILE, kept)
                write_output(hidden / PUBLIC_FILE, raw)
                Journal.create(hidden / JOURNAL_FILE, Keeper(signer.public, machine_mark(MACHINE_TAG), 0, int(clock())))
                hidden.rename(path)
                sync_folder(path.parent)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
        return cls.open(path, passphrase, clock=clock, entropy=entropy)

    @classmethod
    def open(
        cls,
        path: str | Path,
        passphrase: Callable[[], bytes] | bytes | str | None = None,
        *,
        clock: Callable[[], float] = time.time,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> Self:
        """Open a collector's folder. The key stays closed until it is needed.

        Raises:
            StorageError: ``not_a_collector``, ``collector_damaged``, ``collector_copied``, ``collector_newer``.
        """
        return cls._open(Path(path), passphrase, clock, entropy, machine_mark(MACHINE_TAG))

    @classmethod
    def adopt(
        cls,
        path: str | Path,
        passphrase: Callable[[], bytes] | bytes | str | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """``hearsay collector adopt``: go on with a copy, a restored backup or a folder on another disk, and open it.

        The other copy may have released periods that this one does not know. So this copy never releases a period that
        has begun, unless it is in its journal. This is safe only if no other copy is in use from now on.
        """
        with cls._open(Path(path), passphrase, clock, os.urandom, None) as collector:
            collector.take_over()
        return cls.open(path, passphrase, clock=clock)

    def take_over(self) -> None:
        """Make this folder the original, for :meth:`adopt` alone."""
        with self._journal.transaction():
            self._journal.adopt(machine_mark(MACHINE_TAG), int(self._clock()))

    @classmethod
    def _open(
        cls,
        path: Path,
        passphrase: Callable[[], bytes] | bytes | str | None,
        clock: Callable[[], float],
        entropy: Callable[[int], bytes],
        machine: bytes | None,
    ) -> Self:
        journal = Journal(path / JOURNAL_FILE, machine)
        try:
            problem, public = "", None
            try:
                public = pair.read_public(read_file(path / PUBLIC_FILE, pair.MAX_BYTES))
            except InputError as error:
                problem = error.detail
            if public is None or public.key != journal.keeper().public:
                raise StorageError("collector_damaged", f"'{PUBLIC_FILE}' can not be used: {problem or 'another key'}")
        except BaseException:
            journal.close()
            raise
        return cls(path, journal, public, passphrase_from(passphrase), clock, entropy)

    def close(self) -> None:
        """Close the journal. A second call does nothing."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pair_with(self, helper: bytes) -> bytes:
        """``hearsay collector pair``: return the file of a new pair, in which this collector leads, for one campaign.

        Args:
            helper: the other collector's public file.
        """
        leader = self.public
        return pair.write_pair(pair.new_pair(self._key(), leader, pair.read_public(helper), self._entropy(SALT_BYTES)))

    def check(self, campaign: bytes, trusted: bytes, period: int, files: Sequence[Path], out: Path) -> Sent:
        """``hearsay collector check``: check the leader's shares of one period, and write the request for the helper.

        Args:
            campaign: the signed campaign.
            trusted: the trust root.
            period: number of a period that has ended.
            files: batch files.
            out: the request.

        Raises:
            InputError: ``not_this_collector``: this collector does not lead the campaign; unreadable files.
            PolicyError: ``period_refused``: the period has not ended, or began before this copy was adopted;
                ``batch_too_small``: too few reports can be used.
        """
        found, role, key = self._campaign(campaign, trusted)
        if role != LEADER:
            raise InputError("not_this_collector", "this collector helps in the campaign; the leader checks first")
        with self._journal.snapshot():
            row = self._journal.period(found.id, period)
        reports = read_reports(found, files)
        given = reports.reports.get(period, {})
        if row is not None:
            self._hand_out(row, REQUEST, out)
            known = self._ids(row)
            late = sum(identifier not in known for identifier in given)
            return Sent(period, row.reports, {**self._refused(row), **({"batch_released": late} if late else {})}, True)
        self._check_period(found, period)
        refused = Counter(reports.refused)
        rows = list(self._checked(found, key, period, given, refused))
        count = sum(len(part.ids) for part in rows)
        if count < found.min_batch_size:
            raise PolicyError(
                "batch_too_small", f"{count} reports can be used, and the campaign wants {found.min_batch_size}"
            )
        head = Head(REQUEST, found.id, period, count)
        paths = [self._path(found.id, period, kind) for kind in ("shares", REQUEST)]
        ids = b"".join(identifier for part in rows for identifier in part.ids)
        write_output(self._path(found.id, period, "ids"), ids, force=True, mode=PRIVATE)
        with open_output(paths[0], force=True, mode=PRIVATE) as kept:
            for part in rows:
                kept.write(part.kept)
        secret = self._secret(found)
        write_file(paths[1], head, secret, (part.sent for part in rows), entropy=self._entropy, force=True)
        content = sha256(ids).digest()
        self._record(PeriodRow(found.id, period, role, count, _packed(refused), content, _digest(paths[1]), b"", 0))
        self._hand_out(None, REQUEST, out, paths[1])
        return Sent(period, count, dict(refused), False)

    def answer(self, campaign: bytes, trusted: bytes, request: Path, out: Path) -> Sent:
        """``hearsay collector answer``: check the helper's shares of a request, and write verdicts and noisy sums.

        Args:
            campaign: the signed campaign.
            trusted: the trust root.
            request: the leader's file.
            out: the answer.

        Raises:
            InputError: ``not_this_collector``: this collector does not help in the campaign.
            DocumentError: ``malformed``, ``share_unreadable``: the file is damaged or not of the leader;
                ``unrecognized_campaign``.
            PolicyError: ``period_refused``; ``period_released``: another request was answered for the period;
                ``batch_too_small``: too few reports are accepted.
        """
        found, role, key = self._campaign(campaign, trusted)
        if role != HELPER:
            raise InputError("not_this_collector", "this collector leads the campaign; the helper answers")
        with storage_errors(f"'{request}' can not be read"), request.open("rb") as file:
            reader = Reader(file, REQUEST)
            head = reader.head
            if head.campaign != found.id:
                raise DocumentError("unrecognized_campaign", "the request is of another campaign")
            judged = _Judge(found, key, self._key(), head.period)
            judged.read(rows_of(reader.contents(self._secret(found)), judged.length, head.reports))
        with self._journal.snapshot():
            row = self._journal.period(found.id, head.period)
        if row is not None:
            if row.content != judged.content:
                raise PolicyError(
                    "period_released", "another request was answered for this period; nothing is released"
                )
            self._hand_out(row, ANSWER, out)
            return Sent(head.period, row.reports, self._refused(row), True)
        self._check_period(found, head.period)
        if judged.accepted < found.min_batch_size:
            raise PolicyError(
                "batch_too_small",
                f"{judged.accepted} reports are accepted, and the campaign wants {found.min_batch_size}",
            )
        p = variant_of(found).circuit.field.modulus
        sums = [number % p for number in noisy(found, judged.sums(), self._entropy(SEED_BYTES))]
        path = self._path(found.id, head.period, ANSWER)
        end = variant_of(found).circuit.field.encode(sums) + judged.accepted.to_bytes(4, "big") + judged.ids
        contents = [*judged.verdicts, end]
        write_file(path, head._replace(kind=ANSWER), self._secret(found), contents, entropy=self._entropy, force=True)
        self._record(
            PeriodRow(
                found.id,
                head.period,
                role,
                judged.accepted,
                _packed(judged.refused),
                judged.content,
                _digest(path),
                b"",
                0,
            )
        )
        self._hand_out(None, ANSWER, out, path)
        return Sent(head.period, judged.accepted, dict(judged.refused), False)

    def finish(self, campaign: bytes, trusted: bytes, answer: Path, out: Path) -> Total:
        """``hearsay collector finish``: add the helper's noisy sums and this collector's, and write the signed total.

        Args:
            campaign: the signed campaign.
            trusted: the trust root.
            answer: the helper's file.
            out: the total.

        Raises:
            DocumentError: ``collector_fault``: the answer is for other reports than this collector sent, or its sums
                can not be; nothing is released. Also ``malformed``, ``share_unreadable``, ``unrecognized_campaign``.
            PolicyError: ``period_refused``: nothing was sent for the period.
        """
        found, _, _ = self._campaign(campaign, trusted)
        with storage_errors(f"'{answer}' can not be read"), answer.open("rb") as file:
            reader = Reader(file, ANSWER)
            head = reader.head
            if head.campaign != found.id:
                raise DocumentError("unrecognized_campaign", "the answer is of another campaign")
            with self._journal.snapshot():
                row = self._journal.period(found.id, head.period)
            if row is None:
                raise PolicyError("period_refused", "this collector has sent no request for that period")
            if row.total:
                write_output(out, row.total, force=True)
                return _total_of(row.total)
            outputs = variant_of(found).circuit.outputs
            tail = outputs * variant_of(found).circuit.field.size + 4 + 32
            parts = list(rows_of(reader.contents(self._secret(found)), 1 + SEED_BYTES, row.reports, tail))
        if head.reports != row.reports:
            raise _fault("it is for another number of reports")
        total = self._totalled(found, row, b"".join(parts[:-1]), parts[-1])
        signed = sign_total(total, self._key())
        self._record(row._replace(total=signed, refused=_packed(Counter(total.refused))))
        self._path(found.id, head.period, "shares").unlink(missing_ok=True)
        write_output(out, signed, force=True)
        return total

    def periods(self) -> list[PeriodRow]:
        """Return the rows of all periods for which something left, by campaign and period."""
        with self._journal.snapshot():
            return self._journal.periods()

    def _totalled(self, campaign: Campaign, row: PeriodRow, verdicts: bytes, end: bytes) -> Total:
        """Return the total of a period, or refuse the helper's answer."""
        circuit = variant_of(campaign).circuit
        field, size = circuit.field, circuit.outputs * circuit.field.size
        kept = np.fromfile(self._path(campaign.id, row.period, "shares"), np.uint8).reshape(row.reports, -1)
        judged = np.frombuffer(verdicts, np.uint8).reshape(row.reports, -1)
        accepted = judged[:, 0] == 0
        if (judged[:, 0] >= len(REFUSALS)).any() or (judged[accepted, 1:] != kept[accepted, 8 : 8 + SEED_BYTES]).any():
            raise _fault("a verdict does not fit to the report")
        ids = sha256(kept[accepted, :8].tobytes()).digest()
        if end[size:] != int(accepted.sum()).to_bytes(4, "big") + ids:
            raise _fault("its sums are over other reports than its verdicts accept")
        sums = np.zeros(circuit.outputs, object)
        for start in range(0, row.reports, AT_ONCE):
            part = kept[start : start + AT_ONCE]
            vectors, _ = decoded(field, part[:, 8 + SEED_BYTES :])
            sums += np.array(added(vectors, accepted[start : start + AT_ONCE]), object)
        own = noisy(campaign, sums.tolist(), self._entropy(SEED_BYTES))
        numbers = [(one + other) % field.modulus for one, other in zip(own, field.decode(end[:size]), strict=True)]
        numbers = [number - field.modulus if number > field.modulus // 2 else number for number in numbers]
        terms = terms_of(campaign)
        variance = cell_variance(terms.noise, len(campaign.schema.observed), campaign.epsilon_micro, terms.delta_pico)
        reach = _TAIL * (2 * variance) ** 0.5
        if min(numbers) < -reach or max(numbers) > int(accepted.sum()) + reach:
            raise _fault("its sums are beyond what counts and noise can be")
        refused = Counter(self._refused(row))
        refused.update(REFUSALS[verdict] for verdict in judged[~accepted, 0].tolist())
        return Total(campaign.id, row.period, int(accepted.sum()), tuple(numbers), dict(refused))

    def _checked(
        self, campaign: Campaign, key: bytes, period: int, given: dict[bytes, bytes], refused: Counter[str]
    ) -> Iterator[_Sent]:
        """Yield the leader's rows, some reports at a time."""
        prio3 = variant_of(campaign)
        private = pair.private_box_key(self._key())
        usable: list[Opened] = []
        fields = fields_of(campaign, given)
        for number, (_, _, opened) in enumerate(open_shares(campaign, private, LEADER, period, fields), 1):
            if isinstance(opened, str):
                refused[opened] += 1
            else:
                usable.append(opened)
            if usable and (len(usable) == AT_ONCE or number == len(fields)):
                yield _leading(prio3, key, context_of(campaign.id), usable, refused)
                usable = []

    def _campaign(self, campaign: bytes, trusted: bytes) -> tuple[Campaign, int, bytes]:
        """Return the verified campaign, this collector's number in it, and the verify key."""
        found = signed_campaign(trusted, campaign)
        return found, *pair.role_in(terms_of(found), self._key())

    def _check_period(self, campaign: Campaign, period: int) -> None:
        """Refuse a period that has not ended, or that an adopted copy may not release."""
        now = int(self._clock())
        if (period + 1) * campaign.time_precision > now:
            raise PolicyError("period_refused", "the period has not ended; devices may still answer")
        adopted = self._journal.keeper().adopted_at
        if adopted and period <= campaign.period_at(adopted):
            raise PolicyError(
                "period_refused", "the period began before this copy was adopted; the other copy may have released it"
            )

    def _record(self, row: PeriodRow) -> None:
        with self._journal.transaction():
            self._journal.put("periods", row._replace(made_at=int(self._clock())))

    def _hand_out(self, row: PeriodRow | None, kind: str, out: Path, path: Path | None = None) -> None:
        """Copy the file that left for a period, which is in this folder."""
        place = path or self._path(row.campaign, row.period, kind) if row else path
        assert place is not None
        if not place.is_file() or (row is not None and _digest(place) != row.file):
            raise StorageError(
                "collector_damaged", f"'{place}' is lost or changed, so the period can not be handed out again"
            )
        with open_output(out, force=True, mode=PRIVATE) as to, place.open("rb") as source:
            shutil.copyfileobj(source, to)

    def _path(self, campaign: bytes, period: int, kind: str) -> Path:
        return self.path / PERIODS / f"{campaign.hex()[:16]}-{period}.{kind}"

    def _ids(self, row: PeriodRow) -> set[bytes]:
        """Return the ids that were sent for a period."""
        ids = read_regular(self._path(row.campaign, row.period, "ids"))
        if sha256(ids).digest() != row.content:
            raise StorageError("collector_damaged", "the list of the ids that were sent for the period was changed")
        return {ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)}

    def _refused(self, row: PeriodRow) -> dict[str, int]:
        found = canonical.unpack(row.refused)
        assert isinstance(found, dict)
        return found

    def _secret(self, campaign: Campaign) -> bytes:
        keys = [one.key for one in terms_of(campaign).collectors]
        return pair.common_secret(self._key(), keys[1 - keys.index(self.public.key)])

    def _key(self) -> SigningKey:
        problem, found = "", None
        try:
            found = read_key(self.path / KEY_FILE, (ROLE,))
        except InputError as error:
            problem = error.detail
        if found is None or found.public != self.public.key:
            raise StorageError("collector_damaged", f"'{KEY_FILE}' can not be used: {problem or 'another key'}")
        return found.open(self._passphrase)


class _Sent(NamedTuple):
    """Rows of some reports: ids, what goes to the helper, and what the leader keeps."""

    ids: list[bytes]
    sent: bytes
    kept: bytes


def _leading(prio3: Prio3, key: bytes, context: bytes, opened: Sequence[Opened], refused: Counter[str]) -> _Sent:
    """Return the leader's rows of some reports. A report that can not be read is counted in ``refused``."""
    found = prepared(prio3, key, context, LEADER, _shares(opened))
    if not found.readable.all():
        refused["value_out_of_domain"] += int((~found.readable).sum())
    rows, kept, ids = [], [], []
    length = prio3.circuit.outputs * prio3.circuit.field.size
    for number in np.flatnonzero(found.readable).tolist():
        one = opened[number]
        ids.append(one.identifier)
        field = one.field
        rows.append(
            one.identifier
            + field.nonce
            + field.public
            + field.sender
            + field.boxes[HELPER]
            + found.verifiers[number].tobytes()
        )
        kept.append(one.identifier + found.seeds[number].tobytes() + one.share[:length])
    return _Sent(ids, b"".join(rows), b"".join(kept))


def _shares(opened: Sequence[Opened]) -> Shares:
    columns = zip(*((one.field.nonce, one.field.public, one.share) for one in opened), strict=True)
    return Shares(*(np.frombuffer(b"".join(each), np.uint8).reshape(len(opened), -1) for each in columns))


class _Judge:
    """The helper's check of a request."""

    def __init__(self, campaign: Campaign, key: bytes, own: SigningKey, period: int) -> None:
        self._campaign, self._key, self._period = campaign, key, period
        self._private = pair.private_box_key(own)
        self._prio3 = variant_of(campaign)
        circuit = self._prio3.circuit
        self._verifier = circuit.verifier_length * circuit.field.size + SEED_BYTES
        self._lengths = (8, NONCE_BYTES, PUBLIC_BYTES, SENDER_BYTES, box_lengths(self._prio3)[HELPER], self._verifier)
        self.length = sum(self._lengths)
        self.verdicts: list[bytes] = []
        self.refused: Counter[str] = Counter()
        self.accepted = 0
        self._sums = np.zeros(circuit.outputs, object)
        self._content, self._ids = sha256(), sha256()
        self._last = b""

    @property
    def content(self) -> bytes:
        """SHA-256 of all rows."""
        return self._content.digest()

    @property
    def ids(self) -> bytes:
        """SHA-256 of the accepted ids, in order."""
        return self._ids.digest()

    def sums(self) -> list[int]:
        """Return the helper's share of the sums over the accepted reports, modulo p."""
        return [int(each) % self._prio3.circuit.field.modulus for each in self._sums]

    def read(self, parts: Iterator[bytes]) -> None:
        """Judge all rows.

        Raises:
            DocumentError: ``collector_fault``: ids are not in rising order, so one could count twice.
        """
        for part in parts:
            self._content.update(part)
            for start in range(0, len(part), AT_ONCE * self.length):
                some = part[start : start + AT_ONCE * self.length]
                self._judge([some[at : at + self.length] for at in range(0, len(some), self.length)])

    def _judge(self, rows: Sequence[bytes]) -> None:
        fields, verifiers = [], []
        for row in rows:
            pieces, at = [], 0
            for length in self._lengths:
                pieces.append(row[at : at + length])
                at += length
            identifier, nonce, public, sender, box, verifier = pieces
            if identifier <= self._last:
                raise _fault("the ids of the request are not in rising order")
            self._last = identifier
            fields.append((identifier, Field(nonce, public, sender, (b"", box))))
            verifiers.append(verifier)
        verdicts = [b""] * len(rows)
        usable, places = [], []
        for number, (_, _, opened) in enumerate(
            open_shares(self._campaign, self._private, HELPER, self._period, fields)
        ):
            if isinstance(opened, str):
                verdicts[number] = self._refuse(opened)
            else:
                usable.append(opened)
                places.append(number)
        if usable:
            self._decide(usable, places, verifiers, verdicts)
        self.verdicts.append(b"".join(verdicts))

    def _decide(self, usable: list[Opened], places: list[int], verifiers: list[bytes], verdicts: list[bytes]) -> None:
        found = prepared(self._prio3, self._key, context_of(self._campaign.id), HELPER, _shares(usable))
        leading = np.frombuffer(b"".join(verifiers[place] for place in places), np.uint8).reshape(len(places), -1)
        public = np.frombuffer(b"".join(one.field.public for one in usable), np.uint8).reshape(len(places), -1)
        right, messages = confirmed(self._prio3, context_of(self._campaign.id), [leading, found.verifiers], found.seeds)
        # Both parts must be those of the public share: else the leader would expect another seed than the helper.
        parts = np.hstack([leading[:, -SEED_BYTES:], found.verifiers[:, -SEED_BYTES:]])
        agreed = (parts == public).all(axis=1)
        good = right & agreed & found.readable
        for number, (place, one) in enumerate(zip(places, usable, strict=True)):
            if good[number]:
                verdicts[place] = b"\x00" + messages[number].tobytes()
                self._ids.update(one.identifier)
            elif not found.readable[number]:
                verdicts[place] = self._refuse("value_out_of_domain")
            else:
                verdicts[place] = self._refuse("proof_invalid" if agreed[number] else "public_share")
        self.accepted += int(good.sum())
        self._sums += np.array(added(found.outputs, good), object)

    def _refuse(self, reason: str) -> bytes:
        self.refused[reason] += 1
        return bytes([REFUSALS.index(reason)]) + bytes(SEED_BYTES)


def _fault(what: str) -> DocumentError:
    return DocumentError("collector_fault", f"the other collector's file is wrong: {what}; nothing is released")


def _packed(refused: Counter[str]) -> bytes:
    return canonical.pack({reason: count for reason, count in sorted(refused.items()) if count})


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        digest = sha256()
        while block := file.read(1 << 20):
            digest.update(block)
        return digest.digest()


def _total_of(signed: bytes) -> Total:
    body = canonical.unpack(read_envelope(signed, "total").payload)
    assert isinstance(body, dict)
    return Total(body["campaign"], body["period"], body["accepted"], tuple(body["numbers"]), body["refused"])
