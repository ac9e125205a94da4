"""What the owner sees of values without a meaning: names, hints, counts and a log, but no value."""

from __future__ import annotations

import csv
import json
import logging
import warnings
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import pytest
from support.commands import edge, enrolled
from support.failures import failure
from support.publisher import DAY, NOW, Publisher

from edge_sdk import Device
from edge_sdk.answering.answer import MOST_CAMPAIGNS, Meanings
from protocol.features import Categorical, Numeric, as_number, as_text
from protocol.schema import FROM_RECORD, Check, Label, build_schema

SCHEMA = build_schema(
    Label("label", ["e", "p"]),
    [Categorical("status", ["-1", "1"]), Categorical("cap", ["x"], "other"), Numeric("age", "0", "100", [0])],
)
SECRET = "Zq7secretMarkZq7"


def test_a_check_names_what_has_no_meaning():
    for odd, plain in (
        ({"status": -1.0, "cap": "x", "age": "31", "label": "e"}, Check((), (), 0)),
        ({}, Check(("label", "status", "cap", "age"), (), 0)),
        (
            {"status": True, "cap": "y", "age": " 31", "label": "E", "colour": 1, "Age": 3},
            Check((), ("label", "status", "cap", "age"), 2),
        ),
        ({"status": "", "cap": float("nan"), "age": None, "label": "p"}, Check(("status", "cap", "age"), (), 0)),
    ):
        assert SCHEMA.check(odd) == plain
    assert SCHEMA.check({"label": "p"}, None).missing[0] == "label"
    assert SCHEMA.check({"label": "p"}, "z").unlisted == ("label",)
    assert failure(SCHEMA.check, [1]).reason == "record_invalid"
    (row,) = csv.DictReader(["status,cap,age,label", "-1,x,31,e"])
    assert SCHEMA.check(row) == Check((), (), 0)
    assert SCHEMA.observe(row) == SCHEMA.observe({"status": -1, "cap": "x", "age": 31})


OUTSIDE = "'age': outside its range, so it counts as the nearer end; if it stands for a missing value, leave it out"
COMMA = "'age': a decimal comma is not read; write a point"
CODE = "this code is not listed; if it stands for a missing value, leave the value out"


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        *(("age", value, COMMA) for value in ("3,5", "-0,25")),
        *(("age", value, OUTSIDE) for value in (-1, "999", Decimal("100.000001"), Fraction(-1, 10**400), float("inf"))),
        *(("status", value, f"'status': {CODE}") for value in (-9.0, "99")),
        ("label", "-1", f"'label': {CODE}"),
        *(("age", value, "") for value in (0, 100, "100.0", Decimal("NaN"), float("nan"), "1,234,567", "3,5 ", [1])),
        ("age", "9" * 5000 + ",5", ""),
        *(("status", value, "") for value in (-1, "5")),
        *(("cap", value, "") for value in ("x", "99 x", "9" * 5000, True)),
        ("label", "e", ""),
    ],
)
def test_a_check_hints_at_what_was_probably_meant_and_at_nothing_else(name, value, hint):
    found = SCHEMA.check({name: value})
    assert found.hints == ((hint,) if hint else ())
    assert found[:3] == SCHEMA.unread({name: value})[:3]


@pytest.fixture
def device(tmp_path):
    now = [NOW]
    publisher = Publisher(schema=SCHEMA)
    with Device.provision(tmp_path, trust=publisher.root(), clock=lambda: now[0]) as opened:
        opened.now, opened.publisher = now, publisher
        yield opened


def test_status_counts_by_feature_what_was_answered(device):
    campaign = device.enrol(device.publisher.campaign())
    assert device.status().unread == ()
    for record in ({"status": 7, "age": "31", "label": "e"}, {"status": 7}, {"status": 1, "cap": "x", "age": 1}):
        said = device.report(campaign.id, record)
        assert device.report(campaign.id, {}) == said  # the same period: the record is not read
        device.now[0] += DAY
    (unread,) = device.status().unread
    assert unread.campaign == campaign.header.name
    assert (unread.records, unread.missing, unread.unlisted) == (3, {"cap": 2, "age": 1, "label": 2}, {"status": 2})
    assert device.status().to_json()["unread"] == [unread._asdict()]
    assert json.dumps(device.status().to_json())
    with Device.open(device.folder, clock=lambda: device.now[0]) as other:
        assert other.status().unread == ()  # in memory only
    device.disable()
    assert device.status().unread == ()


def test_counts_are_bounded_and_begin_anew_with_a_version():
    def campaign(name, identifier):
        return SimpleNamespace(header=SimpleNamespace(name=name), id=identifier)

    meanings, newest = Meanings(), str(MOST_CAMPAIGNS)
    for number in range(MOST_CAMPAIGNS + 3):
        meanings.add(campaign(str(number), b"1"), Check(("a",), (), 0))
    assert len(meanings.of(map(str, range(1000)))) == MOST_CAMPAIGNS
    meanings.add(campaign(newest, b"1"), Check(("a",), ("b",), 0))
    assert meanings.of([newest])[0][1:] == (2, {"a": 2}, {"b": 1})
    meanings.add(campaign(newest, b"2"), Check((), (), 0))
    assert meanings.of([newest])[0][1:] == (1, {}, {})


