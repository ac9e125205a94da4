"""``distributed`` trust: records are dealt to parties, and only the total of their sums can be decrypted.

The campaign is a signed masked campaign. The engine ``device`` runs real parties, a dealer and a store: every party
accepts campaign and key book, encrypts its noisy sums once and signs; the store checks every message, asks the dealer
for a release of exactly the accepted messages, and decrypts their total. ``vector`` draws the decrypted totals
(:mod:`simulation.drawn`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from aggregator.common.arrays import Integers
from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import label_codes, observe
from aggregator.nodes.campaigns.campaigns import Masking, masked_terms
from aggregator.nodes.campaigns.dealer_file import DealerPublic
from aggregator.nodes.campaigns.lists import make_node_list
from aggregator.nodes.dealer.dealer import Dealer
from aggregator.nodes.store.masked import MaskedStore
from aggregator.nodes.store.opening import make_envelope_store
from edge_sdk import Node
from protocol.documents.campaign import Campaign
from protocol.documents.masked_terms import DIVIDED, MODULUS_BYTES, MaskedTerms, NodeTerms, unfit_modulus
from protocol.epsilon import MICRO, PICO, micro_epsilon
from protocol.errors import InputError
from protocol.masked.costs import ciphertexts_of, cost, masked_terms_of
from protocol.nodes.terms import released_vectors
from protocol.questions import ADD_REMOVE, CHANGE
from protocol.schema import Schema
from simulation.design import Design
from simulation.drawn import deal, exact_sums, noise_of_total, numbers_of_setup, total_statistics, totals
from simulation.fleet import PERMISSIVE, seeded_entropy
from simulation.nodes import OfNodes, labelled_records, message_files, nodes_of, records_by_owner
from simulation.settings import Settings
from simulation.trust import SIMULATED_NOW, Lab, Trial, accuracies

FEW_POWERS = 300
"""Up to this number of powers a trial of the engine ``device`` is not announced as slow."""
FAST_SECONDS, SLOW_SECONDS = 0.02, 0.18
"""About how long a processor takes for one power of a key of 4224 bits, with gmpy2 and without."""


class DistributedTrust(OfNodes):
    """Nodes encrypt their sums, and only the total can be decrypted. The settings must have a number of parties."""

    def __init__(self, settings: Settings, design: Design, records: int) -> None:
        """Check the settings, and warn of a slow engine.

        Raises InputError ``setting_invalid``: fewer than two parties; ``terms_invalid``, ``delta_invalid``: no campaign
        can have these shares, this unit, noise or δ; ``epsilon_invalid``, ``family_unknown``, ``no_numbers``,
        ``postprocess_unknown``.
        """
        campaign = self.check(settings, design, max(records, 1))
        powers = ((settings.nodes or 0) + 1) * ciphertexts_of(campaign)
        if settings.engine == "device" and powers > FEW_POWERS:
            slow = (
                f"the engine device computes {powers} powers of 4224 bits in every trial, about "
                f"{powers * FAST_SECONDS:.0f} s, or {powers * SLOW_SECONDS:.0f} s without gmpy2; the engine vector "
                "draws such totals at once"
            )
            self.warnings = (slow,)

    def shared(self, lab: Lab) -> AbstractContextManager[Dealer | None]:
        """Return a context with the dealer of all campaigns, or with None if numpy draws the totals."""
        return nullcontext() if lab.settings.engine == "vector" else simulated_dealer(lab.settings.seed)

    def terms(
        self, lab: Lab, schema: Schema, family: str, records: int, number: int, shared: Dealer | None
    ) -> tuple[NodeTerms, MaskedTerms]:
        """Return the terms of a masked campaign (:meth:`OfNodes.terms`).

        A party has at most an equal share of the records. Without a dealer, key and modulus are made-up numbers, which
        encrypt nothing.
        """
        masking = masking_of(lab.settings, None if shared is None else shared.public)
        micro = micro_epsilon(lab.settings.epsilon)
        nodes = NodeTerms(f"nodes {number}", -(-records // masking.most_parties), micro)
        return nodes, masked_terms(masking, nodes, schema, family, micro)

    def gather(
        self, lab: Lab, raw: bytes, campaign: Campaign, people: pd.DataFrame, shared: Dealer | None
    ) -> Statistics:
        """Return the statistics of the parties' decrypted total (:meth:`OfNodes.gather`)."""
        nodes, randomness = lab.settings.nodes or 0, lab.randomness
        if shared is not None:
            dealt = deal(len(people), nodes, randomness.noise)
            return encrypted(lab, shared, raw, campaign, people, dealt)
        labels = label_codes(people, campaign.schema.label, substitute=True)
        owners = np.zeros(len(people), np.int64)
        exact = exact_sums(released_vectors(campaign), observe(people, campaign.schema), labels, owners, 1)[0]
        numbers = numbers_of_setup(nodes)
        values = totals(exact, campaign, numbers, randomness.noise).tolist()
        return total_statistics(values, campaign, numbers, campaign.period_at(randomness.now))

    def summary(self, trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
        """Return the means of the accuracies, the cost of one message, the terms, and the settings.

        A unit is a record or a party. ``epsilon_total`` and ``delta_total`` are for adding or removing one unit,
        ``epsilon_change`` and ``delta_change`` for changing one. ``noise_copies`` is the expected number of whole
        copies of noise in a total.
        """
        campaign = trials[0].campaign
        assert campaign is not None
        terms = masked_terms_of(campaign)
        (epsilon, delta), (changed, delta_changed) = cost(campaign, ADD_REMOVE), cost(campaign, CHANGE)
        return {
            "trust": "distributed",
            **accuracies(trials, settings.repeats),
            "epsilon_total": epsilon / MICRO,
            "delta_total": delta / PICO,
            "adjacency": ADD_REMOVE,
            "epsilon_change": changed / MICRO,
            "delta_change": delta_changed / PICO,
            "unit": terms.unit,
            "noise": terms.noise,
            "honest_share": terms.honest_micro / MICRO,
            "colluding_share": terms.colluding_micro / MICRO,
            "noise_copies": noise_of_total(campaign, numbers_of_setup(settings.nodes or 0))[0].copies,
            "queries": len(released_vectors(campaign)),
            "ciphertexts": ciphertexts_of(campaign),
            **nodes_of(settings, trials),
            "messages": sum(trial.reports for trial in trials),
        }


DEFAULT_DELTA = "1e-5"
"""δ of a whole total with ``diluted`` noise, if the settings name none."""


def masking_of(settings: Settings, dealer: DealerPublic | None = None) -> Masking:
    """Return what the publisher of a simulated masked campaign chooses.

    Args:
        settings: the settings. With ``divided`` noise their δ is not used.
        dealer: key and modulus of a dealer; None for made-up ones, which encrypt nothing.

    Raises InputError ``setting_invalid``: fewer than two parties.
    """
    if settings.nodes is None or settings.nodes < 2:
        raise InputError("setting_invalid", "distributed trust needs a number of parties, 2 or more (--nodes)")
    noise = settings.noise or DIVIDED
    delta = DEFAULT_DELTA if settings.delta is None else str(settings.delta)
    return Masking(
        dealer=dealer or made_up_dealer(),
        honest_share=str(settings.honest_share),
        most_parties=settings.nodes,
        colluding_share=str(settings.colluding_share),
        noise=noise,
        delta=None if noise == DIVIDED else delta,
        unit=settings.unit,
    )


def made_up_dealer() -> DealerPublic:
    """Return the dealer of a campaign of which numpy draws the totals.

    It has no secret, and nothing is encrypted for it.
    """
    return DealerPublic(bytes(32), made_up_modulus())


@cache
def made_up_modulus() -> int:
    """Return a number in place of a modulus. It is a hash, so it is secure for nothing but simulations with a seed."""
    for trial in count():
        blocks = [sha256(b"hearsay simulated modulus %d %d" % (trial, block)).digest() for block in range(8)]
        number = int.from_bytes(b"".join(blocks), "big") | 1 << 8 * MODULUS_BYTES - 1 | 1
        if not unfit_modulus(number):
            break
    return number


@contextmanager
def simulated_dealer(seed: int | None) -> Iterator[Dealer]:
    """Open a context with a dealer in a new folder, which is deleted at the end.

    Args:
        seed: seed of the simulation. Equal seeds give equal keys, and a made-up modulus in place of a new one. None for
            entropy of the operating system, a new modulus and the present time.

    Raises InputError ``missing_extra``: the library that makes a modulus is not installed.
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


def encrypted(
    lab: Lab, dealer: Dealer, campaign_bytes: bytes, campaign: Campaign, frame: pd.DataFrame, owners: Integers
) -> Statistics:
    """Let every party encrypt its sums once, decrypt the total, and return its statistics.

    Args:
        lab: the run. Its workspace must not have signed a node list of the name that the campaign states.
        dealer: the dealer whose key and modulus the campaign names.
        owners: shape (n,) int64, the party of every record. A party without records takes part with noise alone.
    """
    workspace, randomness, nodes = lab.workspace, lab.randomness, lab.settings.nodes or 0
    assert campaign.nodes is not None
    # A simulated owner allows every ε and δ.
    delta = PICO // 100
    policy = PERMISSIVE._replace(
        node_adjacency=ADD_REMOVE, allow_masked=True, period_delta_pico=delta, lifetime_delta_pico=delta
    )
    root, clock = workspace.root_bytes, lambda: randomness.now
    with ExitStack() as stack:
        parties = [
            stack.enter_context(Node.open(None, trust=root, policy=policy, clock=clock, entropy=randomness.entropy))
            for _ in range(nodes)
        ]
        keys = [party.public_key for party in parties]
        listed = make_node_list(workspace, campaign.nodes.list_name, keys, now=randomness.now)
        book = dealer.setup(campaign_bytes, listed.raw, workspace.root_bytes).raw
        messages = [
            _message(party, campaign_bytes, campaign, book, records)
            for party, records in zip(parties, records_by_owner(frame, owners, nodes), strict=True)
        ]
    # The store takes the messages, and the dealer releases exactly the set that it accepted.
    with tempfile.TemporaryDirectory(prefix="hearsay-") as name:
        folder = Path(name)
        store = make_envelope_store(MaskedStore, folder / "store", campaign_bytes)
        store.give_list(listed.raw)
        store.give_book(book)
        store.ingest(message_files(folder, messages, store.suffix), now=randomness.now)
        store.decrypt(dealer.release(store.request(store.campaign.period_at(randomness.now))).raw)
        return store.statistics()


def _message(party: Node, campaign_bytes: bytes, campaign: Campaign, book: bytes, records: pd.DataFrame) -> bytes:
    enrolled = party.enrol(campaign_bytes).id
    party.accept_keys(book)
    return party.encrypt(enrolled, labelled_records(records, campaign.schema.label.name)).raw
