"""Lives of a device with losses and resets: what its ledger says is compared with a list of all that left it."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device
from protocol.errors import PolicyError

# The sums of the ledger --------------------------------------------------------------------------------

COSTS = [(1_000_000, 10_000_000), (500_000, 0), (250_000, 3_000_000)]
"""ε in millionths and δ in 10⁻¹² of an answer of each campaign."""
PERIODS = [3_600, DAY, 7 * DAY]


class Paid(NamedTuple):
    """An answer that left the device."""

    campaign: bytes
    period: int
    time: int
    micro: int
    pico: int


class Costing:
    """Makes an answer that costs ε and δ, as a masked message does, without the work of encryption."""

    def __init__(self, cost):
        self._cost = cost

    def check(self, campaign):
        pass

    def cost(self, campaign, policy):
        return self._cost

    def make(self, campaign, secret, period):
        return [b"%d" % period]

    def note(self, campaign):
        pass


class Books:
    """A device with three campaigns, a list of all that left it, and the ledger that it should have.

    Attributes:
        left: every answer, for ever.
        lines: the answers that the present ledger can know: those since the last loss.
        total: ε and δ that the ledger should count.
        largest: the largest lifetime ε and δ that the policy ever had.
    """

    def __init__(self, folder, delta=3):
        self.folder, self.now, self.device = folder, NOW, None
        self.publisher = Publisher()
        self.raws = [
            self.publisher.campaign(name=f"campaign{place}", time_precision=seconds, lifetime=3_000 * DAY)
            for place, seconds in enumerate(PERIODS)
        ]
        self.left, self.lines, self.total, self.largest = [], [], (0, 0), (0, 0)
        folder.mkdir()
        self.allow(5, delta)
        self.open(Device.provision, self.publisher.root())

    def open(self, begin=Device.open, root=None):
        self.device = begin(self.folder, root, clock=lambda: self.now, machine=lambda: None)
        self.ids = [self.device.enrol(raw).id for raw in self.raws]
        self.largest = tuple(map(max, self.largest, self.device.policy.lifetime))

    def allow(self, epsilon, delta):
        """The owner's policy: lifetimes of ``epsilon`` and of ``delta`` · 10⁻⁵."""
        (self.folder / "policy.toml").write_text(
            f'epsilon_lifetime = "{epsilon}"\nallow_masked = true\ndelta_lifetime = "{delta}e-5"\n'
            'epsilon_per_day = "2"\nepsilon_per_window = "4"\nwindow_days = 7\n'
        )
        if self.device is not None:
            self.largest = tuple(map(max, self.largest, self.device.policy.lifetime))

    def answer(self, place, _):
        try:
            said = self.device._reporting.answer(self.ids[place], Costing(COSTS[place]))
        except PolicyError:
            return
        if not said.repeated:
            paid = Paid(self.ids[place], said.period, self.now, *COSTS[place])
            self.left.append(paid)
            self.lines.append(paid)
            self.total = self.total[0] + paid.micro, self.total[1] + paid.pico

    def time(self, hours, days):
        self.now += 3_600 * hours + DAY * days

    def opt_out(self, *_):
        self.device.disable()
        self.device.enable()

    def lose(self, way, then):
        """The state is lost in a way; the owner resets the device and allows ``then`` more."""
        self.device.close()
        place = self.folder / "state.db"
        if way == 1:
            place.unlink()
        elif way == 2:
            place.write_bytes(place.read_bytes()[:5000])
        if way:
            self.lines = []
        self.total = tuple(map(max, self.largest, self.total))
        Device.reset(self.folder, self.publisher.root(), clock=lambda: self.now, machine=lambda: None)
        self.largest = self.total
        self.allow(self.total[0] // 1_000_000 + then, self.total[1] // 10_000_000 + then)
        self.open()

    def compare(self):
        """Every sum that the device states, against the lists."""
        lines, status = self.device.history(), self.device.status()
        assert (status.spent_micro, status.delta_spent_pico) == self.total
        assert sum(line.epsilon_micro for line in lines) == self.total[0]
        assert sum(line.delta_pico for line in lines) == self.total[1]
        of_campaigns = [Paid(line.id, line.period, line.answered_at, line.epsilon_micro, line.delta_pico)
                        for line in lines if line.id]  # fmt: skip
        assert of_campaigns == self.lines
        for seconds, said in ((DAY, status.spent.day_micro), (7 * DAY, status.spent.window_micro)):
            assert said == sum(paid.micro for paid in self.lines if self.now - paid.time < seconds)
        for place in range(3):
            assert [line.period for line in self.device.history(f"campaign{place}")] == [
                paid.period for paid in self.lines if paid.campaign == self.ids[place]
            ]
        # What left is never more than what is counted.
        assert sum(paid.micro for paid in self.left) <= self.total[0]
        assert sum(paid.pico for paid in self.left) <= self.total[1]
        assert status.left_micro == max(0, self.device.policy.lifetime[0] - self.total[0])
        assert status.delta_left_pico == max(0, self.device.policy.lifetime[1] - self.total[1])


STEPS = st.lists(
    st.one_of(
        *[st.tuples(st.just(name), st.integers(0, 2), st.integers(0, 3)) for name in ("answer", "answer", "time")],
        st.tuples(st.just("lose"), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.just("allow"), st.integers(1, 9), st.integers(1, 9)),
        st.tuples(st.just("opt_out"), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


@given(STEPS)
@examples(60)
def test_every_sum_of_the_ledger_is_that_of_what_left_after_losses_and_resets(tmp_path_factory, steps):
    books = Books(tmp_path_factory.mktemp("books") / "state")
    for name, *values in [("answer", 0, 0), *steps, ("time", 0, 3), ("answer", 0, 0), ("lose", 0, 2)]:
        getattr(books, name)(*values)
        books.compare()
    books.device.close()


def test_a_second_reset_remembers_the_delta_that_the_first_one_counted(tmp_path):
    """With a lifetime of 2·10⁻⁵, a node released 4·10⁻⁵, and the ledger showed 2·10⁻⁵."""
    books = Books(tmp_path / "state", delta=2)
    for lifetime in (100, 200, 300, 400):
        books.allow(lifetime, 2)
        books.answer(0, 0)
        books.compare()
        books.time(0, 2)
        books.lose(0, 0)
    assert books.device.status().delta_spent_pico == 20_000_000
    assert len(books.left) == 1
    books.device.close()
