"""Every bad input ends in one line with its reason, a status of 1 or 2, and no output file."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import REFUSED, invoke, mushrooms, run

PILOT = "class,odor,width\n" + "".join(f"{'ep'[i % 2]},{'anf'[i % 3]},{i / 7:.3f}\n" for i in range(60))
SCHEMA = mushrooms(bins=4)
GOOD = {"--epsilon": "1", "--mechanism": "direct"}


def refused(result, reason, output):
    """One line on standard error, nothing on standard output, nothing written."""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.output
    assert lines[0].startswith(f"{reason}: ")
    assert result.exit_code in ((2,) if reason == "usage" else REFUSED)
    assert result.stdout == ""
    assert not output.exists()
    assert not list(output.parent.glob(".*.tmp"))
    return lines[0]


@pytest.fixture
def work(tmp_path) -> Path:
    assert invoke("init", tmp_path / "work", "--no-passphrase").exit_code == 0
    (tmp_path / "s.toml").write_text(SCHEMA)
    return tmp_path


def campaign(work, **changes):
    options = {**GOOD, **{f"--{name.replace('_', '-')}": value for name, value in changes.items()}}
    pairs = [part for pair in options.items() for part in pair]
    return invoke("campaign", work / "s.toml", "--workspace", work / "work", "-o", work / "c.hsc", *pairs)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mechanism": "laplce"}, "mechanism_unknown"),
        ({"mechanism": ""}, "mechanism_unknown"),
        ({"epsilon": "nan"}, "epsilon_invalid"),
        ({"epsilon": "inf"}, "epsilon_invalid"),
        ({"epsilon": "-inf"}, "epsilon_invalid"),
        ({"epsilon": "-1"}, "epsilon_invalid"),
        ({"epsilon": "0"}, "epsilon_invalid"),
        ({"epsilon": ""}, "epsilon_invalid"),
        ({"epsilon": "one"}, "epsilon_invalid"),
        ({"epsilon": "1,5"}, "epsilon_invalid"),
        ({"epsilon": "0.0000001"}, "epsilon_invalid"),
        ({"epsilon": "0.0001"}, "epsilon_invalid"),
        ({"epsilon": "16.000001"}, "epsilon_invalid"),
        ({"epsilon": "48.1", "answers": "all"}, "epsilon_invalid"),
        ({"epsilon": "0.002", "answers": "3"}, "epsilon_invalid"),
        ({"answers": "0"}, "answers_invalid"),
        ({"answers": "4"}, "answers_invalid"),
        ({"answers": "-1"}, "answers_invalid"),
        ({"answers": "some"}, "answers_invalid"),
        ({"period": "0"}, "period_invalid"),
        ({"period": "1y"}, "period_invalid"),
        ({"period": ""}, "period_invalid"),
        ({"period": "99999999d"}, "terms_invalid"),
        ({"days": "0"}, "usage"),
        ({"min_batch_size": "0"}, "usage"),
        ({"postprocess": "magic"}, "postprocess_unknown"),
        ({"purpose": "two\nlines"}, "invalid_campaign"),
        ({"contact": ""}, "invalid_campaign"),
        ({"name": "two\nlines"}, "malformed"),
        ({"name": ""}, "malformed"),
    ],
)
def test_a_campaign_that_asks_for_nonsense(work, changes, reason):
    before = (work / "work" / "history.json").read_bytes()
    result = campaign(work, **changes)
    refused(result, reason, work / "c.hsc")
    assert (work / "work" / "history.json").read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('name = "odor"', 'name = "class"', "label_is_feature"),
        ('values = ["a", "n", "f"]', 'values = ["a"]\nmissing = "a"', "schema_invalid"),
        ('values = ["a", "n", "f"]', 'values = ["a", "a"]', "schema_invalid"),
        ('values = ["a", "n", "f"]', "values = [1.5, 2.5]", "schema_invalid"),
        ('values = ["a", "n", "f"]', 'values = ["a", "n"]\nmissing = "x"', "schema_invalid"),
        ('values = ["a", "n", "f"]', 'values = ["a", "n"]\nunlisted = "ignore"', "schema_invalid"),
        ('values = ["a", "n", "f"]', 'valeus = ["a", "n"]', "schema_invalid"),
        ('classes = ["e", "p"]', 'classes = ["e"]', "schema_invalid"),
        ("bins = 4", "bins = 1", "schema_invalid"),
        ("bins = 4", "bins = 0", "schema_invalid"),
        ("bins = 4", "bins = -3", "schema_invalid"),
        ("bins = 4", "bins = 2.5", "schema_invalid"),
        ("bins = 4", "bins = true", "schema_invalid"),
        ("bins = 4", "edges = []", "schema_invalid"),
        ("bins = 4", "edges = [5, 2]", "schema_invalid"),
        ("bins = 4", "edges = [5, nan]", "schema_invalid"),
        ("bins = 4", "bins = 4\nedges = [5]", "schema_invalid"),
        ("bins = 4", "bins = 4\nsubstitute = 11", "schema_invalid"),
        ("bins = 4", "", "schema_invalid"),
        ("low = 0", "low = 10", "schema_invalid"),
        ("low = 0", "low = nan", "schema_invalid"),
        ("low = 0", "low = -inf", "schema_invalid"),
        ("low = 0", 'low = "zero"', "schema_invalid"),
        ("low = 0", "", "schema_invalid"),
        ("[label]", "[lable]", "schema_invalid"),
        ('name = "mushrooms"', "name = mushrooms", "schema_invalid"),
        ('name = "mushrooms"', "name = " + "9" * 5000, "schema_invalid"),
        ('name = "mushrooms"', 'name = ""', "schema_invalid"),
    ],
)
def test_a_schema_that_does_not_fit_together(work, old, new, reason):
    assert old in SCHEMA
    (work / "s.toml").write_text(SCHEMA.replace(old, new, 1))
    refused(campaign(work), reason, work / "c.hsc")


def test_a_schema_file_that_is_not_text(work):
    (work / "s.toml").write_bytes(b"\xff\xfe")
    refused(campaign(work), "not_utf8", work / "c.hsc")
    (work / "s.toml").unlink()
    refused(campaign(work), "file_not_found", work / "c.hsc")
    (work / "s.toml").mkdir()
    refused(campaign(work), "unreadable", work / "c.hsc")


def draft(tmp_path, content, *options, label="class", name="pilot.csv"):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return invoke("schema", tmp_path / name, "--label", label, "-o", tmp_path / "s.toml", *options)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "empty_file"),
        ("\n\n", "empty_file"),
        ("class,odor\n", "empty_file"),
        ("class,odor\ne,SECRET\np,SECRET\n", "constant_column"),
        ("class,odor\ne,\np,?\n", "constant_column"),
        ("class,odor\nSECRET,a\nSECRET,b\n", "one_class"),
        ("class,odor\nSECRET,a\n?,b\n", "one_class"),
        ("odor,width\nSECRET,1\n", "label_missing"),
        ("class,class\nSECRET,a\n", "duplicate_column"),
        ("class,odor\ne,SECRET\np\n", "csv_invalid"),
        ("class,odor\ne,SECRET,b\np,b\n", "csv_invalid"),
        ('class,odor\ne,"SECRET\np,b\n', "csv_invalid"),
        ("class,\ne,SECRET\np,b\n", "csv_invalid"),
        (b"class,odor\ne,SECRET\xe9\np,b\n", "not_utf8"),
        (b"\xff\xfec\0l\0", "not_utf8"),
        ("class\ne\np\n", "no_features"),
        ("class,id\n" + "".join(f"{'ep'[i % 2]},SECRET{i}\n" for i in range(300)), "too_many_values"),
        ("id,class\n" + "".join(f"{i % 3},SECRET{i}\n" for i in range(300)), "too_many_classes"),
        ("class,odor\ne,SECRET\x07\np,b\n", "schema_invalid"),
    ],
)
def test_a_pilot_that_nothing_can_be_learnt_from(tmp_path, content, reason):
    line = refused(draft(tmp_path, content), reason, tmp_path / "s.toml")
    assert "SECRET" not in line


def test_what_to_do_about_a_constant_column_is_said_and_helps(tmp_path):
    content = "class,odor,site\ne,a,x\np,b,x\n"
    assert "--drop site" in refused(draft(tmp_path, content), "constant_column", tmp_path / "s.toml")
    assert draft(tmp_path, content, "--drop", "site").exit_code == 0


def test_all_columns_that_can_be_no_features_are_named_at_once_and_the_advice_helps(tmp_path):
    rows = "".join(f"{'ep'[i % 2]},{'nf'[i % 2]},x,SECRET{i},{'SECRET' if i == 4 else i % 37},1\n" for i in range(300))
    content = f"y,odor,site,my name,age,a\n{rows}"
    line = refused(draft(tmp_path, content, label="y"), "constant_column", tmp_path / "s.toml")
    assert line == (
        "constant_column: column 'site' is the same in every record; column 'my name' has 300 different texts; "
        "column 'age', line 6: not a number, though most are; column 'a' is the same in every record; "
        "if a cell means missing, say hearsay schema --missing TOKEN, else "
        "correct it, or leave them out: --drop site --drop 'my name' --drop age --drop a"
    )
    options = shlex.split(line.split("leave them out: ")[1])
    assert draft(tmp_path, content, *options, label="y").exit_code == 0


def test_of_very_many_columns_the_first_are_named(tmp_path):
    names = ",".join(f"c{i}" for i in range(250))
    content = f"class,odor,{names}\n" + "".join(f"{'ep'[i]},{'nf'[i]}{',x' * 250}\n" for i in range(2))
    line = refused(draft(tmp_path, content), "constant_column", tmp_path / "s.toml")
    assert line.count("--drop") == 100
    assert "; and 150 more columns; leave them out: " in line


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_table_with_other_separators_is_told_what_to_do(tmp_path, separator):
    content = "class,width\ne,3.5\np,4.5\n".replace(",", separator).replace(".", ",")
    line = refused(draft(tmp_path, content), "csv_invalid", tmp_path / "s.toml")
    assert line.endswith("convert it: hearsay table FILE -o NEW.csv --separator SIGN --decimal SIGN")


def test_decimal_commas_are_named_whether_a_column_is_refused_or_not(tmp_path):
    commas = "write 3.5 and not 3,5; convert it: hearsay table FILE -o NEW.csv --decimal ,); "
    rows = "".join(f'{"ep"[i % 2]},"{i},5"\n' for i in range(300))
    line = refused(draft(tmp_path, f"class,width\n{rows}"), "too_many_values", tmp_path / "s.toml")
    assert f"300 different texts, numbers with commas ({commas}" in line
    rows = "".join(f"{'ep'[i % 2]},{f'''{chr(34)}{i},5{chr(34)}''' if i % 9 == 0 else i}\n" for i in range(30))
    line = refused(draft(tmp_path, f"class,width\n{rows}"), "value_invalid", tmp_path / "s.toml")
    assert f"line 2: not a number, though most are, but one with a comma ({commas}" in line
    rows = "".join(f'{"ep"[i % 2]},"{i % 20},5"\n' for i in range(40))
    found = draft(tmp_path, f"class,width\n{rows}")
    assert "warning: column 'width': its numbers have commas" in found.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--bins", "1"], "bins_invalid"),
        (["--bins", "x"], "usage"),
        (["--drop", "absent"], "column_unknown"),
        (["--drop", "class"], "label_missing"),
        (["--name", "two\nlines"], "schema_invalid"),
        (["--name", ""], "schema_invalid"),
    ],
)
def test_options_of_a_draft(tmp_path, options, reason):
    refused(draft(tmp_path, PILOT, *options), reason, tmp_path / "s.toml")


def test_files_that_are_not_there_or_not_gzip(tmp_path):
    refused(draft(tmp_path, "not compressed", name="pilot.csv.gz"), "unreadable", tmp_path / "s.toml")
    result = invoke("schema", tmp_path / "absent.csv", "--label", "class", "-o", tmp_path / "s.toml")
    refused(result, "file_not_found", tmp_path / "s.toml")
    refused(
        invoke("schema", tmp_path, "--label", "class", "-o", tmp_path / "s.toml"), "unreadable", tmp_path / "s.toml"
    )


def test_a_folder_is_named_even_if_it_has_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("schema", ".", "--label", "class", "-o", "s.toml")
    assert result.stderr == "unreadable: '.' is a folder; a CSV file is needed\n"
    result = invoke("campaign", ".", "--workspace", "w", "--epsilon", "1", "--mechanism", "direct", "-o", "c.hsc")
    assert result.stderr == "unreadable: '.' is a folder; a file is needed\n"
    assert invoke("show", ".").stderr == "unreadable: '.' is a folder; a file is needed\n"


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-Infinity", "1e400"])
def test_a_number_that_is_not_finite_is_refused_by_its_line(tmp_path, cell):
    rows = [f"{'ep'[i % 2]},{i}.5" for i in range(20)]
    rows[3] = f"e,{cell}"
    line = refused(draft(tmp_path, "class,area\n" + "\n".join(rows)), "value_invalid", tmp_path / "s.toml")
    assert line.startswith("value_invalid: column 'area', line 5: not a finite number; ")
    assert cell not in line.removeprefix("value_invalid: ").replace("finite", "")
    ending = ("--missing", cell)
    assert draft(tmp_path, "class,area\n" + "\n".join(rows), *ending).exit_code == 0


def test_a_number_too_large_or_long_for_a_bound_is_refused_too(tmp_path):
    for cell in ("1e301", "0." + "1" * 60):
        rows = "".join(f"{'ep'[i % 2]},{i}.5\n" for i in range(20))
        line = refused(draft(tmp_path, f"class,area\n{rows}e,{cell}\n"), "value_invalid", tmp_path / "s.toml")
        assert "column 'area', line 22: a number too large or too long" in line
        assert cell not in line


def test_a_few_words_among_numbers_are_refused_by_the_first_line(tmp_path):
    rows = "".join(f"{'ep'[i % 2]},{'SECRET' if i in (7, 9) else i}\n" for i in range(30))
    line = refused(draft(tmp_path, f"class,age\n{rows}"), "value_invalid", tmp_path / "s.toml")
    assert line.startswith("value_invalid: column 'age', line 9: not a number, though most are; ")
    assert "--missing TOKEN" in line
    assert "SECRET" not in line
    assert draft(tmp_path, f"class,age\n{rows}", "--missing", "SECRET").exit_code == 0


@pytest.mark.parametrize("cells", [["2", "4", "more"], ["1", "x", "inf"], ["NaN", "Inf", "Ann"], ["0.5", "x", "y"]])
def test_categories_that_look_a_little_like_numbers_stay_categories(tmp_path, cells):
    rows = "".join(f"{'ep'[i % 2]},{cells[i % 3]}\n" for i in range(30))
    assert draft(tmp_path, f"class,persons\n{rows}").exit_code == 0
    assert 'kind = "categorical"' in (tmp_path / "s.toml").read_text()


@pytest.mark.parametrize(
    ("labels", "note"),
    [("eppe", ""), ("ep?e", "note: 1 record has no label\n"), ("ep??", "note: 2 records have no label\n")],
)
def test_records_without_a_label_are_counted(tmp_path, labels, note):
    rows = "".join(f"{label},{'ab'[i % 2]}\n" for i, label in enumerate(labels))
    result = draft(tmp_path, f"class,odor\n{rows}")
    assert (result.exit_code, result.stderr) == (0, note)


def test_an_existing_output_is_kept_unless_forced(tmp_path):
    (tmp_path / "s.toml").write_text("mine")
    result = draft(tmp_path, PILOT)
    assert result.stderr.startswith("output_exists: ")
    assert (tmp_path / "s.toml").read_text() == "mine"
    assert draft(tmp_path, PILOT, "--force").exit_code == 0
    assert (tmp_path / "s.toml").read_text() != "mine"


def test_an_output_in_no_folder(work):
    result = invoke(
        "campaign", work / "s.toml", "--workspace", work / "work", "--epsilon", "1", "--mechanism", "direct",
        "-o", work / "absent" / "c.hsc",
    )  # fmt: skip
    refused(result, "output_invalid", work / "c.hsc")
    assert not (work / "absent").exists()


def test_folders_that_are_no_workspace_and_no_store(tmp_path):
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "work").mkdir()
    refused(campaign(tmp_path), "not_a_workspace", tmp_path / "c.hsc")
    refused(invoke("estimate", "--store", tmp_path / "work"), "not_a_store", tmp_path / "c.hsc")
    assert not list((tmp_path / "work").iterdir())
    (tmp_path / "x").write_text("not ours")
    for command in (["show", tmp_path / "x"], ["verify", tmp_path / "x", "--trust", tmp_path / "x"]):
        refused(invoke(*command), "unknown_file", tmp_path / "c.hsc")


def test_wrong_usage_is_one_line_too(tmp_path):
    for arguments in (["nonsense"], ["campaign"], ["init"], ["show", "--no-such"], ["estimate", "--store"]):
        refused(invoke(*arguments), "usage", tmp_path / "c.hsc")


def test_the_same_through_the_console_script(tmp_path):
    """A real process: no traceback from an interpreter that is ending either."""
    (tmp_path / "pilot.csv").write_bytes(b"class,odor\ne,SECRET\xe9\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("hearsay"), "schema", "pilot.csv", "--label", "class", "-o", "s.toml"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("not_utf8: ")
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pilot.csv"]


def test_an_output_named_like_standard_output_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_text("y,x\na,1.5\nb,2.5\n")
    for force in ([], ["--force"]):
        failed = run("schema", "p.csv", "--label", "y", "-o", "-", *force, status=1)
        assert failed.stderr.startswith("output_invalid")
    assert run("merge", "p.csv", "-o", "-", status=1).stderr.startswith("output_invalid")
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def test_an_empty_name_is_not_the_default_name(work):
    """Before, ``--name ''`` signed the next version of another document: the one of the default name."""
    (work / "names.txt").write_text("gate 7\n")
    refused(invoke("init", work / "second", "--no-passphrase", "--name", ""), "name_invalid", work / "second")
    new = ("fleet", "new", work / "names.txt", "--no-passphrase", "-o", work / "fleet")
    refused(invoke(*new, "--name", ""), "name_invalid", work / "fleet")


def test_a_refusal_says_what_is_wrong(work):
    """Before: "a mechanism of numbers is asked for a value", and that 1e9 is no positive number."""
    assert (
        campaign(work, mechanism="bits").stderr
        == "mechanism_unknown: bits perturbs numbers: it needs --family gaussian\n"
    )
    assert "ε is a positive number below 10⁶ " in campaign(work, epsilon="1e9").stderr
