"""The names that ``import aggregator`` offers."""

import subprocess
import sys

import pytest

import aggregator


def test_the_package_shows_its_public_names_and_no_more():
    assert dir(aggregator) == ["Model", "open_store"]
    assert aggregator.open_store.__module__ == "aggregator.intake.store"
    with pytest.raises(AttributeError, match="'pandas'"):
        aggregator.pandas  # noqa: B018


def test_importing_it_loads_no_heavy_library():
    code = "import sys, aggregator; print(sorted({'numpy', 'pandas', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
