"""Real parties, a dealer and a store: enrolment, key book, messages, request, release, decrypted total.

Every party accepts the signed campaign and the dealer's key book, encrypts its noisy sums once and signs. The store
judges every message, asks the dealer for exactly the set of accepted ones, and decrypts their total.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aggregator.estimates.statistics import Statistics
from aggregator.nodes.campaigns.lists import make_node_list
from aggregator.nodes.dealer.dealer import Dealer
from aggregator.nodes.store.masked import MaskedStore
from aggregator.nodes.store.opening import make_envelope_store
from aggregator.publishing.workspace import Workspace
from edge_sdk import Node, Policy
from protocol.documents.campaign import Campaign
from protocol.sums.adjacency import ADD_REMOVE
from simulation.experiment import records_of, seeded_entropy
from simulation.federation.nodes import PER_FILE
from simulation.masked.terms import made_up_modulus
from simulation.running import SIMULATED_NOW, Randomness


@contextmanager
def simulated_dealer(seed: int | None) -> Iterator[Dealer]:
    """A dealer in a folder of its own, for a ``with`` block. The end of the block deletes the folder.

    Args:
        seed: of the simulation. Equal seeds give equal keys, and a made-up modulus in place of a new one. None for
            entropy of the operating system, a new modulus and the present time.

    Raises:
        InputError: ``missing_extra``: the library that makes a modulus is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="hearsay-") as name:
        place = Path(name) / "dealer"
        if seed is None:
            made = Dealer.create(place)
        else:
            entropy = seeded_entropy(b"hearsay simulated dealer %d" % seed)
            made = Dealer.create(place, modulus=made_up_modulus(), entropy=entropy, clock=lambda: SIMULATED_NOW)
        with made as dealer:
            yield dealer


def gather(
    workspace: Workspace,
    dealer: Dealer,
    campaign_bytes: bytes,
    campaign: Campaign,
    frame: pd.DataFrame,
    owners: NDArray[np.int64],
    nodes: int,
    randomness: Randomness,
) -> Statistics:
    """Let every party encrypt its sums once, decrypt the total, and return its statistics.

    Args:
        workspace: signs the list of nodes; it has signed no list of the name that the campaign states.
        dealer: the campaign names its key and modulus.
        campaign_bytes: the signed campaign.
        campaign: the same, parsed.
        frame: n typed records with their label.
        owners: shape (n,) int64, the party of every record.
        nodes: number of parties. A party without records takes part with noise alone.
        randomness: time, and entropy of keys and noise.

    Raises:
        PolicyError, InputError, DocumentError: a party or the dealer refuses a document.
    """
    assert campaign.nodes is not None
    order = owners.argsort(kind="stable")
    ends = [0, *(owners[order].searchsorted(range(nodes), side="right")).tolist()]
    # A simulated owner allows every ε and δ.
    policy = Policy.of(
        epsilon_per_period="100000",
        epsilon_lifetime="100000",
        node_adjacency=ADD_REMOVE,
        allow_masked=True,
        delta_per_period="0.01",
        delta_lifetime="0.01",
    )
    with ExitStack() as stack:
        parties = [
            stack.enter_context(
                Node.open(
                    None,
                    trust=workspace.root_bytes,
                    policy=policy,
                    clock=lambda: randomness.now,
                    entropy=randomness.entropy,
                )
            )
            for _ in range(nodes)
        ]
        keys = [party.public_key for party in parties]
        listed = make_node_list(workspace, campaign.nodes.list_name, keys, now=randomness.now)
        book = dealer.setup(campaign_bytes, listed.raw, workspace.root_bytes).raw
        messages = [
            _message(party, campaign_bytes, campaign, book, frame.iloc[order[first:last]])
            for party, (first, last) in zip(parties, pairwise(ends), strict=True)
        ]
    return decrypted(dealer, campaign_bytes, listed.raw, book, messages, randomness.now)


def _message(party: Node, campaign_bytes: bytes, campaign: Campaign, book: bytes, records: pd.DataFrame) -> bytes:
    """The signed message of one party."""
    label = campaign.schema.label.name
    enrolled = party.enrol(campaign_bytes).id
    party.accept_keys(book)
    return party.encrypt(enrolled, ({**record, label: value} for record, value in records_of(records, label))).raw


def decrypted(
    dealer: Dealer, campaign_bytes: bytes, listed: bytes, book: bytes, messages: Sequence[bytes], now: int
) -> Statistics:
    """Take the messages of the present period into a new store, let the dealer release their set, and decrypt.

    Args:
        dealer: the dealer of the campaign.
        campaign_bytes: the signed campaign.
        listed: the signed list of nodes.
        book: the dealer's signed key book.
        messages: signed messages, one per party.
        now: seconds since 1970.

    Raises:
        PolicyError: ``parties_too_few``: too few messages were accepted.
    """
    with tempfile.TemporaryDirectory(prefix="hearsay-") as name:
        folder = Path(name)
        store = make_envelope_store(MaskedStore, folder / "store", campaign_bytes)
        store.give_list(listed)
        store.give_book(book)
        files: list[Path] = []
        for start in range(0, len(messages), PER_FILE):
            files.append(folder / f"{len(files):04d}{store.suffix}")
            files[-1].write_bytes(b"".join(messages[start : start + PER_FILE]))
        store.ingest(files, now=now)
        store.decrypt(dealer.release(store.request(store.campaign.period_at(now))).raw)
        return store.statistics()
