"""Periods by number and date, charts, cells of spreadsheets, secrets at rest, and tables of notebooks."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from html.parser import HTMLParser
from io import StringIO
from math import inf, nan

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nacl.pwhash import argon2id
from support import stores
from support.commands import run
from support.examples import examples
from support.failures import refusal
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, opened, report

from aggregator import create_workspace, make_campaign
from aggregator.common import notebooks, sealing
from aggregator.common.periods import LAST_PERIOD, begins, parse_span, parse_start, shown_range
from aggregator.common.plots import Bars, Line, bar_chart, line_chart
from aggregator.common.sealing import MAX_MEMORY_BYTES, MAX_PASSES, Cost, open_secret, seal_secret
from aggregator.common.spreadsheets import csv_text, from_cell, to_cell
from aggregator.models.scoring import Model, predict_file
from aggregator.operations.status import status
from aggregator.planning.feature_selection.codings import Cut, Way
from aggregator.planning.feature_selection.forward_selection import Candidate
from aggregator.planning.feature_selection.from_pilot import Accuracy, PilotDesign
from aggregator.publishing import keys
from aggregator.publishing.schemas.schema_file import SchemaFile
from aggregator.reports.intake.sources import Unreadable
from aggregator.reports.intake.transaction import IngestSummary
from protocol import canonical
from protocol.features import Categorical
from protocol.schema import Label, build_schema

HOUR, WEEK = 3600, 7 * DAY
NOVEMBER = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("text", "precision", "expected"),
    [
        ("2026-11-01..2026-11-30", DAY, range(20_758, 20_788)),
        ("2026-11-01", DAY, range(20_758, 20_759)),
        ("20758..2026-11-02", DAY, range(20_758, 20_760)),
        ("2026-11-01..20759", DAY, range(20_758, 20_760)),
        ("2026-11-01", HOUR, range(24 * 20_758, 24 * 20_759)),
        ("2026-11-01T06:00..2026-11-01T07:59", HOUR, range(24 * 20_758 + 6, 24 * 20_758 + 8)),
        ("2026-11-01T06:30", HOUR, range(24 * 20_758 + 6, 24 * 20_758 + 7)),
        ("2026-11-01T06:30Z..", DAY, range(20_758, LAST_PERIOD + 1)),
        ("7..9", WEEK, range(7, 10)),
        ("2026-11-01..2026-11-07", WEEK, range(2966, 2967)),  # weeks begin on Thursdays, as 1970 did
        ("..2026-11-07", WEEK, range(2967)),
        ("..", DAY, range(LAST_PERIOD + 1)),
        ("5..", DAY, range(5, LAST_PERIOD + 1)),
        ("..5", DAY, range(6)),
        ("5", DAY, range(5, 6)),
        ("1970-01-01..9999-12-31", 1, range(LAST_PERIOD + 1)),
    ],
)
def test_a_span_is_the_periods_that_begin_in_it(text, precision, expected):
    assert parse_span(text).of(precision) == expected


@given(st.dates(min_value=datetime(1970, 1, 1).date()), st.integers(1, 2**31))
def test_the_periods_of_a_day_are_those_that_begin_on_it(day, precision):
    start = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
    some = [number for number in range(start // precision, start // precision + 3) if number <= LAST_PERIOD]
    expected = {number for number in some if start <= number * precision < start + DAY}
    if expected:
        found = parse_span(day.isoformat()).of(precision)
        assert expected == {number for number in some if number in found}
        return
    assert refusal(parse_span(day.isoformat()).of, precision) == "periods_absent"


@pytest.mark.parametrize(
    ("text", "precision", "expected"),
    [("2026-11-22", DAY, 20_779), ("2026-11-22", WEEK, 2968), ("2026-11-22T06:59", HOUR, 24 * 20_779 + 6), ("7", 9, 7)],
)
def test_what_is_forgotten_before_a_day_has_ended_by_then(text, precision, expected):
    """The period that the day begins in is kept: some of its reports are of that day."""
    assert parse_start(text).period(precision) == expected


NO_SPANS = """| ... | a | 1-2 | 2026-11-31 | 2026-13-01 | 2026-1-1 | 1969-12-31 | 0000-01-01 | 4294967296 | 99999999999
| 2026-11-01T24:00 | 2026-11-01T06 | -5 | 9..5 | 2026-11-02..2026-11-01 | 1..2..3 | ٣ | 5."""


def test_what_is_no_span_of_periods_or_one_in_which_none_begins_is_refused():
    for text in (*map(str.strip, NO_SPANS.split("|")), " 5", "5 "):
        assert refusal(parse_span, text) == "periods_invalid"
    for text, precision in (("2026-11-02..20758", DAY), ("2026-11-06", WEEK), ("9000-01-01..", 1)):
        assert refusal(parse_span(text).of, precision) == "periods_absent"


def test_periods_are_shown_by_number_and_date():
    assert shown_range(range(20_758, 20_760), DAY) == "20758..20759 (2026-11-01 to 2026-11-02)"
    assert begins(NOVEMBER // 60 + 1, 60) == "2026-11-01 00:01"
    assert begins(NOVEMBER + 1, 1) == "2026-11-01 00:00:01"
    assert begins(LAST_PERIOD, 2**31) == ""
    assert shown_range(range(LAST_PERIOD, LAST_PERIOD + 1), 2**31) == "4294967295..4294967295"


GROUND = "#fff"


def marks(text, kind):
    return [element for element in ET.fromstring(text).iter() if element.tag.endswith(f"}}{kind}")]


def test_bars_are_as_high_as_their_values_and_names_can_not_break_the_document():
    drawn = marks(bar_chart("t", ["1", "2"], [Bars("a", [0.5, 0.25]), Bars("b", [0, 1])]), "rect")
    bars = [float(bar.get("height")) for bar in drawn if bar.get("fill") != GROUND][:4]
    assert bars[0] == pytest.approx(2 * bars[1], abs=0.02)
    assert bars[3] == pytest.approx(2 * bars[0], abs=0.02)
    assert bars[2] == 0
    text = bar_chart("<b>&", ["</svg>"], [Bars('"', [1])], x_label="<", y_label="&")
    assert "</svg>" in [element.text for element in marks(text, "text")]


def test_lines_are_straight_for_a_power_leave_gaps_and_have_marks():
    xs = [1, 10, 100]
    (line,) = marks(line_chart("t", [Line("x²", xs, [x**2 for x in xs])], log_x=True, log_y=True), "polyline")
    (x0, y0), (x1, y1), (x2, y2) = [map(float, point.split(",")) for point in line.get("points").split()]
    assert (x1 - x0, y1 - y0) == pytest.approx((x2 - x1, y2 - y1), abs=0.02)
    assert y2 < y0
    text = line_chart("t", [Line("a", [1, 2, 3, 4, 5], [1, 2, nan, 4, inf])], marks=[(2, 2, "here")])
    assert len(marks(text, "polyline")) == 2
    assert len(marks(text, "circle")) == 1


def test_ticks_are_round_numbers_and_the_axis_ends_at_one():
    drawn = line_chart("t", [Line("a", [1, 2, 3], [75.4, 80.1, 83.6])], from_zero=False)
    for tick in ("74", "76", "78", "80", "82", "84"):
        assert f">{tick}<" in drawn
    assert ">0<" not in drawn
    drawn = line_chart("t", [Line("a", [1, 2, 3], [75.4, 80.1, 83.6])])
    assert all(f">{tick}<" in drawn for tick in ("0", "20", "40", "60", "80", "100"))
    assert ">16.73<" not in drawn


def test_what_can_not_be_drawn_is_refused():
    for values in ([], [1], [1, -1], [1, nan], [1, inf]):
        assert refusal(bar_chart, "t", ["1", "2"], [Bars("a", values)]) == "plot_invalid"
    for line in (Line("a", [], []), Line("a", [1, 2], [nan, nan]), Line("a", [1, 2], [0, 1])):
        assert refusal(line_chart, "t", [line], log_y=True) == "plot_invalid"


FORMULAS = ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", '=HYPERLINK("http://x")', "-1+2", "- 1", "1"]
RUNS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


@given(st.one_of(st.text(), st.sampled_from(FORMULAS), st.text("'=-1 .e")))
@example("'")
@example("")
def test_no_cell_is_a_formula_and_no_text_is_lost(text):
    cell = to_cell(text)
    assert from_cell(cell) == text
    if cell.startswith(RUNS):
        assert all(float(part) == float(part) for part in cell.split(" "))


def test_a_frame_keeps_its_numbers_and_its_gaps():
    frame = pd.DataFrame({"=a": ["=x", None, "y"], "n": [1, 2, 3], "f": [-1.5, float("nan"), 2.0]})
    numbers = ["-1", "+2.5", "-3 4 -5", "1e-9", "-1.5E+3"]
    assert [*map(to_cell, numbers)] == numbers
    assert csv_text(frame) == "'=a,n,f\n'=x,1,-1.5\n,2,\ny,3,2.0\n"


def test_estimates_of_a_hostile_campaign_are_no_formulas(tmp_path):
    schema = build_schema(Label("=label", ("@SUM(1)", "-b")), [Categorical("=cmd|' /C calc'!A0", ("=1+1", "\uff1d2"))])
    raw = Publisher(schema=schema).campaign()
    campaign = opened(raw)
    store = stores.stored(
        tmp_path, raw, batch(campaign, [report(campaign, device, 0) for device in range(30)]), now=NOW
    )
    said = run("estimate", "--store", store.path, "--csv")
    rows = list(csv.reader(StringIO(said.stdout)))
    texts = [cell for row in rows for cell in row if cell.startswith(RUNS)]
    assert all(float(cell) == float(cell) for cell in texts)
    assert any("@SUM(1)" in cell for row in rows for cell in row)
    out = tmp_path / "o.csv"
    run("export", "--store", store.path, "--format", "csv", "-o", out)
    with out.open(newline="") as file:
        assert not [cell for row in csv.reader(file) for cell in row if cell.startswith(RUNS)]


@pytest.mark.parametrize("separator", [";", "\t", "\n", "\r", "\r\n"])
@pytest.mark.parametrize("text", ["a{}=1+2", "a{}'=1+2", "=1{}+2{}@x", "{}-2", "1{}-3"])
def test_no_part_of_a_text_runs_where_the_separator_is_another(separator, text):
    """German and French spreadsheets take ``a;=1+2`` for two cells, quoted or not."""
    text = text.replace("{}", separator)
    cell = to_cell(text)
    assert not [part for part in cell.replace(separator, "\0").split("\0") if part.startswith(("=", "+", "-", "@"))]
    assert from_cell(cell) == text


CHEAP = Cost(1, argon2id.MEMLIMIT_MIN)
SEALED = seal_secret(b"the secret", b"horse", cost=CHEAP)


@examples(20)
@given(secret=st.binary(max_size=200), passphrase=st.binary(min_size=1, max_size=40))
def test_what_was_sealed_opens_again(secret, passphrase):
    raw = seal_secret(secret, passphrase, cost=CHEAP)
    assert open_secret(raw, passphrase) == secret
    assert len(secret) < 8 or secret not in raw


def test_sealing_costs_what_libsodium_calls_moderate_and_has_salt_and_nonce_from_the_entropy_given():
    body = canonical.unpack(seal_secret(b"s", b"p"))
    assert (body["passes"], body["memory"]) == (3, 256 << 20)
    assert seal_secret(b"s", b"p", cost=CHEAP) != seal_secret(b"s", b"p", cost=CHEAP)
    fixed = [seal_secret(b"s", b"p", cost=CHEAP, entropy=lambda n: b"\7" * n) for _ in range(2)]
    assert fixed[0] == fixed[1]


def test_what_is_no_sealed_secret_or_not_this_ones_is_refused_before_it_costs_anything():
    for passphrase in (b"hors", b"horse ", b"\0"):
        assert refusal(open_secret, SEALED, passphrase) == "passphrase_wrong"
    assert refusal(open_secret, SEALED, b"") == refusal(seal_secret, b"s", b"", cost=CHEAP) == "passphrase_missing"
    for length in range(len(SEALED)):
        assert refusal(open_secret, SEALED[:length], b"horse") == "sealed_damaged"
    body = canonical.unpack(SEALED)
    changes = [(name, bytes([body[name][0] ^ 1]) + body[name][1:], "wrong") for name in ("box", "salt", "nonce")]
    changes += [("memory", value, "damaged") for value in (MAX_MEMORY_BYTES + 1, 1 << 62, 0, argon2id.MEMLIMIT_MIN - 1)]
    changes += [("passes", value, "damaged") for value in (MAX_PASSES + 1, 0, True)]
    changes += [("salt", b"short", "damaged"), ("nonce", "text", "damaged"), ("more", 1, "damaged")]
    changes += [("hearsay_sealed", 2, "newer"), ("hearsay_sealed", 0, "damaged"), ("box", b"", "wrong")]
    for name, value, why in changes:
        reason = "passphrase_wrong" if why == "wrong" else f"sealed_{why}"
        assert refusal(open_secret, canonical.pack({**body, name: value}), b"horse") == reason


OURS = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "p"}
PANDAS = {"style"}
HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</td></table><b>", "&lt;i&gt;", "'x"]


class Seen(HTMLParser):
    """Tags, attributes and text of a document."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts = set(), set(), []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data):
        self.texts.append(data)