@pytest.mark.parametrize(
    ("record", "label", "meant"),
    [
        ({"status": 1, "label": "p"}, FROM_RECORD, "p"),
        ({"status": 1, "label": "p"}, None, None),
        ({"status": 1, "label": "p"}, "e", "e"),
        ({"status": 1}, FROM_RECORD, None),
    ],
)
def test_a_label_that_is_not_given_is_the_records_own(device, monkeypatch, record, label, meant):
    """The device and the command line agree."""
    seen = []
    monkeypatch.setattr("edge_sdk.answering.answer.answer", lambda *answered: seen.append(answered[2]) or [bytes(18)])
    campaign = device.enrol(device.publisher.campaign())
    given = {} if label is FROM_RECORD else {"label": label}
    device.report(campaign.id, record, **given)
    assert seen == [SCHEMA.label.code(meant)]
    assert campaign.check(record, **given).missing.count("label") == (meant is None)


def test_the_command_line_checks_and_reports_nothing(tmp_path):
    state = enrolled(tmp_path, Publisher(schema=SCHEMA, now=1))
    record = json.dumps({"status": SECRET, "age": "31", "label": SECRET, SECRET: 1})
    report = ("report", "--campaign", "mushrooms")
    status, out, err = edge("--state", state, *report, "--check", "--json", text=record)
    assert (status, err) == (1, "record_doubtful: check: 1 missing, 2 unlisted\n")
    assert json.loads(out) == {
        "campaign": "mushrooms",
        "missing": ["cap"],
        "unlisted": ["label", "status"],
        "ignored": 1,
        "hints": [],
        "refusals": [{"step": "check", "reason": "record_doubtful", "detail": "1 missing, 2 unlisted", "status": 1}],
    }
    status, out, err = edge("--state", state, *report, "--check", "--label", "e", text=record)
    assert (status, err) == (1, "record_doubtful: check: 1 missing, 1 unlisted\n")
    assert [line.split(maxsplit=1) for line in out.splitlines()] == [
        ["campaign", "'mushrooms'"],
        ["missing", "'cap'"],
        ["unlisted", "'status'"],
        ["ignored", "1"],
        ["hints", "none"],
    ]
    _, out, _ = edge("--state", state, *report, "--check", text='{"age": "3,5", "status": 1, "cap": "x", "label": "e"}')
    assert out.endswith("hints     'age': a decimal comma is not read; write a point\n")
    assert SECRET not in out
    assert edge("--state", state, "history", "--json")[1].startswith('{"answers": []')
    assert "unread" not in json.loads(edge("--state", state, "status", "--json")[1])


RECORDS = [
    {"status": 1, "cap": "x", "age": 5, "label": "e"},
    {"status": SECRET, "cap": SECRET, "age": SECRET, "label": SECRET},
    {},
    {"age": 7.25},
]


def lines_of(folder, records, caplog):
    """The log of a device with one record per day."""
    publisher, now = Publisher(schema=SCHEMA), [NOW]
    caplog.clear()
    with Device.provision(folder, trust=publisher.root(), clock=lambda: now[0], entropy=bytes) as device:
        campaign = device.enrol(publisher.campaign())
        for record in records:
            device.report(campaign.id, record)
            now[0] += DAY
        failure(device.enrol, b"no campaign")
        failure(device.report, campaign.id, SECRET)
        device.drain(folder / "o.hsr")
        device.ack(folder / "o.hsr")
        device.disable()
    return [(line.levelno, line.getMessage()) for line in caplog.records if line.name == "edge_sdk"]


def test_the_log_says_what_happens_and_nothing_that_depends_on_a_record(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    lines = [lines_of(tmp_path / str(number), [record] * 2, caplog) for number, record in enumerate(RECORDS)]
    assert all(each == lines[0] for each in lines)
    assert [message.split(":")[0] for _, message in lines[0]] == [
        *("enrol", "report", "report", "enrol refused", "report refused", "drain", "ack", "disable")
    ]
    assert lines[0][1][1] == "report: answered mushrooms version 1"
    assert SECRET not in str(lines)


def test_a_log_that_fails_changes_nothing(device):
    class Broken(logging.Filter):
        def filter(self, _record):
            raise RuntimeError(SECRET)

    logger, broken = logging.getLogger("edge_sdk"), Broken()
    logger.addFilter(broken)
    logger.setLevel(logging.DEBUG)
    try:
        campaign = device.enrol(device.publisher.campaign())
        assert device.report(campaign.id, {})
    finally:
        logger.removeFilter(broken)
        logger.setLevel(logging.NOTSET)


def test_a_complex_number_is_no_number_and_nothing_is_said():
    """A warning that is raised as an error would be caught like an error of a conversion."""
    numpy = pytest.importorskip("numpy")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for value in (3 + 0j, numpy.complex128(3), numpy.complex64(3), numpy.clongdouble(3)):
            assert (as_number(value), as_text(value)) == (None, None)
    assert said == []


class Odd(str):
    """A text whose own methods fail."""

    __slots__ = ()

    def __len__(self):
        raise RuntimeError

    def __str__(self):
        raise RuntimeError


def test_a_text_of_a_type_of_its_own_is_read_and_named_like_any_text():
    record = {"status": Odd("-9"), "cap": Odd("x"), "age": Odd("3,5"), "label": Odd("e")}
    plain = {name: str.__str__(value) for name, value in record.items()}
    assert SCHEMA.check(record) == SCHEMA.check(plain)
    assert SCHEMA.unread(record) == SCHEMA.unread(plain)
