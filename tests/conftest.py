"""Settings of all tests: how properties are searched, a curator's noise, and that no test waits for the disk.

Property tests have no deadline, and the same examples for everyone. ``make test`` takes a quarter of the examples of
``--hypothesis-profile=deep``, which ``make test-all`` runs; ``.ci/run`` takes half of them (``half``);
``--hypothesis-profile=explore`` looks for new ones.

The noise of private fits and pilots of a curator comes from a stream with the test's name as its seed, so that a test
which passed once passes again. ``HEARSAY_TEST_SEED`` in the environment, any text, tries other seeds. Commands that run
in processes of their own draw from the operating system.

A flush to the disk is left out, since only a power cut could tell: the tests of power cuts put a disk of their own in
its place, and the tests that watch flushes a function of their own.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from hypothesis import settings
from support.publisher import Publisher

from aggregator.curator.binning import bin_records
from aggregator.curator.fitting import fit_records
from aggregator.curator.projecting import project_records
from aggregator.planning.feature_selection.from_private_pilot import design_records
from protocol import database

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("half", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("deep", deadline=None, derandomize=True, max_examples=100)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("steady")


def _without_flushes() -> None:
    database.SYNCHRONOUS = "OFF"
    os.fsync = lambda _descriptor: None


_without_flushes()

NOISE = random.Random()
for _function in (bin_records, design_records, fit_records, project_records):
    _function.__kwdefaults__["random_bytes"] = NOISE.randbytes


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Begin the stream of a curator's noise anew. pytest-xdist puts a group's name behind that of the test."""
    NOISE.seed(os.environ.get("HEARSAY_TEST_SEED", "") + item.nodeid.partition("@")[0])


@pytest.fixture
def publisher():
    return Publisher()


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """The library that breaks calls to the kernel (``support.faults``)."""
    from support.faults.shim import build

    return build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def batch(tmp_path):
    """A file to send, larger than what is read or written at once."""
    path = tmp_path / "batch.hsr"
    path.write_bytes(os.urandom(200_000))
    return path


MANY = 100
LONGEST_NAME = 80


def pytest_make_parametrize_id(val):
    """Name long inputs by their beginning and length: every process sends the name of every test several times."""
    if isinstance(val, str | bytes) and len(val) > LONGEST_NAME:
        return f"{val[: LONGEST_NAME // 2]!r} and so on, {len(val)}"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Hand the tests of a file with many of them to one process at once: most take less time than handing them out."""
    counts = Counter(item.path for item in items)
    for item in items:
        if counts[item.path] >= MANY and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
