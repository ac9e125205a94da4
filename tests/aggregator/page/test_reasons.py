"""The sentences about reasons are those of the reference page."""

import re
from pathlib import Path

from aggregator.page.reasons import MEANINGS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "reasons.md"


def test_every_sentence_is_that_of_the_reference():
    text = PAGE.read_text("utf-8")
    told = dict(re.findall(r"^\| `([^`]+)` \| (.+?) \| .+ \|$", text, re.MULTILINE))
    assert {reason: told[reason] for reason in MEANINGS} == MEANINGS
    for title in ("Reports that were set aside", "Stretches of a batch file"):
        part = text.split(f"## {title}")[1].split("\n## ")[0]
        assert set(re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE)) <= set(MEANINGS)
