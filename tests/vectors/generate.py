"""Makes the vectors of signed documents: ``PYTHONPATH=tests python -m vectors.generate``, at the repository's root.

Fixed keys, fixed times and deterministic signatures: the same code always writes the same bytes, and a
test compares them with the files. What each document must lead to is stated here by hand, never taken
from the code under test, except digests of accepted documents.
"""

import json
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from vectors.runner import FOLDER

MAKERS = sorted(path.stem.removeprefix("made_") for path in Path(__file__).parent.glob("made_*.py"))


def text_of(name):
    """The text of one generated file, without ``.json`` in its name."""
    collection = import_module(f"vectors.made_{name}").cases
    content = {
        "source": f"made by tests/vectors/made_{name}.py; digest of the documents {_digest(collection)}",
        "documents": collection.documents,
        "cases": collection.cases,
    }
    return json.dumps(content, indent=1) + "\n"


def _digest(collection):
    return sha256("".join(collection.documents.values()).encode()).hexdigest()[:16]


def main():
    """Write the files."""
    for name in MAKERS:
        (FOLDER / "generated" / f"{name}.json").write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
