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
import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from aggregator.collectors import pair
from aggregator.collectors.exchange import (
    ANSWER,
    MOST_BYTES,
    REQUEST,
    VERDICT_BYTES,
    Head,
    Reader,
    RequestRow,
    fault,
    rows_of,
    write_file,
)
from aggregator.collectors.export import Exported, exported
from aggregator.collectors.helping import Judge
from aggregator.collectors.intake import Reports, Task
from aggregator.collectors.journal import Journal, PeriodRow, packed_refusals
from aggregator.collectors.leading import check_all, kept_length, total_of
from aggregator.collectors.noise import noisy
from aggregator.collectors.total import Total, read_total, sign_total
from aggregator.collectors.verification import Workers
from aggregator.common.files import (
    PRIVATE,
    new_folder,
    open_output,
    read_file,
    storage_errors,
    write_output,
)
from aggregator.common.journals import Keeper, machine_mark
from aggregator.common.passphrases import passphrase_from
from aggregator.common.periods import begins
from aggregator.publishing.keys import key_file, read_key, write_key
from aggregator.publishing.signatures import signed_campaign
from aggregator.reports.intake.enrolment import Enrolled
from aggregator.reports.intake.reader import processors
from aggregator.reports.intake.remote import Executor
from aggregator.reports.storage.locking import try_lock
from protocol.batches.report import ID_BYTES
from protocol.documents.campaign import Campaign
from protocol.documents.envelope import KEY_BYTES, SigningKey
from protocol.documents.shared_terms import HELPER, LEADER, SALT_BYTES, Collector
from protocol.errors import DocumentError, InputError, PolicyError, StorageError
from protocol.shared.report import terms_of
from protocol.stream import SEED_BYTES

if TYPE_CHECKING:
    from hashlib import _Hash as Digest