@given(st.one_of(st.text(), st.sampled_from(HOSTILE)))
def test_a_text_is_a_text(name):
    shown = notebooks.facts(name, {name: name}) + notebooks.table([name], [[name]])
    found = Seen(shown)
    assert found.tags <= OURS
    assert not found.attributes
    if name.isprintable() and name:
        assert found.texts.count(name) == 5
    assert not any(ord(character) < 0x20 for text in found.texts for character in text)


def test_turned_text_is_replaced_and_a_long_table_says_how_much_more_there_is():
    assert notebooks.text("a\u202eb\u200bc\x1b[31m") == "a\ufffdb\ufffdc\ufffd[31m"
    shown = notebooks.table(["n"], [[number] for number in range(100)])
    assert (shown.count("<tr>"), "and 40 more" in shown) == (notebooks.MOST_ROWS + 1, True)


def tables_of(name):
    """Results with this name in them, each with texts that its table shows."""
    yield SchemaFile(name, build_schema(Label("class", ("no", name)), [Categorical(name, ("a", "b"))])), (
        "Schema", name, f"no, {name}", "all features",
    )  # fmt: skip
    yield IngestSummary(3, 1, (Unreadable(name, "empty_file"),), 10, 2, {"invalid_message": 4}), (
        "Ingest", "10", "2", "set aside: invalid_message", f"not read: {name}", "empty_file",
    )  # fmt: skip
    schema = build_schema(
        Label("class", ("no", name)), [Categorical(name, ("a", "b")), Categorical("odor", ("c", "d"))]
    )
    path = tuple(Candidate(ways, np.full(4, 0.5)) for ways in ((Way(0),), (Way(0), Way(1))))
    designed = PilotDesign(
        SchemaFile("s", schema), (Cut(Way(0), 2),), path, path[0], Accuracy(0.9, 0.8, 0.95), Accuracy(0.7, 0.6, 0.8),
        lead=(0.2, 0.01), largest=(name, 0.6), used=4, records=4,
    )  # fmt: skip
    yield designed, (
        "Design", name, "1 *", "90.0% (80.0% to 95.0%)", f"{name} (60.0%)", designed.verdict,
        "all, as the schema states them",
    )  # fmt: skip
    yield designed._replace(fleet=None, alone=None, lead=None), ("Design",)


