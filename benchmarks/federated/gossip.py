"""Rounds of averaging gossip until every peer knows all sums within 1 %, over the number of peers; and its limits.

    python -m benchmarks.federated.gossip [--sizes 10 100 1000 10000] [--runs 3] [--json]

A simulated network of real peers (``research.averaging``): one round lets every peer start or repeat one exchange
with a random other peer; every message crosses as bytes, and is lost with the stated probability. A peer repeats a
message three times, then gives the exchange up and returns to it later. One peer holds the weight at the beginning.
Each peer holds one count, normal with mean 1000 and standard deviation 100. "Within 1 %" is about the worst peer. The
theory's number of rounds is ``rounds_for(N, 0.01, 0.01)``, an upper bound. In the rows with failures 1 % of the live
peers fail for ever in each of the first ten rounds; what is left is compared with the sum over all peers.
"""

from __future__ import annotations

import sys
from math import exp, log
from pathlib import Path
from random import Random
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.gossip import Network

from benchmarks.shared.harness import Row, arguments, show
from research.averaging import ROUND_FACTOR, rounds_for

SIZES = (10, 100, 1_000, 10_000)
LOSSES = (0.0, 0.1, 0.3)
WITHIN, FAILURE = 0.01, 0.01
MOST_ROUNDS = 200
FIRST, LAST = 2, 8
"""Rounds between which the factor of the variance is measured."""
FAILING_ROUNDS, FAILING = 10, 0.01


def network_of(peers: int, seed: int, holders: int) -> tuple[Network, int]:
    """A network of ``peers`` peers, and the sum of their counts."""
    random = Random(seed)
    counts = [round(random.gauss(1000, 100)) for _ in range(peers)]
    return Network([(count,) for count in counts], random, holders), sum(counts)


def rounds_to(peers: int, loss: float, seed: int) -> tuple[int, float]:
    """Rounds until the worst peer is within 1 %, and the factor of the variance per round."""
    network, expected = network_of(peers, seed, 1)
    before = network.mass()
    spreads = []
    while len(spreads) < MOST_ROUNDS and network.largest_error(0, expected) >= WITHIN:
        network.round(loss)
        spreads.append(network.spread())
    assert network.mass() == before, "an integer was lost or created"
    last = min(LAST, len(spreads)) - 1
    return len(spreads), exp(log(spreads[last] / spreads[FIRST - 1]) / (last - FIRST + 1))


def errors_with_failures(peers: int, holders: int, seed: int) -> float:
    """Error of the live peers' median sum after failures, relative to the sum over all peers at the beginning."""
    network, expected = network_of(peers, seed, holders)
    for number in range(rounds_for(peers, WITHIN, FAILURE)):
        if number < FAILING_ROUNDS:
            network.fail(FAILING)
        network.round(0.1)
    live = [network.peers[position] for position in network.alive]
    return median(abs(peer.sums()[0] / expected - 1) if peer.units[-1] > 0 else 1.0 for peer in live)


def main() -> None:
    """Measure, print."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    rows = [Row("factor of the variance per round, theory 1/(2√e)", ROUND_FACTOR, "")]
    for size in options.sizes:
        bound = rounds_for(size, WITHIN, FAILURE)
        rows.append(Row(f"N = {size:,}: rounds, theory's bound", bound, "rounds"))
        for loss in LOSSES:
            found = [rounds_to(size, loss, seed) for seed in range(options.runs)]
            name = f"N = {size:,}, {loss:.0%} of messages lost"
            rows.append(Row(f"{name}: rounds, largest of {options.runs}", max(one for one, _ in found), "rounds"))
            rows.append(Row(f"{name}: factor of the variance", median(factor for _, factor in found), ""))
    for size in options.sizes:
        for holders, words in ((1, "one peer holds the weight"), (size, "all peers hold the weight")):
            found = [100 * errors_with_failures(size, holders, seed) for seed in range(options.runs)]
            rows.append(
                Row(f"N = {size:,}, 1 % of peers fail per round for 10 rounds, {words}: error", max(found), "%")
            )
    show("Averaging gossip: rounds until the worst peer is within 1 %", rows, as_json=options.json)


if __name__ == "__main__":
    main()
