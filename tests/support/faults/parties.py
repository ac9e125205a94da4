"""The steps of a party of a masked campaign in fault tests. What must hold is what must hold for a node.

A party never releases two ciphertexts of one period under one key, and counts the δ of each message with its ε.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import edge_sdk.storage.ledger
from edge_sdk import Node
from edge_sdk.node.encryption import OfSums, PartyKeys, Unprepared
from edge_sdk.node.release import node_key
from protocol.documents.campaign import DISCRETE
from protocol.documents.masked_terms import DILUTED
from protocol.masked.message import read_message
from support.faults.harness import Mistake, Scenario
from support.faults.lives import RECORD, documents
from support.faults.nodes import NodeLife, Summed, scenarios
from support.masked import TERMS, book_of, masked_payload
from support.nodes import NODE_KEYS
from support.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DELTA_PICO = 1_000_000


class Encrypted(Summed):
    """One message that others have seen."""

    read = staticmethod(read_message)


@cache
def _documents() -> dict[str, bytes]:
    publisher, terms = Publisher(), TERMS._replace(noise=DILUTED, delta_pico=DELTA_PICO)
    payloads = [
        masked_payload(publisher, DISCRETE, masked=terms, name="mushrooms", version=version) for version in (1, 2)
    ]
    first, second = (publisher.sign("campaign", payload) for payload in payloads)
    return {**documents(), "campaign 1": first, "campaign 2": second}


class PartyLife(NodeLife):
    """A party and its folder. A step ``report`` accepts the key book, and encrypts the sums of three records."""

    suffix = ".hse"
    delta_pico = 2 * DELTA_PICO
    answer = Encrypted
    role = ("masked",)

    def __init__(self, root: Path, policy: Mapping[str, object]) -> None:
        super().__init__(root, {"allow_masked": True, **policy})

    @property
    def documents(self) -> dict[str, bytes]:
        return _documents()

    def accept(self) -> None:
        """Accept the dealer's key book, which holds a key for this node."""
        (campaign,) = self.device.campaigns()
        own = NODE_KEYS[0]._replace(public=self.device.public_key)
        self.device.accept_keys(book_of(campaign, keys=[*NODE_KEYS, own]))

    def report(self) -> None:
        self.accept()
        (campaign,) = self.device.campaigns()
        self.tell_answer("returned", campaign.id, self.device.encrypt(campaign.id, [RECORD] * 3, "e").raw)


LIFE = PartyLife
SCENARIOS = scenarios("party", "keys", "encrypt", Scenario(("open", "enrol"), ("open", "accept")))


def _encrypts_anew() -> None:
    """A repeated call encrypts the period's sums once more."""
    plain = Node.encrypt

    def encrypt(self, campaign, records, label):
        found = plain(self, campaign, records, label)
        if not found.repeated:
            return found
        document = self._reporting.campaign(campaign)
        making = OfSums(PartyKeys(self._state), lambda: node_key(self._reporting.secret()), self._entropy)
        making.exact = [3] * 10
        try:
            making.make(document, b"", found.period)
        except Unprepared as needed:
            making.prepare(document, needed)
        (raw,) = making.make(document, b"", found.period)
        return found._replace(raw=raw)

    Node.encrypt = encrypt


def _delta_apart() -> None:
    """The δ of a message is counted in a transaction of its own, after the message."""
    plain, deltas = edge_sdk.storage.ledger.Deltas.add, edge_sdk.storage.ledger.Deltas

    def encrypt(self, *given):
        counted = []
        deltas.add = lambda _, *line: counted.append(line)
        found = plain_encrypt(self, *given)
        with self._state.transaction():
            for line in counted:
                plain(self._reporting.ledger.deltas, *line)
        return found

    plain_encrypt, Node.encrypt = Node.encrypt, encrypt


MUTATIONS = {
    "party encrypts anew": Mistake("party encrypt", "restart", _encrypts_anew),
    "party counts delta apart": Mistake("party encrypt", "kill", _delta_apart),
}
