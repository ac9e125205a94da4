"""Make one summary of a node: exact sums → noise → limits of the campaign → signature.

Sources: docs/math.md, section 5 (the noise); docs/formats.md, section 6 (the bytes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_sdk.node.smooth import smooth_sums
from protocol.documents.envelope import SigningKey
from protocol.epsilon import format_micro
from protocol.errors import InputError, PolicyError
from protocol.nodes.summary import build_summary
from protocol.nodes.terms import SMOOTH, ranges, released_vectors, sensitivity, shares, terms_of
from protocol.noise.sums import Vector, with_noise
from protocol.stream import SEED_BYTES, Stream, hmac_sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_sdk.policy import Policy
    from protocol.documents.campaign import Campaign

NOISE_TAG = b"hearsay/1/node noise"
"""Tag of the random stream for a summary's noise. Vectors get their noise in order, each from its first number on."""
_KEY_MESSAGE = b"hearsay/1/node"


def node_key(secret: bytes) -> SigningKey:
    """Return the key pair with which a node signs. A new secret (opt-out, reset) makes it another node."""
    return SigningKey.from_seed(hmac_sha256(secret, _KEY_MESSAGE))


def noisy_sums(campaign: Campaign, exact: Sequence[int], epsilon_micro: int, seed: bytes) -> tuple[int, ...]:
    """Return the M numbers of a summary: sums with discrete Laplace noise, clipped to the campaign's public ranges.

    Vector j of Q vectors has ε_j = ⌊ε/Q⌋ and noise of rate ε_j/Δ_j on each number, where Δ_j is how much one record
    more or less can change the vector. Clipping uses the noisy number only.

    Args:
        exact: the M exact sums, from :class:`edge_sdk.node.sums.ExactSums`.
        seed: 32 fresh random bytes, used for nothing else.
    """
    stream, released, place = Stream(seed, NOISE_TAG), [], 0
    parts = zip(
        released_vectors(campaign), shares(campaign, epsilon_micro), ranges(campaign, epsilon_micro), strict=True
    )
    for subject, share, (low, high) in parts:
        values = tuple(exact[place : place + subject.size])
        noisy = with_noise(Vector(subject, values, sensitivity(subject), share), stream)
        released += [min(max(number, low), high) for number in noisy.values]
        place += subject.size
    return tuple(released)


def check_in_the_clear(campaign: Campaign) -> None:
    """Raise ``campaign_masked`` if a campaign is masked: its sums leave a node only encrypted."""
    if campaign.masked is not None:
        raise InputError(
            "campaign_masked",
            "this campaign is masked: its sums are encrypted ('node encrypt'), never sent in the clear",
        )


class OfRecords:
    """Makes a node's summary for one period, as a :class:`edge_sdk.answering.reporting.Making`."""

    def __init__(self, epsilon_micro: int | None, entropy: Callable[[int], bytes]) -> None:
        """Begin without sums: set :attr:`exact` later. ``epsilon_micro``: the summary's ε; None: the campaign's ε."""
        self._epsilon_micro = epsilon_micro
        self._entropy = entropy
        self.exact: Sequence[int] = ()
        """The M exact sums. The caller must set them before the summary is made."""
        self.grids: Mapping[int, Sequence[int]] = {}
        """Numbers of records by value (:attr:`edge_sdk.node.sums.ExactSums.grids`), for the sensitivity ``smooth``."""

    def check(self, campaign: Campaign) -> None:
        """Raise an error if a campaign is for devices, or masked, or does not allow this summary's ε."""
        terms = campaign.nodes
        if terms is None:
            raise InputError("campaign_for_devices", "this campaign asks about one record; a device reports about it")
        check_in_the_clear(campaign)
        least, most = terms.least_epsilon_micro, campaign.epsilon_micro
        if not least <= self._epsilon(campaign) <= most:
            raise InputError(
                "epsilon_out_of_range",
                f"a summary of this campaign has an ε from {format_micro(least)} to {format_micro(most)}",
            )

    def _epsilon(self, campaign: Campaign) -> int:
        return campaign.epsilon_micro if self._epsilon_micro is None else self._epsilon_micro

    def cost(self, campaign: Campaign, policy: Policy) -> tuple[int, int]:
        """Return the ε in millionths of the summary, for the adjacency that the owner's policy names, and 0, its δ.

        Raise ``policy_refused`` if one summary alone exceeds a limit of the owner.
        """
        micro = policy.cost_micro(campaign, self._epsilon(campaign))
        for excess in policy.limit_refusals(micro):
            raise PolicyError(
                "policy_refused",
                f"this summary would spend {excess}, for neighbours of the kind {policy.node_adjacency} "
                "(node_adjacency); a smaller ε may be allowed",
            )
        return micro, 0

    def make(self, campaign: Campaign, secret: bytes, period: int) -> list[bytes]:
        """Return a list of the signed summary. Its noise has a fresh seed."""
        epsilon_micro = self._epsilon(campaign)
        seed = self._entropy(SEED_BYTES)
        if terms_of(campaign).sensitivity == SMOOTH:
            sums = smooth_sums(campaign, self.exact, self.grids, epsilon_micro, seed)
        else:
            sums = noisy_sums(campaign, self.exact, epsilon_micro, seed)
        return [build_summary(campaign, node_key(secret), period, sums, epsilon_micro)]

    def note(self, campaign: Campaign) -> None:
        """Do nothing: the node counts missing and unlisted values while it reads the records."""
