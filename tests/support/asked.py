"""People, a schema of three features, and stores with one answer of each person to a campaign about some of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import aggregator
from aggregator.models.encoding import label_codes, observe
from aggregator.publishing.ask_table import AskedFeature
from protocol.batches.batch import Header, write_batch
from protocol.features import Categorical, Numeric
from protocol.schema import Label, build_schema
from simulation.fleet import vector_reports
from support.publisher import NOW

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = build_schema(
    Label("label", ["e", "p"]),
    [
        Categorical("cap", ["x", "y"]),
        Categorical("odor", ["a", "l", "n", "f"]),
        Numeric("width", "0", "8", [-32768, 0, 32768], substitute=None),
    ],
)
ASK = {"odor": AskedFeature(groups=(("a", "l"), ("n",)), share=2), "width": AskedFeature(bins=(2, 2))}


def people(count: int, seed: int = 5) -> pd.DataFrame:
    """Records: class e smells of a, l or n and is narrow, class p smells of f and is wide."""
    rng = np.random.default_rng(seed)
    edible = rng.random(count) < 0.6
    odor = np.where(edible, rng.choice(["a", "l", "n"], count), rng.choice(["f", "n"], count, p=[0.8, 0.2]))
    width = np.where(edible, rng.uniform(0, 5, count), rng.uniform(3, 8, count))
    labels = np.where(edible, "e", "p")
    return pd.DataFrame({"cap": rng.choice(["x", "y"], count), "odor": odor, "width": width, "label": labels})


def answered(work: Path, folder: Path, frame: pd.DataFrame, name: str = "c", seed: int = 1, **options) -> Path:
    """A store with one answer of each person to a new campaign; the signed campaign and the reports lie beside it."""
    schema = options.pop("schema", SCHEMA)
    mechanism = options.pop("mechanism", "direct")
    made = aggregator.make_campaign(work, schema, name=name, epsilon=4, mechanism=mechanism, now=NOW, **options)
    campaign = made.campaign
    rows = vector_reports(
        campaign,
        observe(frame, campaign.schema),
        label_codes(frame, campaign.schema.label),
        campaign.period_at(NOW),
        np.random.default_rng(seed),
    )
    header = Header(campaign.id, campaign.layout.kind, campaign.layout.record_length)
    (folder / f"{name}.hsr").write_bytes(write_batch(header, [row.tobytes() for row in rows]))
    made.save(folder / f"{name}.hsc")
    aggregator.ingest(made.raw, [folder / f"{name}.hsr"], folder / name, workspace=work, now=NOW)
    return folder / name
