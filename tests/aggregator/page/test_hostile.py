"""Pages of hostile or very large inputs: bounded in size, without markup of their own, without a failure."""

from __future__ import annotations

import pytest
from support.hostile import CARDS, model_of, wide
from support.pages import check
from support.publisher import NOW, Publisher
from support.reports import batch, opened, report
from support.stores import stored

from aggregator.page import rendering
from aggregator.page.report import report as page_of


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS.keys())
def test_a_model_with_any_card_has_a_bounded_page_without_its_markup(tmp_path, card):
    path = tmp_path / "m.hsm"
    path.write_bytes(model_of(Publisher().schema, card))
    html = page_of(path, now=NOW).html
    found = check(html)
    assert "UNVERIFIED" in found.words
    assert "<script" not in html


@pytest.mark.parametrize(("features", "values", "classes"), [(300, 4, 3), (3, 40, 60), (40, 12, 12), (1, 2, 256)])
def test_a_page_of_a_large_schema_is_bounded_and_says_what_is_left_out(tmp_path, features, values, classes):
    path = tmp_path / "m.hsm"
    path.write_bytes(model_of(wide(features, values, classes), CARDS["huge"]))
    found = check(page_of(path, now=NOW).html)
    assert "left out" in found.words
    assert "hearsay export-model MODEL" in found.words


def test_a_page_of_a_store_with_200_features_is_bounded(tmp_path):
    raw = Publisher(schema=wide(200, 4, 3)).campaign()
    campaign = opened(raw)
    made = stored(tmp_path, raw, batch(campaign, [report(campaign, device, device) for device in range(300)]), now=NOW)
    html = page_of(made, now=NOW).html
    found = check(html)
    assert "left out" in found.words
    assert "<script" not in html


def test_the_sizes_of_the_parts_add_up_to_less_than_a_page():
    parts = rendering.LARGEST_BYTES + (rendering.MOST_SECTIONS - 1) * rendering.SECTION_BYTES
    assert parts + 25_000 < rendering.PAGE_BYTES
    assert len(rendering._style()) < 15_000
