"""A dealer of masked sums in fault tests: its steps, what others have received from it, and what must hold.

One key book of a version; one set of parties of a period, whatever was told before; the same request gets the same
bytes; and the folder continues to work. The harness writes files anew, so the
check for copies, which looks at the file's inode, is off here.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from aggregator.nodes.dealer import issuing, journal
from aggregator.nodes.dealer import issuing as releasing
from aggregator.nodes.dealer.dealer import Dealer
from protocol.documents.envelope import keyid
from protocol.errors import HearsayError, PolicyError
from protocol.masked.release import build_request
from support.faults.harness import Harness, with_less_synchronisation, without_journal, without_synchronisation
from support.faults.lives import Scenario
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


class DealerLife:
    """A dealer's folder. The public methods without arguments are the steps that scenarios name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.world = root / "world"
        self.out = self.world / "out"
        self.path = self.world / "dealer"
        self.dealer: Dealer | None = None

    def _tell(self, what: str, raw: bytes) -> None:
        """Note something that others have received. The note is out of reach of every fault."""
        with (self.root / "told").open("a") as file:
            file.write(f"{what} {sha256(raw).hexdigest()}\n")

    def told(self) -> set[tuple[str, ...]]:
        path = self.root / "told"
        return {tuple(line.split()) for line in path.read_text().splitlines()} if path.exists() else set()

    def open(self) -> None:
        """A program starts; the first one makes the folder."""
        self.close()
        if not self.path.exists():
            self.dealer = Dealer.create(
                self.path, modulus=MODULUS, entropy=lambda size: SIGNER.seed[:size], clock=lambda: NOW
            )
            return
        self.dealer = Dealer.open(self.path, clock=lambda: NOW)

    def close(self) -> None:
        if self.dealer is not None:
            self.dealer.close()
            self.dealer = None

    def setup(self) -> None:
        """Make the first book; after a crash the same book is asked for again."""
        try:
            made = self.dealer.setup(CAMPAIGN, LISTS[1], ROOT)
        except HearsayError as error:
            if error.reason != "already_set_up":
                raise
            made = self.dealer.rekey(CAMPAIGN, LISTS[1], ROOT)
        self._tell("book-1", made.raw)

    def rekey(self) -> None:
        self._tell("book-2", self.dealer.rekey(CAMPAIGN, LISTS[2], ROOT).raw)

    def release(self) -> None:
        self.ask("first", FIRST)

    def ask(self, name: str, parties: list[bytes]) -> None:
        self._tell(name, self.dealer.release(build_request(ID, PERIOD, 1, parties)).raw)


READY = ("open", "setup")
SCENARIOS = {
    "dealer setup": Scenario(("open",), ("open", "setup")),
    "dealer rekey": Scenario(READY, ("open", "rekey")),
    "dealer release": Scenario(READY, ("open", "release")),
}


class DealerHarness(Harness):
    """Breaks one scenario of a dealer."""

    scenarios = SCENARIOS

    def _life(self) -> DealerLife:
        return DealerLife(self.root)

    @staticmethod
    def _warm_up() -> None:
        """No device is needed. Files that the harness wrote anew have another inode."""
        journal.Journal.check_original = lambda _self: None

    def _is_open(self) -> bool:
        return self.life.dealer is not None

    def _summary(self) -> dict[str, Any]:
        return {
            "campaigns": [
                [each.row.version, len(each.books), [row.parties.hex() for row in each.releases]]
                for each in self.life.dealer.served()
            ]
        }

    def _seen_in(self, tree: dict[str, bytes | None]) -> set[Any]:
        del tree
        return set()

    def _examine(self, visible: set[Any]) -> list[str]:
        del visible
        if not self.life.path.exists():
            return ["the folder is gone"]
        try:
            self.life.open()
        except HearsayError as error:
            return [f"can not be opened: {error.reason}"]
        problems = []
        if "release" in self.scenario.act and any(line[0] == "first" for line in self.life.told()):
            try:
                self.life.ask("other", OTHER)
            except PolicyError:
                pass
            else:
                problems.append("a second set was released")
        for step in self.scenario.act:
            getattr(self.life, step)()
        if self._summary() != self.whole:
            problems.append(f"done once more, it is {self._summary()}, not {self.whole}")
        names = [line[0] for line in self.life.told()]
        problems += [f"two different bytes of {name}" for name in set(names) if names.count(name) > 1]
        self.life.setup() if self._summary()["campaigns"] == [] else None
        self.life.release()
        return problems


def _released_before_recorded() -> None:
    """The release leaves, and then its set is recorded."""
    plain = releasing.build_release

    def early(*arguments: Any) -> bytes:
        raw = plain(*arguments)
        life = DealerLife(_released_before_recorded.root)
        life._tell("first", raw)
        return raw

    releasing.build_release = early
    init = DealerLife.__init__

    def noted(self: DealerLife, root: Path) -> None:
        _released_before_recorded.root = root
        init(self, root)

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
    "dealer without synchronisation": without_synchronisation,
    "dealer with less synchronisation": with_less_synchronisation,
    "dealer without journal": without_journal,
    "dealer releases too early": _released_before_recorded,
    "dealer with fresh boxes": _book_of_fresh_boxes,
}
