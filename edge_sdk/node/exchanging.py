"""Unite the summaries in other nodes' files with a node's own file, after verifying each (set-union gossip).

The file of a set of summaries is determined by the set, so nodes that exchange in any order end with equal files. A
lying peer can withhold summaries, and add only those that a listed node has signed.
Source: docs/formats.md, section 6; decision 76.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from edge_sdk.storage.atomic_files import is_no_file, os_errors, private, read_regular, replace
from protocol.errors import InputError, StorageError
from protocol.nodes.summary import SummarySet, judge_summary, read_summary
from protocol.nodes.terms import released_vectors
from protocol.stream import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from protocol.documents.campaign import Campaign
    from protocol.nodes.summary import NodeList, Summary
    from protocol.questions import Subject

SUFFIX = ".hsn"
MOST_BYTES = 256 << 20
"""Largest file that is read or written. A summary of 300 numbers takes 2.7 kB, so 90,000 of them fit."""
_REMEMBERED = 1 << 16
"""Most accepted envelopes that are remembered: a listed node may sign any number of conflicting ones."""


class Unread(NamedTuple):
    """A peer's file or folder that could not be read: its path, and the error's reason and text."""

    path: str
    reason: str
    detail: str


class Exchanged(NamedTuple):
    """What an exchange found, and the set after it.

    Attributes:
        summaries: the set: all kept summaries of the campaign.
        added: number of summaries that were added: the node's own, and those of the peers' files.
        refused: reason → number of summaries, and of unreadable parts of the peers' files, that were not added.
        dropped: reason → number of those that this node's own file held and holds no longer.
        unread: peers' files and folders that could not be read; all other files were united.
        digest: SHA-256 of the file of the set, 32 bytes. Equal sets have equal digests.
    """

    summaries: SummarySet
    added: int
    refused: dict[str, int]
    dropped: dict[str, int]
    unread: tuple[Unread, ...]
    digest: bytes


def exchange(
    campaign: Campaign, nodes: NodeList, now: int, own: str, peers: Sequence[str], mine: bytes = b""
) -> Exchanged:
    """Unite the summaries of the peers' files with the file ``own``, and replace it by the union.

    The file is replaced as a whole: a process that is killed leaves the old file or the new one. Processes that
    exchange into the same file wait for one another. Summaries of other campaigns, of nodes that are not on the list,
    and with a wrong signature or wrong values are left out, from the node's own file too.

    Args:
        nodes: the newest verified list of nodes.
        now: seconds since 1970: summaries of later periods are refused.
        own: path of this node's file; it is made if it does not exist.
        peers: paths of files of summaries, and of folders, of which all files ``*.hsn`` are read.
        mine: summaries that this node made, joined; they are verified and united like a peer's file.

    Raises InputError ``campaign_for_devices``; ``file_unreadable``, ``other_campaign``: of the node's own file;
    ``too_large``: that file or the union has more than :data:`MOST_BYTES`.
    """
    judge = _Judge(campaign, nodes, now)
    with _locked(own):
        before = _read(own) if os.path.lexists(own) else b""
        if isinstance(before, Unread):
            raise InputError(before.reason, f"'{own}' can not be read: {before.detail}")
        united = SummarySet()
        dropped = united.add_file(before, judge)
        if dropped["unrecognized_campaign"]:
            raise InputError("other_campaign", f"'{own}' has summaries of another campaign; name another file")
        known = len(united)
        refused: Counter[str] = Counter()
        unread: list[Unread] = []
        for content in chain((mine,), _contents(peers, own, unread)):
            refused += united.add_file(content, judge)
        after = united.to_bytes()
        if len(after) > MOST_BYTES:
            raise InputError(
                "too_large", f"the union has more than {MOST_BYTES} bytes; keep a file per span of periods"
            )
        if after != before or not os.path.lexists(own):
            _write(own, after)
    return Exchanged(united, len(united) - known, dict(refused), dict(dropped), tuple(unread), sha256(after).digest())


class _Judge:
    """Verifies signed summaries. Accepted bytes are remembered, so a second copy costs no signature check."""

    def __init__(self, campaign: Campaign, nodes: NodeList, now: int) -> None:
        self._judge: Callable[[bytes], Summary] = lambda raw: judge_summary(raw, campaign, nodes, now)
        self._accepted: dict[bytes, Summary] = {}

    def __call__(self, envelope: bytes) -> Summary:
        """Return the summary in ``envelope``, without its numbers. Raises the errors of :func:`judge_summary`."""
        digest = sha256(envelope).digest()
        found = self._accepted.get(digest)
        if found is None:
            if len(self._accepted) >= _REMEMBERED:
                self._accepted.clear()
            found = self._accepted[digest] = self._judge(envelope)._replace(sums=())
        return found


def _read(path: str) -> bytes | Unread:
    try:
        content = read_regular(path, MOST_BYTES + 1)
    except OSError as error:
        return Unread(path, "file_unreadable", error.strerror or "the system refused it")
    if len(content) > MOST_BYTES:
        return Unread(path, "too_large", f"it has more than {MOST_BYTES} bytes")
    return content


def _contents(paths: Sequence[str], own: str, unread: list[Unread]) -> Iterator[bytes]:
    """Yield the contents of other nodes' files, and of files in folders. Add what can not be read to ``unread``."""
    for path in paths:
        try:
            names = sorted(entry for entry in os.listdir(path) if entry.endswith(SUFFIX) and not entry.startswith("."))
            files = [os.path.join(path, name) for name in names]
        except NotADirectoryError:
            files = [path]
        except OSError as error:
            unread.append(Unread(path, "file_unreadable", error.strerror or "the system refused it"))
            continue
        for file in files:
            if os.path.exists(file) and os.path.exists(own) and os.path.samefile(file, own):
                continue
            found = _read(file)
            if isinstance(found, Unread):
                unread.append(found)
            else:
                yield found


