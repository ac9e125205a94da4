"""A simulated network of averaging peers: random partners, lost messages, peers that fail for ever."""

from fractions import Fraction

from research.averaging import FRACTION_BITS, AveragingPeer, Session

PATIENCE = 3
"""Rounds in which a peer repeats a message before it gives the exchange up."""


class Network:
    """Peers in one process; every message crosses as bytes.

    Attributes:
        peers: all peers.
        alive: the positions of the peers that have not failed.
    """

    def __init__(self, vectors, random, holders=1):
        """One peer per vector; the first ``holders`` of them begin with weight 1."""
        session = Session(bytes(32), 0, holders, len(vectors[0]))
        names = [number.to_bytes(8, "big") for number in range(len(vectors))]
        members = frozenset(names)
        self.peers = [
            AveragingPeer(session, name, members, vector, holds_weight=position < holders)
            for position, (name, vector) in enumerate(zip(names, vectors, strict=True))
        ]
        self.alive = list(range(len(vectors)))
        self._random = random
        self._tries = [0] * len(vectors)
        self._partners = [0] * len(vectors)

    def fail(self, share):
        """Every live peer fails for ever with probability ``share``; at least two stay."""
        staying = [position for position in self.alive if self._random.random() >= share]
        self.alive = staying if len(staying) > 1 else self.alive

    def round(self, loss=0.0):
        """Every live peer starts or repeats one exchange; each message is lost with probability ``loss``."""
        alive = set(self.alive)
        for position in self._random.sample(self.alive, len(self.alive)):
            peer = self.peers[position]
            if peer.is_waiting and self._tries[position] == PATIENCE:
                peer.give_up()
            if not peer.is_waiting:
                self._tries[position] = 0
                self._partners[position] = self._other(position)
            self._tries[position] += 1
            self._exchange(peer, self._partners[position], alive, loss)

    def _other(self, position):
        """A random live peer, or every second time one with which an exchange was given up, if there is one."""
        given_up = self.peers[position].unfinished
        if given_up and self._random.random() < 0.5:
            return int.from_bytes(self._random.choice(given_up), "big")
        while (found := self._random.choice(self.alive)) == position:
            pass
        return found

    def _exchange(self, peer, partner, alive, loss):
        offer = peer.offer(self.peers[partner].name)
        if partner not in alive or self._random.random() < loss:
            return
        reply = self.peers[partner].answer(offer)
        if reply is not None and self._random.random() >= loss:
            peer.take(reply)

    def mass(self):
        """Sum over all peers and all transfers on their way, per entry, the weight last."""
        totals = [0] * len(self.peers[0].units)
        by_name = {peer.name: peer for peer in self.peers}
        for peer in self.peers:
            totals = [a + b for a, b in zip(totals, peer.units, strict=True)]
            for name, number in peer._open.items():
                outcome = by_name[name]._outcomes.get(peer.name)
                if outcome is not None and outcome.number == number and outcome.transfer is not None:
                    totals = [a + b for a, b in zip(totals, outcome.transfer, strict=True)]
        return totals

    def largest_error(self, entry, expected):
        """Largest relative error of a live peer's sum of one entry; infinite while a peer has no weight."""
        worst = Fraction(0)
        for position in self.alive:
            peer = self.peers[position]
            if peer.units[-1] <= 0:
                return float("inf")
            found = Fraction(peer.session.holders * peer.units[entry], peer.units[-1])
            worst = max(worst, abs(found / expected - 1))
        return float(worst)

    def spread(self):
        """Variance of the live peers' weights, in units of the weight's mean squared."""
        weights = [self.peers[position].units[-1] / (1 << FRACTION_BITS) for position in self.alive]
        mean = sum(weights) / len(weights)
        return sum((each / mean - 1) ** 2 for each in weights) / len(weights)
