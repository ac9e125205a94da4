"""The tree shows the way of the data: halls without circles, of a size that can be read, with few imports between."""

from __future__ import annotations

import sys
from graphlib import CycleError
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import halls

MOST_CHILDREN = 16
"""Files and folders of a folder beside ``__init__.py``. A larger number is a reason to think, and never to split."""
LARGER = {"aggregator/collectors", "protocol/mechanisms"}
"""One file per mechanism, per command, and per kind of trust: these folders grow with each of them."""
MOST_HALLS = 15
MOST_LINES = 850
"""Of a file of the product: a reason to look whether it holds two things."""
MOST_IMPORTS = 120


@pytest.fixture(scope="module")
def imports():
    return halls.graph()


def test_halls_import_one_another_in_no_circle_and_devices_only_the_protocol(imports):
    below = halls.needs(imports)
    assert halls.floors(below)[0] == ["protocol"]
    assert (below["protocol"], below["edge_sdk"]) == (set(), {"protocol"})
    assert {hall for hall, found in below.items() if "edge_sdk" in found} == {"research", "simulation"}
    assert sum(len(found) for found in below.values()) <= MOST_IMPORTS
    below["protocol"] = {"reports"}
    with pytest.raises(CycleError):
        halls.floors(below)


def test_no_two_modules_import_one_another_even_for_types(imports):
    assert halls.floors({module: set(imports.find_modules_directly_imported_by(module)) for module in imports.modules})


def children(folder):
    return {
        path.name
        for path in folder.iterdir()
        if (path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py")))) and path.name != "__init__.py"
    }


def test_no_folder_and_no_file_is_larger_than_a_reader_takes_in():
    packages = [halls.ROOT / package for package in (*halls.PACKAGES, "benchmarks")]
    folders = {
        str(folder.relative_to(halls.ROOT)): len(children(folder))
        for package in packages
        for folder in [package, *package.rglob("*/")]
    }
    assert folders["aggregator"] <= MOST_HALLS
    assert {name: size for name, size in folders.items() if size > MOST_CHILDREN and name not in LARGER} == {}
    files = {file: file.read_bytes().count(b"\n") for package in packages for file in package.rglob("*.py")}
    assert {file: size for file, size in files.items() if size > MOST_LINES} == {}


def test_every_hall_has_a_door_that_says_what_comes_in_and_what_goes_out():
    for package in halls.PACKAGES:
        for door in (halls.ROOT / package).rglob("__init__.py"):
            assert door.read_text(encoding="utf-8").startswith('"""'), door


def test_estimates_do_not_know_how_counts_arrived(imports):
    """Only the module of reports reads tallies, and nobody above the estimates reads that module or a tally.

    ``completeness`` asks, before a campaign is signed, whether a mechanism has an estimator; it sees no count.
    ``comparison`` takes cells of stores that are given to it, to say whether two models differ.
    """
    reading = {"aggregator.publishing.mechanisms.completeness", "aggregator.models.comparison"}
    of_reports = {"aggregator.estimates.reports", "aggregator.estimates.recurrence", "aggregator.estimates.debias"}
    for hall in ("estimates", "models", "publishing"):
        for module in imports.find_descendants(f"aggregator.{hall}"):
            targets = imports.find_modules_directly_imported_by(module)
            tallies = {target for target in targets if target.startswith("aggregator.reports")}
            assert module in of_reports or not tallies, (module, tallies)
            if hall != "estimates" and module not in reading:
                assert not targets & of_reports, module


def test_the_picture_in_the_documents_is_current(imports):
    """To draw it again: ``python tests/architecture/halls.py``."""
    assert halls.PICTURE.read_text(encoding="utf-8") == halls.picture(imports)
