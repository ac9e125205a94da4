"""Every code block of every page runs: in a session of its page, or in the test that a comment names."""

from __future__ import annotations

from pathlib import Path

import pytest
from documentation.blocks import COMMAND, READ, RUN, TEXT, Block, blocks
from documentation.pages import matches, read, run, steps

ROOT = Path(__file__).parents[2]
GENERATED = ("docs/reference/cli.md",)
"""Pages made from the programs; tests/test_cli_page.py reads their blocks."""
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"))
    if str(path.relative_to(ROOT)) not in GENERATED
)


def of(page):
    return blocks((ROOT / page).read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page):
    for block in of(page):
        place = f"{page}, line {block.line}"
        if block.test:
            test = ROOT / block.test
            assert test.is_file(), f"{place} names {block.test}"
            assert Path(page).name in test.read_text("utf-8"), f"{block.test} does not read {page}"
        elif block.language in ("", TEXT):
            assert not COMMAND.search(block.text), f"{place} looks like commands: say bash, console or python"
        elif block.language in READ:
            read(block)
        else:
            assert block.language in RUN, f"{place}: nothing runs a block of {block.language!r}"


def session(found, folder, installed):
    """Run blocks in an empty folder."""
    for name in ("blocks", "session"):
        (folder / name).mkdir()
    run(steps(found, folder / "blocks"), folder / "session", installed)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if any(not b.test and b.language in RUN for b in of(page))])
def test_a_page_runs_from_top_to_bottom(page, installed, tmp_path):
    session(of(page), tmp_path, installed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Block(1, "bash", "hearsay shwo c.hsc\n"), "No such command"),
        (Block(1, "bash", "hearsay show no.hsc\n"), "file_not_found"),
        (Block(1, "bash", "false | true\n"), "exit 1"),
        (Block(1, "python", "import edge_sdk.nothing\n"), "ModuleNotFoundError"),
        (Block(1, "console", "$ echo one\ntwo\n"), "but it printed"),
    ],
)
def test_a_page_that_is_wrong_is_found(broken, said, installed, tmp_path):
    with pytest.raises(AssertionError, match=said):
        session([broken], tmp_path, installed)


def test_blocks_are_found_and_shown_output_may_leave_out_what_varies():
    assert matches("epsilon  …\n…\nlast", "epsilon  1\n\nmany\nlast")
    assert not matches("epsilon  1\n…", "epsilon  2\nlast")
    assert not matches("first", "first\nsecond")
    page = "<!-- prepare\ntrue\n-->\n\ntext\n\n    formula\n\n<!-- run by tests/a.py -->\n```bash\nls\n```\n"
    page += "\n- item\n\n    more of the item\n"
    expected = [Block(1, "bash", "true\n"), Block(7, "", "formula\n"), Block(10, "bash", "ls\n", "tests/a.py")]
    assert blocks(page) == expected
    assert any(block.language == "python" and not block.test for page in PAGES for block in of(page))
