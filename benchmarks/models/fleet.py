"""Accuracy of models of very large fleets: resampled devices, the vector engine, the real store and tally.

    python -m benchmarks.models.fleet connect-4 --devices 100000000 [--epsilon 1] [--chunk 1000000] [--folder DIR]

The fleet is drawn in chunks from 80 % of the records, so that it need not fit into memory. Every chunk becomes one
report file, which is ingested into one store and deleted. The store's statistics make the models, by every
post-processing; the other 20 % are the test. The yardstick is the model of the same 80 % without privacy.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.estimates.statistics import Statistics
from aggregator.models.encoding import EncodedFrame
from aggregator.models.fitting import fit
from aggregator.models.postprocess.methods import POSTPROCESSES
from aggregator.operations.report_store import create_store
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.workspace import create_workspace
from benchmarks.models.estimators import Data, divided, load, right, without_privacy
from benchmarks.shared.fleets import NOW
from benchmarks.shared.harness import arguments, machine
from protocol.documents.campaign import parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.epsilon import micro_epsilon
from simulation.local import vector_batch

CHUNK = 1_000_000
"""Devices per report file."""
SHOWN = 10
"""Number of chunks after which all reports so far are counted and fitted."""


class Grown(NamedTuple):
    """A fleet that has answered so far: statistics of its store, and seconds of the whole run by kind of work."""

    devices: int
    statistics: Statistics
    seconds: Mapping[str, float]


def growing_fleet(
    data: Data,
    people: NDArray[np.int64],
    epsilon: str,
    sizes: Sequence[int],
    rng: np.random.Generator,
    *,
    folder: Path | None = None,
    chunk: int = CHUNK,
) -> Iterator[Grown]:
    """Let more and more devices answer one question each, into one store, and yield its statistics at every size.

    Args:
        people: shape (people,) int64, indices of the records that the devices draw with replacement.
        folder: where the store is made and, at the end, deleted; None for the system's folder of temporary files.
    """
    codes = data.codes[people].astype(np.int16)
    spent = dict.fromkeys(("drawing", "ingesting", "counting"), 0.0)
    done = 0
    with tempfile.TemporaryDirectory(prefix="hearsay-", dir=folder) as name:
        workspace = create_workspace(Path(name) / "workspace", name="fleet", now=NOW)
        parameters = CampaignParameters("fleet", micro_epsilon(epsilon), "auto")
        raw = publish_campaign(workspace, data.schema, parameters, NOW)
        campaign = parse_campaign(read_envelope(raw, "campaign").payload)
        store = create_store(Path(name) / "store", raw)
        path = Path(name) / "chunk.hsr"
        for size in sizes:
            while done < size:
                began = time.perf_counter()
                drawn = rng.integers(0, len(people), min(chunk, size - done))
                fleet = EncodedFrame(codes[drawn], np.zeros((len(drawn), 1), np.int8))
                labels = data.labels[people][drawn]
                path.write_bytes(b"".join(vector_batch(campaign, fleet, labels, campaign.period_at(NOW), rng)))
                done += len(drawn)
                spent["drawing"] += time.perf_counter() - began
                began = time.perf_counter()
                store.ingest([path], now=NOW)
                spent["ingesting"] += time.perf_counter() - began
            began = time.perf_counter()
            statistics = store.statistics()
            spent["counting"] += time.perf_counter() - began
            yield Grown(size, statistics, dict(spent))


def main() -> None:
    """Draw, ingest, count, fit and print."""
    parser = arguments(__doc__)
    parser.add_argument("data", help="name of a data set")
    parser.add_argument("--devices", type=int, default=100_000_000)
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--chunk", type=int, default=CHUNK, help="devices per report file")
    parser.add_argument("--folder", type=Path, help="where the store is made; some 20 bytes per device are needed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    data, rng = load(options.data), np.random.default_rng(options.seed)
    people, test = divided(data, rng)
    print(machine(), f"{options.data}, ε = {options.epsilon}, {options.devices:,} devices", sep="\n", flush=True)
    print(f"without privacy {without_privacy(data, people, test):.2f}", flush=True)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    sizes = [*range(SHOWN * options.chunk, options.devices, SHOWN * options.chunk), options.devices]
    for grown in growing_fleet(data, people, options.epsilon, sizes, rng, folder=options.folder, chunk=options.chunk):
        statistics = grown.statistics
        found = {named: right(*fit(statistics, named), data.codes[test], data.labels[test]) for named in POSTPROCESSES}
        accuracies = "".join(f"  {named} {accuracy:.2f}" for named, accuracy in found.items())
        taken = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in grown.seconds.items())
        print(f"{statistics.reports:>13,} reports counted{accuracies}   {taken}", flush=True)


if __name__ == "__main__":
    main()
