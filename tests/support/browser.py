"""Pages in headless Chromium: requests, width, contrast of every text. A check raises AssertionError with the fault."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from support.machine import need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

LEAST_CONTRAST = 4.5
"""WCAG 2, level AA, for text of ordinary size."""
CONTRASTS = """
() => {
  const parse = text => {
    const n = text.match(/[0-9.]+/g).map(Number);
    return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1];
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = colour => {
    const [r, g, b] = colour.slice(0, 3).map(v => v / 255).map(
      v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  const canvas = () => {
    const probe = document.createElement("div");
    probe.style.cssText = "background: Canvas; position: absolute";
    document.body.append(probe);
    const found = parse(getComputedStyle(probe).backgroundColor);
    probe.remove();
    return found;
  };
  const base = canvas();
  const behind = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), base);
  };
  const faded = element => {
    let share = 1;
    for (let e = element; e; e = e.parentElement) share *= Number(getComputedStyle(e).opacity);
    return share;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, element = text.parentElement;
    const box = element.getBoundingClientRect();
    if (!text.data.trim() || !box.width || !box.height || element.closest("title, style")) continue;
    const style = getComputedStyle(element);
    if (style.visibility === "hidden") continue;
    const svg = element.closest("svg");
    const ink = parse(svg ? style.fill : style.color);
    ink[3] *= faded(element);
    const backs = [behind(element)];
    if (svg) for (const shape of svg.querySelectorAll("rect")) {
      const b = shape.getBoundingClientRect();
      if (b.left < box.right && box.left < b.right && b.top < box.bottom && box.top < b.bottom)
        backs.push(over(parse(getComputedStyle(shape).fill), backs[0]));
    }
    found.push([Math.min(...backs.map(back => ratio(over(ink, back), back))), text.data.trim().slice(0, 60)]);
  }
  return found;
}
"""
"""The contrast of each visible text with what lies behind it: [[ratio, text], …].

Backgrounds of all ancestors are laid over one another. Behind a text of an SVG lie also the rectangles that it touches.
"""


CHARTS = """
() => [...document.querySelectorAll("svg")].flatMap(chart => {
  const whole = chart.getBoundingClientRect(), found = [];
  if (!whole.width) return [];
  const texts = [...chart.querySelectorAll("text")].map(one => [one.getBoundingClientRect(), one.textContent]);
  texts.forEach(([box, text], place) => {
    if (box.left < whole.left - 1 || box.right > whole.right + 1 || box.top < whole.top - 1
        || box.bottom > whole.bottom + 1) found.push("cut off: " + text);
    for (const [other, words] of texts.slice(0, place)) {
      const width = Math.min(box.right, other.right) - Math.max(box.left, other.left);
      const height = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
      if (width > 1 && height > 4) found.push("one over the other: " + text + ", " + words);
    }
  });
  return found;
})
"""
"""Texts of charts that are cut off at an edge of the drawing, or that lie over another text."""


@contextmanager
def running() -> Iterator[Browser]:
    """Context manager that starts Chromium without a window. Without Chromium the test is skipped; in CI it fails."""
    program = need("chromium", "chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        if os.environ.get("CI"):
            pytest.fail("playwright is missing in CI")
        pytest.skip("playwright is not installed: pip install '.[dev]'")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, path: Path, *, width: int = 390, dark: bool = False) -> Iterator[Page]:
    """Context manager that shows a file in a window of this width, with everything unfolded.

    Raises:
        AssertionError: at the end, if the page asked for anything but itself, or has a script.
    """
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme="dark" if dark else "light")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        yield page
        page.wait_for_timeout(50)
        assert asked == [path.as_uri()]
        assert page.evaluate("document.scripts.length") == 0
    finally:
        page.close()


def check_width(page: Page, width: int) -> None:
    """The page is not wider than the window."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def check_contrast(page: Page) -> int:
    """Every visible text can be told from its background. Returns the number of texts."""
    found = page.evaluate(CONTRASTS)
    poor = sorted((round(ratio, 2), text) for ratio, text in found if ratio < LEAST_CONTRAST)
    assert not poor, poor[:10]
    return len(found)


def check_charts(page: Page) -> None:
    """Every text of a chart is inside of its drawing, and no text lies over another."""
    found = page.evaluate(CHARTS)
    assert not found, found[:10]
