"""What ``mkdocs`` does besides: files of the repository that pages link to become files of the site.

The pages are read in two places: in the repository, where a link may lead to a test or an example, and as a site, which
has only ``docs/``. Examples' READMEs become pages, every other linked file becomes a text file under ``source/``.
"""

from __future__ import annotations

import re
from os.path import normpath, relpath
from pathlib import Path
from posixpath import dirname, join
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)")
"""The target of a Markdown link to a file, without the anchor."""
ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):<code>~?(?:!)?([^<]*)</code>")
"""A reference in a docstring as Sphinx writes it, in the HTML of the API pages."""


def repository_path(page: str, target: str) -> str:
    """Path in the repository of a link's target.

    Args:
        page: path of the linking page in the site: an example's README is ``examples/NAME/README.md``.
        target: the link's target, relative to the page's place in the repository.
    """
    place = page if page.startswith("examples/") else join("docs", page)
    return normpath(join(dirname(place), target))


def site_path(path: str) -> str:
    """Path in the site's sources of a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith("/README.md") or not (ROOT / path).is_file():
        return path
    return f"source/{path}.txt"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the examples' READMEs, and every linked file that is not in ``docs/``."""
    for readme in sorted(ROOT.glob("examples/*/README.md")):
        path = readme.relative_to(ROOT).as_posix()
        files.append(File(path, str(ROOT), config.site_dir, use_directory_urls=False))
    for page in list(files.documentation_pages()):
        for target in LINK.findall(page.content_string):
            path = repository_path(page.src_uri, target)
            added = site_path(path)
            if added.startswith("source/") and files.get_file_from_path(added) is None:
                files.append(File.generated(config, added, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Lead links out of ``docs/`` to the added files."""
    here = page.file.src_uri

    def led(found: re.Match[str]) -> str:
        path = repository_path(here, found[1])
        if path.startswith("docs/") and not here.startswith("examples/"):
            return found[1]
        return Path(relpath(site_path(path), dirname(here) or ".")).as_posix()

    return LINK.sub(led, markdown)


def on_page_content(html: str, **_: object) -> str:
    """Show references of docstrings as code."""
    return ROLE.sub(r"<code>\1</code>", html)