ROLE = "collector"
KEY_FILE, PUBLIC_FILE, JOURNAL_FILE, PERIODS = "collector.key", "collector.pub", "journal.sqlite", "periods"
KEPT = "shares"
_FILES = {LEADER: REQUEST, HELPER: ANSWER}
_WRONG = {
    LEADER: "this collector leads the campaign; the helper answers",
    HELPER: "this collector helps in the campaign; the leader checks and finishes",
}
MACHINE_TAG = b"hearsay/1/collector-machine"
Progress = Callable[[int, int], None]


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

    Attributes:
        path: the folder.
        public: what the collector says of itself.
        threads: threads that check reports; by default the number of processors that this process may use.
        cluster: an executor that checks in their place; by default None. It gets shares, and the verify key.

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
        self.threads = processors()
        self.cluster: Executor | None = None
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
            InputError: ``collectors_invalid``: name or contact is empty, too long or does not print.
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
        with new_folder(path, f"'{path}' could not be written") as hidden:
            (hidden / PERIODS).mkdir(mode=0o700)
            write_key(hidden / KEY_FILE, kept)
            write_output(hidden / PUBLIC_FILE, raw)
            Journal.create(hidden / JOURNAL_FILE, Keeper(signer.public, machine_mark(MACHINE_TAG), 0, int(clock())))
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
        has begun, unless it is in its journal. This is safe only if no other copy is in use from now on, and the clock
        is right.

        Raises:
            StorageError: those of :meth:`open` without ``collector_copied``; ``clock_behind``: the clock is.
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

    def check(
        self,
        campaign: bytes,
        trusted: bytes,
        period: int,
        files: Sequence[str | Path],
        out: Path,
        progress: Progress | None = None,
        enrolled: Enrolled | None = None,
    ) -> Sent:
        """``hearsay collector check``: check the leader's shares of one period, and write the request for the helper.

        Args:
            campaign: the signed campaign.
            trusted: the trust root.
            period: number of a period that has ended.
            files: batch files.
            out: the request.
            progress: called with (steps done, steps in all): first of reading files, then of checking reports.
            enrolled: the ids of a closed fleet; reports with other ids are refused.

        Raises:
            InputError: ``not_this_collector``: this collector does not lead the campaign; unreadable files.
            PolicyError: ``period_refused``: the period has not ended, or began before this copy was adopted;
                ``batch_too_small``: too few reports can be used.
        """
        task = self._task(campaign, trusted, LEADER)
        with self._alone(), Reports(task.campaign, period, self._periods) as reports:
            row = self._row(task, period)
            if row is None:
                self._check_period(task.campaign, period)
            reports.read(files, progress)
            reports.keep(enrolled)
            if row is None:
                return self._request(task, period, reports, out, progress)
            sent = self._ids_sent(task, row)
            late = Counter(batch_released=sum(identifier not in sent for identifier in reports.ids()))
            self._hand_out_again(row, out)
            return Sent(period, row.reports, dict(+(row.refusals + late)), True)

    def answer(
        self,
        campaign: bytes,
        trusted: bytes,
        request: Path,
        out: Path,
        progress: Progress | None = None,
        enrolled: Enrolled | None = None,
    ) -> Sent:
        """``hearsay collector answer``: check the helper's shares of a request, and write verdicts and noisy sums.

        Args:
            campaign: the signed campaign.
            trusted: the trust root.
            request: the leader's file.
            out: the answer.
            progress: called with (reports checked, reports in the request).
            enrolled: the ids of a closed fleet; reports with other ids are refused, whoever put them in.

        Raises:
            InputError: ``not_this_collector``: this collector does not help in the campaign.
            DocumentError: ``malformed``, ``share_unreadable``: the file is damaged or not of the leader;
                ``unrecognized_campaign``.
            PolicyError: ``period_refused``; ``period_released``: another request was answered for the period;
                ``batch_too_small``: too few reports are accepted.
        """
        task = self._task(campaign, trusted, HELPER)
        with self._alone(), self._reading(request, REQUEST, task) as reader:
            head, content = reader.head, sha256()
            row = self._row(task, head.period)
            if row is None:
                self._check_period(task.campaign, head.period)
            judge = Judge(task, head.period, enrolled)
            parts = _noted(rows_of(reader.contents(task.secret), RequestRow.length(task.prio3), head.reports), content)
            if row is None:
                judge.read(parts, Workers(self.threads, self.cluster), _counting(progress, head.reports))
                return self._answer(task, head, judge, content.digest(), out)
            deque(parts, 0)
            if row.content != content.digest():
                raise PolicyError(
                    "period_released", "another request was answered for this period; nothing is released"
                )
            self._hand_out_again(row, out)
            return Sent(head.period, row.reports, dict(row.refusals), True)

    def finish(self, campaign: bytes, trusted: bytes, answer: Path, out: Path) -> Total:
        """``hearsay collector finish``: add the helper's noisy sums and this collector's, and write the signed total.

        Args:
            campaign: the signed campaign.
            trusted: the trust root.
            answer: the helper's file.
            out: the total.

        Raises:
            DocumentError: ``collector_fault``: the answer is for other reports than this collector sent; or its sums
                can not be, and then the period has no total, for ever. Nothing is released. Also ``malformed``,
                ``share_unreadable``, ``unrecognized_campaign``.
            PolicyError: ``period_refused``: nothing was sent for the period, or it began before this copy was adopted,
                which does not know its total.
        """
        task = self._task(campaign, trusted, LEADER)
        with self._alone(), self._reading(answer, ANSWER, task) as reader:
            head = reader.head
            row = self._row(task, head.period)
            if row is None:
                raise PolicyError("period_refused", "this collector has sent no request for that period")
            if not row.total:
                self._check_period(task.campaign, head.period)
                if head.reports != row.reports:
                    raise fault("it is for another number of reports")
                circuit = task.prio3.circuit
                tail = circuit.outputs * circuit.field.size + 4 + 32
                *verdicts, end = rows_of(reader.contents(task.secret), VERDICT_BYTES, row.reports, tail)
                total = self._total(task, row, b"".join(verdicts), end)
                row = row._replace(total=sign_total(total, task.own), refused=packed_refusals(Counter(total.refused)))
                # Before the sums are looked at: whether they can be depends on the noise. If another answer met other
                # noise, each try would tell the helper more than ε covers.
                self._record(row)
            else:
                self._write_anew(row)
            self._path(row, KEPT).unlink(missing_ok=True)
        found = read_total(row.total, task.campaign)
        write_output(out, row.total, force=True)
        return found

    def export(self, campaign: bytes, trusted: bytes, period: int, files: Sequence[str | Path]) -> Exported:
        """``hearsay collector export``: return this collector's own shares of a period, for another program to check.

        Args:
            campaign: the signed campaign.
            trusted: the trust root.
            period: number of the period.
            files: batch files.

        Raises:
            InputError: ``not_this_collector``; unreadable files.
        """
        task = self._task(campaign, trusted)
        with self._alone(), Reports(task.campaign, period, self._periods) as reports:
            reports.read(files)
            return exported(task, period, reports)

    def periods(self) -> list[PeriodRow]:
        """Return the rows of all periods for which something left, by campaign and period."""
        with self._journal.snapshot():
            return self._journal.periods()

    # What leaves: its files are on the disk before the journal names them, and the journal before it is handed out.

    def _request(self, task: Task, period: int, reports: Reports, out: Path, progress: Progress | None) -> Sent:
        """Check all reports of a period, and let the request leave."""
        campaign, done = task.campaign, _counting(progress, len(reports.ids()))
        row = PeriodRow(campaign.id, period, LEADER)
        with (
            storage_errors("the checked reports can not be kept"),
            tempfile.TemporaryFile(dir=self._periods) as sent,
            open_output(self._path(row, KEPT), force=True, mode=PRIVATE) as kept,
        ):
            count, refused = check_all(task, period, reports, (sent, kept), Workers(self.threads, self.cluster), done)
            if count < campaign.min_batch_size:
                raise PolicyError(
                    "batch_too_small", f"{count} reports can be used, and the campaign wants {campaign.min_batch_size}"
                )
            sent.seek(0)
            self._write(task, Head(REQUEST, campaign.id, period, count), iter(lambda: sent.read(MOST_BYTES), b""))
        content = _digest(self._path(row, KEPT))
        return self._let_out(row, count, reports.refused + refused, content, out)

    def _answer(self, task: Task, head: Head, judge: Judge, content: bytes, out: Path) -> Sent:
        """Let the helper's answer leave, with its noise."""
        campaign, field = task.campaign, task.prio3.circuit.field
        if judge.accepted < campaign.min_batch_size:
            raise PolicyError(
                "batch_too_small",
                f"{judge.accepted} reports are accepted, and the campaign wants {campaign.min_batch_size}",
            )
        sums = [number % field.modulus for number in noisy(campaign, judge.sums(), self._entropy(SEED_BYTES))]
        end = field.encode(sums) + judge.accepted.to_bytes(4, "big") + judge.ids()
        self._write(task, head._replace(kind=ANSWER), [*judge.verdicts, end])
        row = PeriodRow(campaign.id, head.period, HELPER)
        return self._let_out(row, judge.accepted, judge.refused, content, out)

    def _total(self, task: Task, row: PeriodRow, verdicts: bytes, end: bytes) -> Total:
        """Return the total of the shares that the leader kept."""
        path = self._path(row, KEPT)
        if not path.is_file() or _digest(path) != row.content:
            raise _damaged(path, "the period has no total")
        kept = np.memmap(path, np.uint8, "r").reshape(row.reports, kept_length(task.prio3))
        return total_of(task, row.period, kept, (verdicts, end), row.refusals, self._entropy(SEED_BYTES))

    def _write(self, task: Task, head: Head, contents: Iterable[bytes]) -> None:
        path = self._path(PeriodRow(head.campaign, head.period, task.role), head.kind)
        write_file(path, head, task.secret, contents, entropy=self._entropy, force=True)

    def _let_out(self, row: PeriodRow, reports: int, refused: Counter[str], content: bytes, out: Path) -> Sent:
        """Note the file that leaves for a period, for ever, and hand it out."""
        file = _digest(self._path(row, _FILES[row.role]))
        row = row._replace(reports=reports, refused=packed_refusals(refused), content=content, file=file)
        self._record(row)
        self._hand_out(row, out)
        return Sent(row.period, reports, dict(row.refusals), False)

    def _record(self, row: PeriodRow) -> None:
        with self._journal.transaction():
            self._journal.put("periods", row._replace(made_at=int(self._clock())))

    def _hand_out_again(self, row: PeriodRow, out: Path) -> None:
        """Hand out what had left."""
        self._write_anew(row)
        self._hand_out(row, out)

    def _write_anew(self, row: PeriodRow) -> None:
        """Write a period's row again before its file leaves again, since its last flush may have failed."""
        with self._journal.transaction():
            self._journal.put("periods", row)

    def _hand_out(self, row: PeriodRow, out: Path) -> None:
        """Copy the file that left for a period, which is in this folder."""
        path = self._path(row, _FILES[row.role])
        if not path.is_file() or _digest(path) != row.file:
            raise _damaged(path, "the period can not be handed out again")
        with open_output(out, force=True, mode=PRIVATE) as to, path.open("rb") as source:
            shutil.copyfileobj(source, to)

    def _ids_sent(self, task: Task, row: PeriodRow) -> set[bytes]:
        """Return the ids of the request that left for a period."""
        path, length = self._path(row, REQUEST), RequestRow.length(task.prio3)
        if not path.is_file() or _digest(path) != row.file:
            raise _damaged(path, "the period can not be handed out again")
        with self._reading(path, REQUEST, task) as reader:
            parts = rows_of(reader.contents(task.secret), length, row.reports)
            return {part[at : at + ID_BYTES] for part in parts for at in range(0, len(part), length)}

    # What the steps need -----------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse to work on periods while another process does. The system lets go of the lock of a killed process."""
        if not self._periods.is_dir():
            raise _damaged(self._periods, "what was released is not known")
        descriptor = os.open(self._periods, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not try_lock(descriptor):
                raise StorageError("collector_busy", "another process is at work in this folder; try again later")
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _reading(self, path: Path, kind: str, task: Task) -> Iterator[Reader]:
        """Open a file between collectors, and refuse one of another campaign."""
        with storage_errors(f"'{path}' can not be read"), path.open("rb") as file:
            reader = Reader(file, kind)
            if reader.head.campaign != task.campaign.id:
                raise DocumentError("unrecognized_campaign", f"the {kind} is of another campaign")
            yield reader

    def _task(self, campaign: bytes, trusted: bytes, role: int | None = None) -> Task:
        """Return what this collector does for a verified campaign; ``role`` is the one that it must have, if any."""
        found, own = signed_campaign(trusted, campaign), self._key()
        number, verify_key = pair.role_in(terms_of(found), own)
        if role not in (None, number):
            raise InputError("not_this_collector", _WRONG[number])
        other = terms_of(found).collectors[1 - number].key
        return Task(found, number, verify_key, own, pair.private_box_key(own), pair.common_secret(own, other))

    def _row(self, task: Task, period: int) -> PeriodRow | None:
        with self._journal.snapshot():
            return self._journal.period(task.campaign.id, period)

    def _check_period(self, campaign: Campaign, period: int) -> None:
        """Refuse a period that has not ended, or that an adopted copy may not release."""
        now = int(self._clock())
        if (period + 1) * campaign.time_precision > now:
            ends = begins(period + 1, campaign.time_precision)
            raise PolicyError("period_refused", f"the period ends at {ends}; until then devices may still answer")
        adopted = self._journal.keeper().adopted_at
        if adopted and period <= campaign.period_at(adopted):
            raise PolicyError(
                "period_refused", "the period began before this copy was adopted; the other copy may have released it"
            )

    def _path(self, row: PeriodRow, kind: str) -> Path:
        return self._periods / f"{row.campaign.hex()}-{row.period}.{kind}"

    @property
    def _periods(self) -> Path:
        return self.path / PERIODS

    def _key(self) -> SigningKey:
        problem, found = "", None
        try:
            found = read_key(self.path / KEY_FILE, (ROLE,))
        except InputError as error:
            problem = error.detail
        if found is None or found.public != self.public.key:
            raise StorageError("collector_damaged", f"'{KEY_FILE}' can not be used: {problem or 'another key'}")
        return found.open(self._passphrase)


def _damaged(path: Path, so: str) -> StorageError:
    return StorageError("collector_damaged", f"'{path}' is lost or changed, so {so}")


def _noted(parts: Iterable[bytes], digest: Digest) -> Iterator[bytes]:
    """Yield the parts, and feed them to a digest."""
    for part in parts:
        digest.update(part)
        yield part


def _counting(progress: Progress | None, of: int) -> Callable[[int], None]:
    """Return a function that is told how many more steps are done, and passes on how many are done of all."""
    counted = 0

    def count(more: int) -> None:
        nonlocal counted
        counted += more
        if progress is not None:
            progress(counted, of)

    return count


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return file_digest(file, "sha256").digest()
