"""The names that ``import aggregator`` offers."""

import subprocess
import sys

import pytest

import aggregator


def test_the_package_shows_its_public_names_and_no_more():
    assert dir(aggregator) == sorted(aggregator.__all__)
    names = [name for held in aggregator._HOMES.values() for name in held]
    assert sorted(names) == sorted(aggregator.__all__)
    for name in aggregator.__all__:
        found = getattr(aggregator, name)
        assert found.__doc__, name
        assert found.__module__.startswith("aggregator."), name
    with pytest.raises(AttributeError, match="'pandas'"):
        aggregator.pandas  # noqa: B018


def test_importing_it_loads_no_heavy_library():
    code = "import sys, aggregator; print(sorted({'numpy', 'pandas', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