@pytest.mark.parametrize("name", HOSTILE)
def test_results_are_tables_without_markup_of_others(name):
    for result, texts in tables_of(name):
        found = Seen(result._repr_html_())
        assert (found.tags <= OURS, found.attributes, set(texts) - set(found.texts)) == (True, set(), set())
    assert "fleet" not in found.texts


@pytest.fixture
def hostile(tmp_path):
    """A store and a model of a campaign whose every name is markup."""
    schema = build_schema(Label(HOSTILE[0], HOSTILE[1:3]), [Categorical(HOSTILE[3], [HOSTILE[4], HOSTILE[1]])])
    publisher = Publisher(schema=schema)
    raw = publisher.campaign(name=HOSTILE[0])
    campaign = opened(raw)
    store = stores.stored(tmp_path, raw, batch(campaign, [report(campaign, n, 0) for n in range(40)]), now=NOW)
    (tmp_path / "m.hsm").write_bytes(publisher.model(name=HOSTILE[0]))
    return store, Model.load(tmp_path / "m.hsm", publisher.root(), clock=lambda: NOW)


def test_everything_that_is_shown_escapes_names(hostile, tmp_path):
    store, model = hostile
    data = tmp_path / "d.csv"
    data.write_text(f"{HOSTILE[3]},{HOSTILE[0]}\n'x,\n", "utf-8")
    statistics = store.statistics()
    for result in (model, status(store, target=0.02), statistics, store, predict_file(model, data, proba=True)):
        found = Seen(result._repr_html_())
        assert found.tags <= OURS | PANDAS, type(result)
        assert found.attributes <= {"border", "class", "style", "scoped"}, type(result)
    assert HOSTILE[0] in " ".join(Seen(model._repr_html_()).texts)


