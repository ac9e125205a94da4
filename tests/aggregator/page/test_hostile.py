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
    (tmp_path / "m.hsm").write_bytes(model_of(Publisher().schema, card))
    assert "UNVERIFIED" in check(page_of(tmp_path / "m.hsm", now=NOW).html).words


@pytest.mark.parametrize(("features", "values", "classes"), [(300, 2, 3), (1, 2, 256)])
def test_a_page_of_a_large_schema_is_bounded_and_says_what_is_left_out(tmp_path, features, values, classes):
    (tmp_path / "m.hsm").write_bytes(model_of(wide(features, values, classes), CARDS["huge"]))
    found = check(page_of(tmp_path / "m.hsm", now=NOW).html)
    assert "left out" in found.words
    assert "hearsay export-model MODEL" in found.words


def test_a_page_of_a_store_with_many_features_is_bounded(tmp_path):
    raw = Publisher(schema=wide(35, 4, 3)).campaign()
    campaign = opened(raw)
    made = stored(tmp_path, raw, batch(campaign, [report(campaign, device, device) for device in range(300)]), now=NOW)
    assert "left out" in check(page_of(made, now=NOW).html).words


def test_the_sizes_of_the_parts_add_up_to_less_than_a_page():
    parts = rendering.LARGEST_BYTES + (rendering.MOST_SECTIONS - 1) * rendering.SECTION_BYTES
    assert parts + 25_000 < rendering.PAGE_BYTES
    assert len(rendering._style()) < 15_000
