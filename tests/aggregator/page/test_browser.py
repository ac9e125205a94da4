"""Pages in a browser: a phone's width, light and dark, print, keyboard; and checks that find what is wrong."""

from __future__ import annotations

import contextlib
import gzip
import random
from pathlib import Path

import pytest
from support.browser import check_charts, check_contrast, check_width, opened, running
from support.commands import run
from support.hostile import CARDS, model_of, wide
from support.pages import check
from support.publisher import NOW, Publisher
from support.reference import need_reference

from aggregator.page.report import report as page_of
from benchmarks.shared.reference import FOLDER
from protocol.features import Categorical
from protocol.schema import Label, build_schema

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

PICTURES = Path(__file__).parents[3] / "build" / "pages"
SIZES = (6, 4, 10, 2, 9, 2, 2, 2, 12, 2, 5, 4, 4, 9, 9, 4, 3, 5, 9, 6, 7)
"""Number of values of each of the mushroom's features that is not the same in every record."""
PHONE = 390
FOLDED = "[...document.querySelectorAll('details td')].every(e => e.checkVisibility({contentVisibilityAuto: true}))"
"""Whether all cells of folded tables show."""


@pytest.fixture(scope="module")
def browser():
    with running() as found:
        yield found


def made_up(path):
    """Records with as many features and values as the mushroom's; some features depend on the class."""
    draw = random.Random(3)
    lines = [",".join([*(f"feature-{number}" for number in range(len(SIZES))), "label"])]
    for _ in range(8000):
        poisonous = draw.random() < 0.48
        cells = [str((poisonous if draw.random() < 0.7 / (1 + at) else draw.randrange(size)) * 1)
                 for at, size in enumerate(SIZES)]  # fmt: skip
        lines.append(",".join([*(f"v{cell}" for cell in cells), "p" if poisonous else "e"]))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module", params=["made up", "mushroom"])
def campaign(request, tmp_path_factory):
    """A campaign of 20,000 simulated devices, its store, a model and an evaluation of it, as files of one folder."""
    folder = tmp_path_factory.mktemp("mushrooms")
    data, drop = folder / "data.csv", ""
    if request.param == "made up":
        made_up(data)
    else:
        need_reference()
        data.write_bytes(gzip.decompress((FOLDER / "datasets" / "mushroom.csv.gz").read_bytes()))
        drop = "--drop veil-type"
    with contextlib.chdir(folder):
        for line in (
            "init work --no-passphrase",
            f"schema data.csv --label label {drop} -o s.toml",
            "campaign s.toml --workspace work --epsilon 2 --mechanism auto -o c.hsc",
            "rehearse c.hsc data.csv --devices 20000 --seed 1 -o r.hsr",
            "ingest c.hsc r.hsr cut.hsr --store st --workspace work",
            "publish --store st --workspace work -o m.hsm",
            "evaluate ask m.hsm --workspace work --epsilon 2 -o e.hsc",
            "rehearse e.hsc data.csv --model m.hsm --devices 5000 --seed 2 -o e.hsr",
            "ingest e.hsc e.hsr --store outcomes --workspace work",
            "report st --evaluation outcomes --workspace work -o store.html",
            "report m.hsm --evaluation outcomes --workspace work -o model.html",
            "report outcomes -o outcomes.html",
        ):
            run(*line.split())
            if line.startswith("rehearse c"):
                (folder / "cut.hsr").write_bytes((folder / "r.hsr").read_bytes()[:5000])
    return folder, request.param.replace(" ", "-")


@pytest.mark.parametrize("name", ["store", "model", "outcomes"])
def test_a_page_can_be_read_on_a_phone_in_light_and_dark_and_printed(campaign, browser, name):
    folder, data = campaign
    path = folder / f"{name}.html"
    found = check(path.read_text("utf-8"))
    assert "How to verify this page" in found.words
    PICTURES.mkdir(parents=True, exist_ok=True)
    for dark in (False, True):
        with opened(browser, path, width=PHONE, dark=dark) as page:
            assert page.inner_text("h1").startswith(("Campaign", "Model"))
            check_width(page, PHONE)
            check_charts(page)
            assert check_contrast(page) > 100
            page.screenshot(path=PICTURES / f"{name}-{data}-{'dark' if dark else 'light'}.png")
    with opened(browser, path, width=PHONE) as page:
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = false)")
        page.emulate_media(media="print")
        page.wait_for_function(FOLDED)
        check_contrast(page)
        assert not page.is_visible("nav")
        assert page.pdf()[:5] == b"%PDF-"
    with opened(browser, path, width=PHONE // 2 + 125) as page:  # 320 pixels: a window of 640 at 200 %
        check_width(page, PHONE // 2 + 125)


def test_the_keyboard_reaches_links_and_folded_tables(campaign, browser):
    with opened(browser, campaign[0] / "store.html") as page:
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = false)")
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.tagName"))
        assert {"A", "SUMMARY"} <= reached


HOSTILE = {
    "long names": (wide(40, 12, 12), "huge"),
    "many classes": (wide(1, 2, 256), "markup"),
    "unseen characters": (Publisher().schema, "unseen characters"),
    "200 features": (wide(200, 2, 3, name="f"), "nested"),
    "wide letters": (
        build_schema(Label("W" * 30, ["M" * 30, "毒" * 30]), [Categorical("菌" * 30, ["@" * 30, "mW%" * 10])]),
        "nothing",
    ),
}


@pytest.mark.parametrize(("schema", "card"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_names_do_not_widen_a_page(schema, card, browser, tmp_path):
    (tmp_path / "m.hsm").write_bytes(model_of(schema, CARDS[card]))
    page_of(tmp_path / "m.hsm", now=NOW).save(tmp_path / "p.html")
    for dark in (False, True):
        with opened(browser, tmp_path / "p.html", dark=dark) as page:
            check_width(page, PHONE)
            check_charts(page)
            check_contrast(page)


PAGE = "<!doctype html><html lang=en><head><title>t</title></head><body><h1>Model</h1>{}</body></html>"
FAULTS = {
    "pale": "<p style='color:#999'>hardly to be read</p>",
    "pale in a chart": "<svg width=200 height=40><text y=20 fill='#aaa'>pale</text></svg>",
    "on a bar": "<svg width=200 height=40><rect width=200 height=40 fill='#333'/><text y=20>dark on dark</text></svg>",
    "cut off": "<svg width=200 height=40><text x=60 y=20 text-anchor=end>stalk-surface-below</text></svg>",
    "one over the other": "<svg width=200 height=40><text y=20>first</text><text x=9 y=22>other</text></svg>",
    "faded": "<div style='opacity:.4'><p>faded</p></div>",
    "wide": "<p style='width:900px'>too wide</p>",
    "script": "<script>document.title = 'x'</script>",
    "remote": "<img src='http://127.0.0.1:9/x.png' alt=''>",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checks_find_faults(fault, browser, tmp_path):
    path = tmp_path / "p.html"

    def look(text):
        path.write_text(PAGE.format(text))
        with opened(browser, path) as page:
            check_width(page, PHONE)
            check_charts(page)
            check_contrast(page)

    look("<p>all is well</p>")
    with pytest.raises(AssertionError):
        look(FAULTS[fault])
