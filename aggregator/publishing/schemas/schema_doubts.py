"""Warnings about columns of a pilot: columns that are probably no features, and misleading spellings.

Times, serial numbers and names are probably no features. A warning refuses nothing: the draft and the command print it,
and the author decides. The texts hold no cell, except a marker of missing values such as -1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise
from shlex import quote
from unicodedata import normalize

import pandas as pd

from aggregator.common.tables import COMMA_OF_THOUSANDS, MISSING_TOKENS, advice_on_commas, have_outer_spaces
from protocol.errors import InputError
from protocol.features import Categorical, as_text, parse_bound
from protocol.schema import Schema

FAR = 1000
"""Smallest distance of a number from the middle half of the numbers, in widths of that half, that gives a warning."""
FEWEST_RECORDS = 20
"""Fewest records for which a column without repeated cells may be taken for serial numbers."""
MOST_COMMON_SHARE = 0.9
"""Smallest share of cells that look like times for which a column counts as times."""
CERTAIN_RECORDS = 200
"""Number of records from which whole numbers without repeats count as serial numbers in any order."""

_CLOCK = r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?"
_ZONE = r" ?(Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})?"
_DAY = r"[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([0-9]{4}|[0-9]{2})"
_TIME = re.compile(rf"(({_DAY})([T ]{_CLOCK}{_ZONE})?|{_CLOCK}{_ZONE})", re.IGNORECASE)
_YEARS = (date(2000, 1, 1), date(2100, 1, 1))
_EPOCH = tuple((year - date(1970, 1, 1)).days * 86_400 for year in _YEARS)
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_ZEROS = re.compile(r"0[0-9]{1,30}")
_COMPACT = re.compile(r"(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}([.][0-9]{3}){1,9}")
_WHOLE = re.compile(r"-?[0-9]{1,30}")
_LATIN_LOOKS = str.maketrans(
    "АВЕКМНОРСТУХЅІЈаеорсухѕіјһԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧανορ",
    "ABEKMHOPCTYXSIJaeopcyxsijhdqwABEZHIKMNOPTYXavop",
)
"""Cyrillic and Greek letters that look like Latin ones."""
_TRUTHS = ("false", "true")
_MARKERS = ("-1", *(f"-{'9' * digits}" for digits in range(1, 7)))
_LARGE_MARKERS = tuple("9" * digits for digits in range(3, 7))
_MISSING_WORDS = frozenset(("na", "n/a", "#n/a", "#na", "<na>", "nan", "-nan", "nat", "null", "none"))
"""Words, in small letters, that other programs write for a missing value."""
_WITH_UNIT = re.compile(r"([^\s\w.,+-]{0,3} ?)[+-]?[0-9]{1,20}([.,][0-9]{1,20})?( ?[^\s\d.,:;/+-][^\d]{0,11})?")
_FEWEST_UNITS = 3
"""Fewest different texts that are taken for numbers with a unit."""
_ALIKE_UNITS = 0.9
"""Smallest share of the texts that have the commonest unit."""
MOST_NUMBERED_CLASSES = 12
"""Most different numbers of a label that raise no doubt."""
FEWEST_OTHERS = 2
"""Fewest different other numbers in a column with a marker of missing values. With fewer, -1 counts as a value."""


def doubt(column: pd.Series, missing: Collection[str]) -> str | None:
    """Return why a column of cells as text should perhaps be no feature, or None if there is no sign of that."""
    absent = set(missing)
    cells = [str(cell) for cell in column if cell not in absent]
    if _look_like_times(cells):
        return "it looks like times: they go on, so devices will hold what the pilot does not show"
    if len(cells) < FEWEST_RECORDS or len(set(cells)) < len(cells):
        return None
    if not all(map(_WHOLE.fullmatch, cells)):
        return (
            None if any(map(_is_number, cells)) else "no text of it occurs twice: it looks like names or serial numbers"
        )
    numbers = [int(cell) for cell in cells]
    if _is_ordered(numbers) or max(numbers) - min(numbers) < 2 * len(numbers) or len(numbers) >= CERTAIN_RECORDS:
        return "it is another whole number in every record: it looks like a serial number"
    return None


def _look_like_times(cells: Sequence[str]) -> bool:
    """Return whether cells are dates or times in usual spellings, or counts from 1970 that are all in 2000 … 2100."""
    if len(set(cells)) < 2:
        return False
    if sum(_TIME.fullmatch(cell) is not None for cell in cells) >= MOST_COMMON_SHARE * len(cells):
        return True
    if not all(map(_WHOLE.fullmatch, cells)):
        return False
    if all(map(_COMPACT.fullmatch, cells)):
        return True
    low, high = min(map(int, cells)), max(map(int, cells))
    start, end = _EPOCH
    return any(start * unit <= low and high < end * unit for unit in _UNITS.values())


def _is_ordered(numbers: Sequence[int]) -> bool:
    steps = [after - before for before, after in pairwise(numbers)]
    return all(step > 0 for step in steps) or all(step < 0 for step in steps)


def number_in(cell: str) -> Decimal | None:
    """Return the number that devices read in a cell; None if there is none."""
    try:
        return parse_bound(cell)
    except InputError:
        return None


def _is_number(cell: str) -> bool:
    return number_in(cell) is not None


def misleading(listed: Sequence[str], *, numbers: bool = True) -> str | None:
    """Return in a sentence why listed texts may not match values of devices, which spell numbers and truths in one way.

    ``numbers``: whether numbers would be listed as texts, as those of a label are. None if no text is of these kinds.
    """
    if numbers and any(_is_number(text) and as_text(parse_bound(text)) not in (None, text) for text in listed):
        return (
            "it lists whole numbers with a point, zeros or an exponent: a listed 1.0 matches that text alone, and a "
            "device that holds the number 1 or 1.0 means 1"
        )
    if any(text.lower() in _TRUTHS and text not in _TRUTHS for text in listed):
        return (
            "it lists truth values in capitals: a listed True matches that text alone, and a device that holds a "
            "truth value means true or false"
        )
    return None


def look_alike(texts: Sequence[str]) -> bool:
    """Return whether texts look alike, as Yes and yes do, é in two code points, or a Latin and a Cyrillic a."""
    seen = {"".join(normalize("NFKC", text).translate(_LATIN_LOOKS).casefold().split()) for text in texts}
    return len(seen) < len(texts)


def alike_in(schema: Schema) -> str:
    """Return a warning about names, classes or values of a schema that look alike; empty if there are none."""
    listed: list[tuple[str, Sequence[str]]] = [("its label's classes", schema.label.classes)]
    listed.append(("names of its features", [feature.name for feature in schema.features]))
    categories = [feature for feature in schema.features if isinstance(feature, Categorical)]
    listed += [(f"values of '{one.name}'", one.values) for one in categories]  # noqa: PD011 - `one` is a feature, not a frame
    found = ", ".join(what for what, texts in listed if look_alike(texts))
    return found and (
        f"the schema has texts that look alike ({found}): they differ only in capitals, spaces, or forms or "
        "alphabets of letters, and count as different; write each of them in one way"
    )


def marker(column: pd.Series, missing: Collection[str]) -> str | None:
    """Return the negative number, -1, -9, -99 and so on, that probably means "missing" in a column, or None.

    All cells are numbers, the marker the only negative one, the largest above 1. The next one is 1 or more, or rarer
    than the marker, which may else be the next smaller value.
    """
    numbers = _counted(column, missing)
    least, *others = sorted(numbers) or [Decimal()]
    if len(others) < FEWEST_OTHERS or others[0] < 0 or others[-1] <= 1:
        return None
    text, count = numbers[least]
    return text if text in _MARKERS and (others[0] >= 1 or numbers[others[0]][1] < count) else None


def large_marker(column: pd.Series, missing: Collection[str]) -> str | None:
    """Return the number of three or more nines, as 999, that seems to mean "missing" among shorter numbers, or None."""
    numbers = _counted(column, missing)
    *others, largest = sorted(numbers) or [Decimal()]
    if len(others) < FEWEST_OTHERS:
        return None
    text, count = numbers[largest]
    return text if text in _LARGE_MARKERS and count > 1 and others[-1] < (largest + 1) / 10 else None


def _counted(column: pd.Series, missing: Collection[str]) -> dict[Decimal, tuple[str, int]]:
    """Return number → (its text, how often it occurs). Empty if a text is no number, or two texts mean one number."""
    counts = column[~column.isin(set(missing))].value_counts()
    numbers = {parse_bound(text): (text, int(count)) for text, count in counts.items() if _is_number(text)}
    return numbers if len(numbers) == len(counts) else {}


def word_for_missing(texts: Iterable[str]) -> str | None:
    """Return the first text such as NA, NaN or null, which other programs write for a missing value; else None."""
    return next((text for text in texts if text.casefold() in _MISSING_WORDS), None)


def units_in(texts: Sequence[str]) -> str:
    """Return a hint if most texts are numbers with the same unit or sign beside them, as in 5.31 mm; else empty."""
    matches = [match for match in map(_WITH_UNIT.fullmatch, texts) if match is not None]
    beside = Counter((match[1].strip(), (match[3] or "").strip()) for match in matches)
    del beside["", ""]
    if not beside or max(beside.values()) < max(_FEWEST_UNITS, _ALIKE_UNITS * len(texts)):
        return ""
    return ", numbers with a unit (write the number alone, and the unit into the column's name)"


def doubts(frame: pd.DataFrame, label: str, missing: Collection[str], drop: Collection[str]) -> list[str]:
    """Return all warnings about a pilot's columns (text) but for those in ``drop``, one line each."""
    said = []
    for column in frame.columns:
        if column in drop:
            continue
        why = None if column == label else doubt(frame[column], missing)
        reasons = [f"{why}; leave it out: --drop {quote(column)}"] if why is not None else []
        reasons = reasons or list(_spellings(frame[column], missing, is_label=column == label))
        said += [f"column '{column}': {reason}" for reason in reasons]
    return said


