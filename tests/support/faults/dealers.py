"""A dealer of masked sums in fault tests: its steps, what others have received from it, and what must hold.

One key book of a version; one set of parties of a period, whatever was told before; the same request gets the same
bytes; and the folder continues to work. The harness writes files anew, so the
check for copies, which looks at the file's inode, is off here.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from aggregator.nodes.dealer import issuing, journal
from aggregator.nodes.dealer.dealer import Dealer
from protocol.documents.envelope import keyid
from protocol.errors import HearsayError, PolicyError
from protocol.masked.release import build_request
from support.faults.harness import (
    FolderLife,
    Mistake,
    Scenario,
    with_less_synchronisation,
    without_journal,
    without_synchronisation,
)
from support.masked import MODULUS, TERMS, masked_payload
from support.nodes import NODE_KEYS, PERIOD, signed_list
from support.publisher import NOW, Publisher, key
from support.reports import opened

if TYPE_CHECKING:
    from pathlib import Path

PUBLISHER = Publisher()
SIGNER = key(91)
CAMPAIGN = PUBLISHER.sign(
    "campaign", masked_payload(PUBLISHER, "discrete", masked=TERMS._replace(dealer=SIGNER.public, honest_micro=500_000))
)
ID = opened(CAMPAIGN).id
LISTS = {1: signed_list(PUBLISHER, NODE_KEYS[:4]), 2: signed_list(PUBLISHER, NODE_KEYS[1:5], 2)}
ROOT = PUBLISHER.root()
FIRST, OTHER = ([keyid(each.public) for each in NODE_KEYS[:number]] for number in (4, 3))


class DealerLife(FolderLife):
    """A dealer's folder."""

    @classmethod
    def warm_up(cls) -> None:
        """Files that the harness wrote anew have another inode."""
        journal.Journal.check_original = lambda _self: None

    def open(self) -> None:
        """A program starts; the first one makes the folder."""
        self.close()
        path = self.world / "dealer"
        if path.exists():
            self.tool = Dealer.open(path, clock=lambda: NOW)
            return
        self.tool = Dealer.create(path, modulus=MODULUS, entropy=lambda size: SIGNER.seed[:size], clock=lambda: NOW)

    def tell_bytes(self, what: str, raw: bytes) -> None:
        self.tell(f"{what} {sha256(raw).hexdigest()}")

    def setup(self) -> None:
        """Make the first book; after a crash the same book is asked for again."""
        try:
            made = self.tool.setup(CAMPAIGN, LISTS[1], ROOT)
        except HearsayError as error:
            if error.reason != "already_set_up":
                raise
            made = self.tool.rekey(CAMPAIGN, LISTS[1], ROOT)
        self.tell_bytes("book-1", made.raw)

    def rekey(self) -> None:
        self.tell_bytes("book-2", self.tool.rekey(CAMPAIGN, LISTS[2], ROOT).raw)

    def release(self, name: str = "first", parties: list[bytes] = FIRST) -> None:
        self.tell_bytes(name, self.tool.release(build_request(ID, PERIOD, 1, parties)).raw)

    def summary(self) -> dict[str, object]:
        return {
            "campaigns": [
                [each.row.version, len(each.books), [row.parties.hex() for row in each.releases]]
                for each in self.tool.served()
            ]
        }

    def examine(self, scenario, before, whole, visible) -> list[str]:
        if not (self.world / "dealer").exists():
            return ["the folder is gone"]
        problems = super().examine(scenario, before, whole, visible)
        if self.tool is not None:
            self.setup() if self.summary()["campaigns"] == [] else None
            self.release()
        return problems

    def promises(self, when: str, scenario: Scenario) -> list[str]:
        names = [line.split()[0] for line in sorted(set(self.told()))]
        problems = [f"{when}: two different bytes of {name}" for name in set(names) if names.count(name) > 1]
        if "release" in scenario.act and "first" in names:
            with suppress(PolicyError):
                self.release("other", OTHER)
                problems.append(f"{when}: a second set was released")
        return problems


LIFE = DealerLife
READY = ("open", "setup")
SCENARIOS = {
    "dealer setup": Scenario(("open",), ("open", "setup")),
    "dealer rekey": Scenario(READY, ("open", "rekey")),
    "dealer release": Scenario(READY, ("open", "release")),
}


def _released_before_recorded() -> None:
    """The release leaves, and then its set is recorded."""
    plain = issuing.build_release

    def early(*arguments: Any) -> bytes:
        raw = plain(*arguments)
        life = DealerLife(_released_before_recorded.root, {})
        life.tell_bytes("first", raw)
        return raw

    issuing.build_release = early
    init = DealerLife.__init__

    def noted(self: DealerLife, root: Path, policy: Any) -> None:
        _released_before_recorded.root = root
        init(self, root, policy)

    DealerLife.__init__ = noted


def _book_of_fresh_boxes() -> None:
    """The present book is made anew, with other boxes, when it is asked for again."""
    plain = issuing.signed_book

    def fresh(own: Any, signer: Any, row: Any) -> bytes:
        plain(own, signer, row)
        parties = [
            party._replace(
                box=issuing.seal_key(
                    party.public,
                    row.campaign,
                    party.node,
                    party.serial,
                    party.u,
                    issuing.party_secret(signer.seed, row.campaign, party.node, party.serial),
                )
            )
            for party in own.parties(own.book(row.campaign, row.version))
        ]
        campaign = opened(row.document)
        return issuing._build(campaign, signer, row.version, row.list_version, parties)[0]

    issuing.signed_book = fresh


MUTATIONS = {
    "dealer without synchronisation": Mistake("dealer release", "kill", without_synchronisation),
    "dealer with less synchronisation": Mistake("dealer release", "kill", with_less_synchronisation),
    "dealer without journal": Mistake("dealer release", "kill", without_journal),
    "dealer releases too early": Mistake("dealer release", "kill", _released_before_recorded),
    "dealer with fresh boxes": Mistake("dealer setup", "restart", _book_of_fresh_boxes),
}
