"""Accuracy of models of very large fleets: resampled devices, the vector engine, the real store and tally.

    python -m benchmarks.models.fleet connect-4 --devices 100000000 [--epsilon 1] [--chunk 1000000] [--folder DIR]

``hearsay simulate --engine vector --devices N`` holds the whole fleet in memory: some hundred bytes per device and
feature. Here the fleet is drawn in chunks with replacement from 80 % of the records. Every chunk becomes one report
file, which is ingested into one store and deleted. The store's statistics make the models, by every post-processing.
The other 20 % of the records are the test. The yardstick is the model of the same 80 % without privacy.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from aggregator.models.baselines import fit_plain
from aggregator.models.discrete import fit
from aggregator.models.encoding import EncodedFrame
from aggregator.models.postprocess import POSTPROCESSES
from aggregator.publishing.campaigns import CampaignParameters, publish_campaign
from aggregator.publishing.workspace import create_workspace
from aggregator.store.store import create_store
from benchmarks.models.estimators import LABEL, NOW, TEST_SHARE, load, right
from benchmarks.shared.harness import arguments, machine
from protocol.batches.batch import Header, trailer
from protocol.documents.campaign import Campaign, parse_campaign
from protocol.documents.envelope import read_envelope
from protocol.epsilon import micro_epsilon
from simulation.vector import vector_reports

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.models.estimators import Data

SHOWN = 10
"""Number of chunks after which all reports so far are counted and fitted."""


def write_chunk(path: Path, campaign: Campaign, rows: NDArray[np.uint8]) -> None:
    """Write reports, shape (N, record bytes) uint8, as one report file."""
    header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length).to_bytes()
    digest = hashlib.sha256(header)
    digest.update(rows.data)
    with path.open("wb") as file:
        for part in (header, rows.data, trailer(len(rows), digest.digest())):
            file.write(part)


def without_privacy(data: Data, people: NDArray[np.int64], test: NDArray[np.int64]) -> float:
    """Accuracy of the model of these people's records on the test records, in points."""
    columns = {
        feature.name: np.array(feature.labels(), object)[data.codes[people, place]]
        for place, feature in enumerate(data.schema.observed)
    }
    classes = np.array(data.schema.label.classes, object)[data.labels[people]]
    model = fit_plain(pd.DataFrame({**columns, LABEL: classes}), data.schema)
    return right(model.log_prior, model.terms, data.codes[test], data.labels[test])


def main() -> None:
    """Draw, ingest, count, fit and print."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("data", help="name of a data set")
    parser.add_argument("--devices", type=int, default=100_000_000)
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--chunk", type=int, default=1_000_000, help="devices per report file")
    parser.add_argument("--folder", type=Path, help="where the store is made; some 20 bytes per device are needed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    data, rng = load(options.data), np.random.default_rng(options.seed)
    order = rng.permutation(len(data.labels))
    count = round(TEST_SHARE * len(order))
    test, people = order[:count], order[count:]
    codes = data.codes[people].astype(np.int16)
    print(machine(), f"{options.data}, ε = {options.epsilon}, {options.devices:,} devices", sep="\n", flush=True)
    print(f"without privacy {without_privacy(data, people, test):.2f}", flush=True)
    spent = dict.fromkeys(("drawing", "ingesting", "counting"), 0.0)
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hearsay-", dir=options.folder) as name:
        workspace = create_workspace(Path(name) / "workspace", name="fleet", now=NOW)
        parameters = CampaignParameters("fleet", micro_epsilon(options.epsilon), "auto")
        raw = publish_campaign(workspace, data.schema, parameters, NOW)
        campaign = parse_campaign(read_envelope(raw, "campaign").payload)
        store = create_store(Path(name) / "store", raw)
        path = Path(name) / "chunk.hsr"
        for first in range(0, options.devices, options.chunk):
            began = time.perf_counter()
            drawn = rng.integers(0, len(people), min(options.chunk, options.devices - first))
            fleet = EncodedFrame(codes[drawn], np.zeros((len(drawn), 1), np.int8))
            labels = data.labels[people][drawn]
            write_chunk(path, campaign, vector_reports(campaign, fleet, labels, campaign.period_at(NOW), rng))
            spent["drawing"] += time.perf_counter() - began
            began = time.perf_counter()
            store.ingest([path], now=NOW)
            spent["ingesting"] += time.perf_counter() - began
            done = first + len(drawn)
            if done % (SHOWN * options.chunk) and done < options.devices:
                continue
            began = time.perf_counter()
            statistics = store.statistics()
            spent["counting"] += time.perf_counter() - began
            found = {
                named: right(*fit(statistics, named), data.codes[test], data.labels[test]) for named in POSTPROCESSES
            }
            accuracies = "".join(f"  {named} {accuracy:.2f}" for named, accuracy in found.items())
            taken = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in spent.items())
            print(f"{statistics.reports:>13,} reports counted{accuracies}   {taken}", flush=True)


if __name__ == "__main__":
    main()