def _spellings(column: pd.Series, missing: Collection[str], *, is_label: bool) -> Iterator[str]:
    """Yield one sentence for everything that is odd about the texts of a column, with advice."""
    if have_outer_spaces(column.name):
        yield "its name has spaces around it, so records need a key with these spaces; write the header without them"
    texts = sorted(set(column) - set(missing))
    if any(map(have_outer_spaces, texts)):
        yield "some of its cells have spaces around them, and a device takes them as a part of the text; remove them"
    why = misleading(texts, numbers=is_label)
    if why is not None:
        yield f"{why}; write them as devices do"
    if not is_label and any(map(_ZEROS.fullmatch, texts)) and all(map(_is_number, texts)):
        yield "some of its numbers begin with zeros: as numbers 01234 and 1234 are one; if they are codes, --drop it"
    if is_label:
        yield from _numbered_classes(texts)
    if units_in(texts):
        yield f"its texts are{units_in(texts).removeprefix(',')}, so each is a value of its own"
    yield from _commas(texts, is_label=is_label)
    yield from _markers(column, missing, texts, is_label=is_label)
    if not is_label:
        yield from _far(column, missing)


def _far(column: pd.Series, missing: Collection[str]) -> Iterator[str]:
    """Yield a warning if one number is so far from all others that the others would share one bin of equal width."""
    numbers = sorted(float(cell) for cell in column if cell not in missing and _is_number(cell))
    if len(numbers) < FEWEST_RECORDS:
        return
    low, high = numbers[len(numbers) // 4], numbers[3 * len(numbers) // 4]
    if high > low and max(numbers[-1] - high, low - numbers[0]) > FAR * (high - low):
        yield (
            f"a number is over {FAR} times farther out than the middle half of the numbers is wide: correct it, or set "
            "the feature's bounds, or all others share one bin"
        )


def _commas(texts: Sequence[str], *, is_label: bool) -> Iterator[str]:
    """Yield a warning about commas in numbers; if there is none to give, one about texts that look alike."""
    commas = [text for text in texts if advice_on_commas([text])]
    numbers = len(commas) + sum(map(_is_number, texts))
    advice = advice_on_commas(commas) if 2 * numbers > len(texts) else ""
    if advice and advice != COMMA_OF_THOUSANDS and any(map(_THOUSANDS.fullmatch, texts)):
        yield (
            "some of its numbers have decimal commas, others points before three digits: 1.234 is read as a little "
            "more than 1; if it means 1234, write 1234, and write 3.5 and not 3,5"
        )
    elif advice:
        yield f"its numbers have commas, so each is a text of its own; {advice}"
    elif look_alike(texts):
        what = "classes" if is_label else "values"
        only = "capitals, spaces, or forms or alphabets of letters"
        yield f"some of its {what} differ only in {only}; write each of them in one way"


def _markers(column: pd.Series, missing: Collection[str], texts: Sequence[str], *, is_label: bool) -> Iterator[str]:
    """Yield a warning for each text or number that probably means "missing", with the command that says it does."""
    found = [("its text {}", word_for_missing(texts))]
    if not is_label:
        found += [("its largest number, {},", large_marker(column, missing))]
        found += [("its one negative number, {},", marker(column, missing))]
    for what, token in found:
        if token is not None:
            said = _said_missing([*missing, token])
            yield f"{what.format(token)} may mean missing; if so: hearsay schema {said}"


def _numbered_classes(texts: Sequence[str]) -> Iterator[str]:
    """Yield a warning about a label of many numbers, or of numbers that are not whole, such as an age or a price."""
    numbers = [parse_bound(text) for text in texts if _is_number(text)]
    whole = all(number == number.to_integral_value() for number in numbers)
    if 2 * len(numbers) > len(texts) and (len(numbers) > MOST_NUMBERED_CLASSES or not whole):
        yield (
            f"its {len(texts)} classes are numbers: each number is a class of its own, and their order is lost; write "
            "a few ranges in their place, for example under 40 and 40 or more"
        )


def _said_missing(missing: Collection[str]) -> str:
    kept = [f"--not-missing={quote(token)}" for token in MISSING_TOKENS if token not in missing]
    return " ".join([*kept, *(f"--missing={quote(token)}" for token in missing if token not in MISSING_TOKENS)])
