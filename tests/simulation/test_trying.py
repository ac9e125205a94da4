"""``simulate_campaign`` gives the same results as ``hearsay simulate``."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import simulation
from aggregator.cli.app import hearsay
from aggregator.tables import read_table
from protocol.errors import InputError


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "d.csv"
    rows = [f"{'nnfa'[i % 4]},{i % 7},{'ep'[(i // 2) % 2]}\n" for i in range(200)]
    path.write_text("odor,width,<b>\n" + "".join(rows))
    return path


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["--mechanism", "oue", "--repeats", "2"], {"mechanism": "oue", "repeats": 2}),
        (["--answers", "all", "--folds", "2"], {"answers": "all", "folds": 2}),
    ],
)
def test_the_result_is_the_commands(data, options, settings):
    fixed = ["--label", "<b>", "--epsilon", "2", "--engine", "vector", "--seed", "3", "--json"]
    said = CliRunner().invoke(hearsay, ["simulate", str(data), *fixed, *options])
    assert said.exit_code == 0, said.output
    for given in (data, str(data), read_table(data)):
        tried = simulation.simulate_campaign(given, "<b>", epsilon=2, engine="vector", seed=3, **settings)
        assert json.loads(json.dumps(tried.result)) == json.loads(said.stdout)
    assert "Simulation" in tried._repr_html_()


def test_refusals_and_unknown_settings(data):
    for wrong, reason in (
        (lambda: simulation.simulate_campaign(data, "class", epsilon=1), "label_missing"),
        (lambda: simulation.simulate_campaign(data, "<b>", epsilon=0), "epsilon_invalid"),
    ):
        with pytest.raises(InputError) as refused:
            wrong()
        assert refused.value.reason == reason
    with pytest.raises(TypeError, match="colour"):
        simulation.simulate_campaign(data, "<b>", epsilon=1, colour="red")
    with pytest.raises(AttributeError, match="'other'"):
        simulation.other  # noqa: B018
