"""The tree shows the way of the data: rooms without circles, of a size that can be read, with few imports between."""

from __future__ import annotations

import sys
from graphlib import CycleError
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import rooms

MOST_MODULES = 16
LARGER = {"protocol/mechanisms", "aggregator/cli/documents"}
"""One file per mechanism, and one per command: these folders grow with every mechanism or command."""
STORE_ROOMS = ("decoding", "storage", "intake", "tally", "store", "cluster", "gateway")
"""What once was one folder of 35 modules with 123 imports between them; half of that is the limit.
Of edge_sdk, 48 without the room ``node``, which is a second facade over the other rooms.
"""
MOST_IMPORTS = {"edge_sdk": 72, "reports": 61}


@pytest.fixture(scope="module")
def imports():
    return rooms.graph()


@pytest.mark.parametrize("package", rooms.PACKAGES)
def test_rooms_import_one_another_in_no_circle(imports, package):
    assert rooms.floors(rooms.needs(imports, package))


def test_no_two_modules_import_one_another_even_for_types(imports):
    needs = {module: imports.find_modules_directly_imported_by(module) for module in imports.modules}
    assert rooms.floors({module: set(found) for module, found in needs.items()})


def test_a_circle_is_found(imports):
    below = rooms.needs(imports, "protocol")
    below["protocol.errors"] = {"protocol.documents"}
    with pytest.raises(CycleError):
        rooms.floors(below)


def test_no_folder_holds_more_modules_than_a_reader_takes_in():
    sizes = {
        str(folder.relative_to(rooms.ROOT)): len([file for file in folder.glob("*.py") if file.name != "__init__.py"])
        for package in (*rooms.PACKAGES, "benchmarks")
        for folder in [rooms.ROOT / package, *(rooms.ROOT / package).rglob("*/")]
    }
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES and name not in LARGER} == {}


def test_every_room_has_a_door_that_says_what_comes_in_and_what_goes_out(imports):
    for package in rooms.PACKAGES:
        for room in imports.find_children(package):
            if imports.find_children(room):
                door = (rooms.ROOT / room.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
                assert door.startswith('"""'), room


def test_few_imports_cross_from_room_to_room(imports):
    """A module counts once for each room that it imports something of."""
    assert len(rooms.room_imports(imports, "edge_sdk")) <= MOST_IMPORTS["edge_sdk"]
    found = {f"aggregator.{room}" for room in STORE_ROOMS}
    between = [
        (module, target)
        for module, target in rooms.room_imports(imports, "aggregator")
        if target in found and rooms.rooms(imports, "aggregator")[module] in found
    ]
    assert len(between) <= MOST_IMPORTS["reports"]


def test_estimates_do_not_know_how_counts_arrived(imports):
    """Only the module of reports reads tallies, and nobody above the estimates reads that module or a tally.

    ``completeness`` asks, before a campaign is signed, whether a mechanism's family has an estimator; it sees no count.
    """
    needed = {
        module: {target for target in imports.find_modules_directly_imported_by(module) if target.startswith("agg")}
        for room in ("estimates", "models", "planning", "publishing")
        for module in imports.find_descendants(f"aggregator.{room}")
    }
    of_reports = {"aggregator.estimates.reports", "aggregator.estimates.recurrence", "aggregator.estimates.debias"}
    for module, targets in needed.items():
        met = {target.removeprefix("aggregator.").split(".")[0] for target in targets}
        assert not met & {"store", "storage", "intake", "decoding", "cluster", "gateway"}, (module, met)
        if not module.startswith("aggregator.estimates."):
            assert not targets & of_reports or module == "aggregator.publishing.mechanisms.completeness", (
                module,
                targets,
            )
        if module not in of_reports:
            assert "tally" not in met, (module, met)


def test_the_picture_in_the_documents_is_current(imports):
    """To draw it again: ``python tests/architecture/rooms.py``."""
    assert rooms.PICTURE.read_text(encoding="utf-8") == rooms.picture(imports)
