"""Settings of all tests: how properties are searched, a curator's noise, and that no test waits for the disk.

``make test`` takes a quarter of the examples of the profile ``deep`` (``make test-all``), ``.ci/run`` half of them;
``--hypothesis-profile=explore`` looks for new ones. A curator's noise in this process has the test's name as its seed;
``HEARSAY_TEST_SEED`` in the environment, any text, tries other seeds. No flush reaches the disk, since only a power cut
could tell: tests of power cuts and of flushes put functions of their own in its place.
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

database.SYNCHRONOUS = "OFF"
os.fsync = lambda _descriptor: None
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
