"""Makes the vectors of signed documents: ``PYTHONPATH=tests python -m vectors.generate``, at the repository's root.

Fixed keys, fixed times and deterministic signatures: the same code always writes the same bytes, and a
test compares them with the files. What each document must lead to is stated here by hand, never taken
from the code under test, except digests of accepted documents.
"""

from __future__ import annotations

import json
from hashlib import sha256

from vectors import (
    made_asked,
    made_averaging,
    made_campaigns,
    made_devices,
    made_envelopes,
    made_evaluations,
    made_masked,
    made_masked_keys,
    made_masked_messages,
    made_mixtures,
    made_models,
    made_nodes,
    made_pilots,
    made_records,
    made_roots,
    made_series,
    made_signatures,
    made_summaries,
)
from vectors.makers import Collection
from vectors.runner import FOLDER

MAKERS = {
    "asked": made_asked.make,
    "averaging": made_averaging.make,
    "campaigns": made_campaigns.make,
    "devices": made_devices.make,
    "envelopes": made_envelopes.make,
    "evaluations": made_evaluations.make,
    "masked": made_masked.make,
    "masked_keys": made_masked_keys.make,
    "masked_messages": made_masked_messages.make,
    "mixtures": made_mixtures.make,
    "models": made_models.make,
    "nodes": made_nodes.make,
    "pilots": made_pilots.make,
    "records": made_records.make,
    "roots": made_roots.make,
    "series": made_series.make,
    "signatures": made_signatures.make,
    "summaries": made_summaries.make,
}


def text_of(name: str) -> str:
    """The text of one generated file, without ``.json`` in its name."""
    collection = Collection()
    MAKERS[name](collection)
    content = {
        "source": f"made by tests/vectors/made_{name}.py; digest of the documents {_digest(collection)}",
        "documents": collection.documents,
        "cases": collection.cases,
    }
    return json.dumps(content, indent=1) + "\n"


def _digest(collection: Collection) -> str:
    return sha256("".join(collection.documents.values()).encode()).hexdigest()[:16]


def main() -> None:
    """Write the files."""
    for name in MAKERS:
        (FOLDER / "generated" / f"{name}.json").write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
