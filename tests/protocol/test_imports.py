"""Allowed dependencies: ``protocol`` on no other package; device and aggregator on it and not on each other."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("protocol", "edge_sdk", "aggregator", "simulation", "research", "benchmarks", "examples", "tests", "support")
MAY_USE = {
    "protocol": {"protocol"},
    "edge_sdk": {"edge_sdk", "protocol"},
    "aggregator": {"aggregator", "protocol"},
    "research": {"research", "edge_sdk", "protocol"},
    "simulation": {"simulation", "research", "aggregator", "edge_sdk", "protocol"},
}
FOREIGN_OF_A_DEVICE = {"msgpack", "nacl"}
OPTIONAL = {"gmpy2": [Path("protocol/masked/cipher.py")]}
"""Modules that a device uses if they are installed, and the only files that may import them."""
STANDARD = sys.stdlib_module_names | {"_sha256", "_sha2"}
"""The interpreter's SHA-256 has one name in Python 3.11 and another from 3.12 on."""


@cache
def imported(source):
    """Top-level names of all modules that a source text imports."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".", maxsplit=1)[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add((node.module or "").split(".", maxsplit=1)[0])
    return names


@cache
def used_by(package):
    return {
        name: path.relative_to(ROOT)
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in imported(path.read_text(encoding="utf-8"))
    }


@pytest.mark.parametrize("package", MAY_USE)
def test_a_package_imports_only_what_it_may(package):
    found = {name: path for name, path in used_by(package).items() if name in OURS}
    assert {name: path for name, path in found.items() if name not in MAY_USE[package]} == {}


@pytest.mark.parametrize("package", ["protocol", "edge_sdk"])
def test_a_device_needs_the_standard_library_msgpack_and_pynacl_alone_and_no_generator_of_simulations(package):
    assert "random" not in used_by(package)
    foreign = {name: path for name, path in used_by(package).items() if name not in STANDARD}
    assert {name: path for name, path in foreign.items() if name not in {*FOREIGN_OF_A_DEVICE, *OURS, *OPTIONAL}} == {}


@pytest.mark.parametrize("name", OPTIONAL)
def test_what_is_optional_is_imported_in_one_place_and_may_be_missing(name):
    files = [path for package in ("protocol", "edge_sdk") for path in (ROOT / package).rglob("*.py")]
    users = [path.relative_to(ROOT) for path in files if name in imported(path.read_text(encoding="utf-8"))]
    assert users == OPTIONAL[name]
    program = f"""
import sys
sys.modules[{name!r}] = None
import {".".join(users[0].with_suffix("").parts)} as module
print(module.power(3, 100, 101))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