def _write(own: str, content: bytes) -> None:
    if os.path.islink(own) or is_no_file(own):
        raise StorageError(
            "io_failed", f"'{own}' can not be written: a folder, pipe, device or symbolic link has this name"
        )
    with os_errors(f"'{own}' can not be written"):
        replace(own, content)


@contextmanager
def _locked(own: str) -> Iterator[None]:
    """Hold a lock file beside ``own`` while the body runs, and wait for another process that holds it."""
    folder, name = os.path.split(own)
    descriptor, problem = -1, ""
    try:
        place = os.path.join(folder, f".{name}.lock")
        with suppress(FileExistsError):
            os.close(private(place, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        descriptor = os.open(place, os.O_RDWR | os.O_NOFOLLOW)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        problem = error.strerror or "the system refused it"
    try:
        if problem:
            raise StorageError("io_failed", f"a lock file beside '{own}' can not be made: {problem}")
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


class Totals(NamedTuple):
    """Sums over the nodes of one period.

    Attributes:
        period: index of the period since 1970.
        nodes: number of nodes whose summaries were added. A node with different summaries of one period is left out.
        sums: shape (M,), for each of the M released numbers the sum over these nodes.
    """

    period: int
    nodes: int
    sums: tuple[int, ...]

    def vectors(self, campaign: Campaign) -> list[tuple[Subject, tuple[int, ...]]]:
        """Return the sums by released vector of the campaign, in order, each with its subject (what it sums)."""
        found, place = [], 0
        for subject in released_vectors(campaign):
            found.append((subject, self.sums[place : place + subject.size]))
            place += subject.size
        return found


def totals(summaries: SummarySet, campaign: Campaign) -> list[Totals]:
    """Return a campaign's totals of verified summaries, one per period, in order. Each node counts once."""
    found: dict[int, Totals] = {}
    for envelope in summaries.counting():
        summary = read_summary(envelope)[1]
        if summary.campaign != campaign.id:
            continue
        before = found.get(summary.period, Totals(summary.period, 0, (0,) * len(summary.sums)))
        sums = tuple(a + b for a, b in zip(before.sums, summary.sums, strict=True))
        found[summary.period] = Totals(summary.period, before.nodes + 1, sums)
    return [found[period] for period in sorted(found)]
