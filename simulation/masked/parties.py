"""Real parties, a dealer and an aggregator in memory: enrolment, key book, messages, request, release, decrypted total.

Every party accepts the signed campaign and the dealer's key book, encrypts its noisy sums once and signs. The
aggregator judges every message, asks the dealer for exactly the set of accepted ones, and decrypts their total.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator.masked.dealer import Dealer
from aggregator.publishing.nodes.lists import make_node_list
from edge_sdk import Node, Policy
from protocol.masked.cipher import Unmasking
from protocol.masked.keys import read_key_book
from protocol.masked.message import judge_message
from protocol.masked.release import build_request, check_answers, parse_request, read_release
from protocol.masked.slots import Slots
from protocol.masked.terms import ciphertexts_of, masked_terms_of
from protocol.nodes.terms import released_vectors
from protocol.sums.adjacency import ADD_REMOVE
from simulation.experiment import records_of, seeded_entropy
from simulation.masked.terms import made_up_modulus
from simulation.masked.vector import statistics_of
from simulation.running import SIMULATED_NOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from aggregator.estimates.statistics import Statistics
    from aggregator.publishing.workspace import Workspace
    from protocol.documents.campaign import Campaign
    from protocol.nodes.node_list import NodeList
    from simulation.running import Randomness


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
    return decrypted(dealer, campaign, listed.document, book, messages, randomness.now)


def _message(party: Node, campaign_bytes: bytes, campaign: Campaign, book: bytes, records: pd.DataFrame) -> bytes:
    """The signed message of one party."""
    label = campaign.schema.label.name
    enrolled = party.enrol(campaign_bytes).id
    party.accept_keys(book)
    return party.encrypt(enrolled, ({**record, label: value} for record, value in records_of(records, label))).raw


def decrypted(
    dealer: Dealer, campaign: Campaign, listed: NodeList, book: bytes, messages: Sequence[bytes], now: int
) -> Statistics:
    """Judge the messages of one period, let the dealer release their set, and decrypt the total.

    Args:
        dealer: the dealer of the campaign.
        campaign: a masked campaign.
        listed: the list of nodes.
        book: the dealer's signed key book.
        messages: signed messages, one per party, all of the present period.
        now: seconds since 1970.

    Raises:
        DocumentError: a message is refused, or ``mask_mismatch``.
        InputError: ``parties_too_few``.
    """
    terms, keys, period = masked_terms_of(campaign), read_key_book(book, campaign), campaign.period_at(now)
    running = Unmasking(terms.modulus, ciphertexts_of(campaign))
    reported = set()
    for raw in messages:
        message = judge_message(raw, campaign, listed, keys, now)
        running.add(message.ciphertexts)
        reported.add(message.node)
    request = build_request(campaign.id, period, keys.version, reported)
    release = read_release(dealer.release(request).raw, campaign)
    check_answers(release, parse_request(request))
    count = sum(subject.size for subject in released_vectors(campaign))
    values = Slots(terms.slot_bits).unpack(running.opened(release.elements), count)
    return statistics_of(values, campaign, Counter(keys.parties[node].u for node in reported), period)
