"""What a page says of classes, features and reasons, and the bars with whiskers that it draws."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import reason
from support.publisher import NOW, Publisher
from support.reports import opened

from aggregator.estimates.reports import estimate
from aggregator.page.blocks import Chart
from aggregator.page.charts import Bar, whiskers
from aggregator.page.reasons import MEANINGS
from aggregator.page.sections import checking, results
from aggregator.page.subject import StoreSubject
from aggregator.publishing.campaigns import CampaignParameters, build_campaign
from aggregator.reports.tally.tally import Tally
from protocol.documents.campaign import parse_campaign
from protocol.features import Numeric
from protocol.questions import MOMENT
from protocol.schema import Label, build_schema

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "reasons.md"
NUMBERS = st.none() | st.floats(-1e6, 1e6)


def gaussian(shares=(0.6, 0.4), means=(0.5, -0.5), n=100_000):
    """Statistics of numbers from 10 to 40 °C whose scaled means in two classes are ``means``, by exact counts."""
    schema = build_schema(Label("state", ["dry", "wet"]), [Numeric("temperature", "10", "40", [0], substitute=0)])
    campaign = parse_campaign(
        build_campaign(schema, CampaignParameters("x", 4_000_000, "bits", family="gaussian"), 1, NOW)
    )
    counts = []
    for question in campaign.questions:
        if question.kind == MOMENT:
            power = question.subject.power
            own = np.array(shares) * np.array([abs(mean) ** power * np.sign(mean) ** power for mean in means])
            counts.append(np.rint(n * (1 + own * np.tanh(2)) / 2).astype(int).tolist())
        else:
            p, q = float(question.mechanism.p), float(question.mechanism.q)
            counts.append(np.rint(n * (q + np.array(shares) * (p - q))).astype(int).tolist())
    tally = Tally(campaign.id, (n,) * len(counts), tuple(map(tuple, counts)))
    return estimate(campaign, tally)


def chart_of(section, heading):
    return next(block for block in section.blocks if isinstance(block, Chart) and block.heading == heading)


def test_means_have_the_units_of_their_number():
    """Half ranges were shown: 0.5 for 32.5 °C."""
    found = chart_of(results.of_statistics(gaussian(), {}), "temperature")
    assert found.table.columns == ("mean in class", "raw", "published", "population")
    assert [(row[0], *map(float, row[1:3])) for row in found.table.rows] == [
        ("dry", pytest.approx(32.5, abs=0.1), pytest.approx(32.5, abs=0.1)),
        ("wet", pytest.approx(17.5, abs=0.1), pytest.approx(17.5, abs=0.1)),
    ]
    for row, mean in zip(found.table.rows, (32.5, 17.5), strict=True):
        low, high = map(float, re.fullmatch(r"([\d.]+) to ([\d.]+)", row[3]).groups())
        assert low < mean < high < low + 3
    ticks = [mark.text for mark in ET.fromstring(found.svg).iter("{http://www.w3.org/2000/svg}text")] or [
        mark.text for mark in ET.fromstring(found.svg).iter("text")
    ]
    assert {"10", "20", "30", "40"} <= set(ticks)


def test_without_a_model_no_raw_ratio_is_drawn_as_published(monkeypatch):
    """Ratios such as 1.33 and -0.03 stood under "the value that a model publishes"."""
    monkeypatch.setattr(results, "published", lambda _: None)
    section = results.of_statistics(gaussian(shares=(0.98, 0.001)), {})
    assert "No model can be made" in section.blocks[0].text
    for block in section.blocks:
        if isinstance(block, Chart):
            assert 'class="bar"' not in block.svg


def test_every_version_of_a_campaign_has_its_digest_on_the_page():
    """Keyed by the name alone, the second version took the place of the first."""
    campaigns = [opened(Publisher().campaign(version=version)) for version in (1, 2)]
    campaigns.append(opened(Publisher().campaign(version=2, epsilon_micro=2_000_000)))

    class Store:
        def __init__(self, campaign):
            self.campaign = campaign

    section = checking.of_stores(StoreSubject(tuple(map(Store, campaigns)), None, "", None))
    digests = [value for name, value in section.blocks[1].rows if not name.endswith("in words")]
    assert digests == [campaign.id.hex() for campaign in campaigns]


def test_bins_of_large_numbers_have_names_without_exponents_that_all_differ():
    assert Numeric("hours", "0", "30000", [-32768, 0]).labels() == ["[0, 7500)", "[7500, 15000)", "[15000, 30000]"]
    close = Numeric("x", "1000000", "1000001", [0, 1, 2], substitute=0).labels()
    assert len(set(close)) == 4
    assert not any("e+" in label for label in close)


@given(st.lists(st.tuples(st.text("ab<&\"'é", max_size=40), NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_every_mark_is_inside_of_the_drawing_whatever_the_rows(rows):
    drawn = ET.fromstring(whiskers('a "title" <b>', [Bar(*row) for row in rows]))
    _, _, width, height = map(float, drawn.get("viewBox").split())
    for mark in drawn.iter():
        numbers = [float(each) for each in re.findall(r"-?\d+\.?\d*", mark.get("d", ""))]
        numbers += [float(mark.get(name)) for name in ("x", "y", "width", "height") if mark.get(name)]
        assert all(0 <= number <= max(width, height) for number in numbers)
        assert all(map(math.isfinite, numbers))


def test_a_whisker_spans_its_interval_and_a_row_without_one_says_so():
    drawn = ET.fromstring(whiskers("shares", [Bar("a", 0.5, 0.25, 0.75), Bar("b", 0.5)], unit="%"))
    (whisker,) = (mark for mark in drawn.iter() if mark.get("class") == "whisker")
    start, stop = re.match(r"M([\d.]+) [\d.]+H([\d.]+)", whisker.get("d")).groups()
    assert float(stop) - float(start) == pytest.approx((360 - 140 - 52) / 2, abs=0.2)
    texts = [mark.text for mark in drawn.iter() if mark.text]
    assert "a: 50.0%, 25.0% to 75.0%" in texts
    assert texts.count("not determined") == 1
    # Cut to fit beside the bar, names lost their middle: "[1.2e+04, 1.…4) | malignant".
    names = ["[12000.5, 12750.25) | malignant, second kind", "short"]
    texts = [mark.text for mark in ET.fromstring(whiskers("t", [Bar(name, 0.5) for name in names])).iter("text")]
    assert set(names) <= set(texts)


@pytest.mark.parametrize(("rows", "low", "high"), [([], 0, 1), ([Bar("a", 1)], 1, 1)])
def test_a_chart_of_nothing_is_refused(rows, low, high):
    assert reason(whiskers, "t", rows, low=low, high=high) == "plot_invalid"


def test_every_sentence_is_that_of_the_reference():
    text = PAGE.read_text("utf-8")
    told = dict(re.findall(r"^\| `([^`]+)` \| (.+?) \| .+ \|$", text, re.MULTILINE))
    assert {reason: told[reason] for reason in MEANINGS} == MEANINGS
    for title in ("Reports that were set aside", "Stretches of a batch file"):
        part = text.split(f"## {title}")[1].split("\n## ")[0]
        assert set(re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE)) <= set(MEANINGS)
