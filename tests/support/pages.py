"""Elements and texts of a page, and the rules that hold for every page."""

from __future__ import annotations

from html.parser import HTMLParser

from protocol.documents.payload import is_seen

VOID = {"meta", "br", "link", "line", "rect", "path", "circle", "input", "img"}
FORBIDDEN = {"script", "iframe", "object", "embed", "link", "img", "form", "base"}


class Outline(HTMLParser):
    """Elements and texts of a page. An element that is not closed in its place is an error."""

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.headings, self.text = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("h1", "h2", "h3", "h4"):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def check(html):
    """Every rule that holds for all pages; returns the outline."""
    found = Outline(html)
    tags = [tag for tag, _ in found.elements]
    assert len(html.encode()) < 500_000
    assert not FORBIDDEN & set(tags)
    for tag, attributes in found.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "srcset", "style")], tag
        assert attributes.get("href", "#").startswith("#")
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
    assert ("html", {"lang": "en"}) in found.elements
    assert found.headings[0] == 1
    assert all(after - before <= 1 for before, after in zip(found.headings, found.headings[1:], strict=False))
    policy = {"http-equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'"}
    assert ("meta", policy) in found.elements
    assert "@import" not in html
    names = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(names) == len(set(names))
    assert is_seen(html.replace("\n", " "))
    return found