def test_no_estimate_is_shown_before_the_smallest_batch(tmp_path):
    raw = Publisher().campaign(min_batch_size=41)
    campaign = opened(raw)
    store = stores.stored(tmp_path, raw, batch(campaign, [report(campaign, n, 0) for n in range(40)]), now=NOW)
    shown = store.statistics()._repr_html_()
    assert "41, not reached" in shown
    assert "odor" not in shown


@pytest.mark.parametrize("name", HOSTILE)
def test_a_workspace_is_a_table_without_secrets(tmp_path, monkeypatch, name):
    monkeypatch.setattr(keys, "COST", sealing.Cost(1, 8192))
    work = create_workspace(tmp_path / "w", name=name, now=NOW, passphrase="correct horse")
    schema = build_schema(Label("class", ("n", "y")), [Categorical("odor", ("a", "b"))])
    for _ in range(2):
        make_campaign(work, schema, name=name, epsilon=1, mechanism="direct", now=NOW)
    (tmp_path / "w" / "keys" / "model.key").unlink()
    shown = work._repr_html_()
    found = Seen(shown)
    assert found.tags <= OURS
    assert not found.attributes
    assert {"Workspace", str(tmp_path / "w"), f"{name}, version 1", "encrypted", "elsewhere"} <= set(found.texts)
    assert found.texts.count(name) == 1  # the newest version only
    hidden = [each.sealed for each in work.key_files()] + [each.public for each in work.key_files()]
    assert not any(secret.hex() in shown for secret in hidden)
    assert "correct horse" not in shown
    assert all(each.id in found.texts for each in work.key_files())
