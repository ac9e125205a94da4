"""Every bad input ends in one line with its reason, a status of 1 or 2, and no output file."""

import shlex
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
        ({"epsilon": "nan"}, "epsilon_invalid"),
        ({"epsilon": "1,5"}, "epsilon_invalid"),
        ({"epsilon": "16.000001"}, "epsilon_invalid"),
        ({"epsilon": "48.1", "answers": "all"}, "epsilon_invalid"),
        ({"epsilon": "0.002", "answers": "3"}, "epsilon_invalid"),
        ({"answers": "0"}, "answers_invalid"),
        ({"answers": "4"}, "answers_invalid"),
        ({"answers": "some"}, "answers_invalid"),
        ({"period": "0"}, "period_invalid"),
        ({"period": "1y"}, "period_invalid"),
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
    ("old", "new"),
    [
        ('values = ["a", "n", "f"]', 'values = ["a"]\nmissing = "a"'),
        ('values = ["a", "n", "f"]', 'values = ["a", "a"]'),
        ('values = ["a", "n", "f"]', "values = [1.5, 2.5]"),
        ('values = ["a", "n", "f"]', 'values = ["a", "n"]\nmissing = "x"'),
        ('values = ["a", "n", "f"]', 'values = ["a", "n"]\nunlisted = "ignore"'),
        ('values = ["a", "n", "f"]', 'valeus = ["a", "n"]'),
        ('classes = ["e", "p"]', 'classes = ["e"]'),
        ("bins = 4", "bins = 1"),
        ("bins = 4", "bins = 0"),
        ("bins = 4", "bins = 2.5"),
        ("bins = 4", "bins = true"),
        ("bins = 4", "edges = []"),
        ("bins = 4", "edges = [5, 2]"),
        ("bins = 4", "edges = [5, nan]"),
        ("bins = 4", "bins = 4\nedges = [5]"),
        ("bins = 4", "bins = 4\nsubstitute = 11"),
        ("bins = 4", ""),
        ("low = 0", "low = 10"),
        ("low = 0", "low = nan"),
        ("low = 0", "low = -inf"),
        ("low = 0", 'low = "zero"'),
        ("low = 0", ""),
        ("[label]", "[lable]"),
        ('name = "mushrooms"', "name = mushrooms"),
        ('name = "mushrooms"', "name = " + "9" * 5000),
        ('name = "mushrooms"', 'name = ""'),
    ],
)
def test_a_schema_that_does_not_fit_together(work, old, new):
    assert old in SCHEMA
    (work / "s.toml").write_text(SCHEMA.replace(old, new, 1))
    refused(campaign(work), "schema_invalid", work / "c.hsc")


def test_a_schema_file_that_is_not_text_and_a_label_that_is_a_feature(work):
    (work / "s.toml").write_text(SCHEMA.replace('name = "odor"', 'name = "class"'))
    refused(campaign(work), "label_is_feature", work / "c.hsc")
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


def rows_of(name, *cells):
    """A pilot with two classes in turns and one feature, whose cells are these and then numbers."""
    return f"class,{name}\n" + "".join(f"{'ep'[at % 2]},{cells[at] if at < len(cells) else at}\n" for at in range(20))


MANY = "y,odor,site,my name,age,a\n" + "".join(
    f"{'ep'[i % 2]},{'nf'[i % 2]},x,SECRET{i},{'SECRET' if i == 4 else i % 37},1\n" for i in range(300)
)
DROP = "--drop site --drop 'my name' --drop age --drop a"
COMMAS = "write 3.5 and not 3,5; convert it: hearsay table FILE -o NEW.csv --decimal ,); "
CONVERT = "convert it: hearsay table FILE -o NEW.csv --separator SIGN --decimal SIGN"


@pytest.mark.parametrize(
    ("content", "reason", "said", "advice"),
    [
        ("class,odor,site\ne,a,x\np,b,x\n", "constant_column", "--drop site", "--drop site"),
        (MANY, "constant_column", "column 'site' is the same in every record; column 'my name' has 300 different "
         "texts; column 'age', line 6: not a number, though most are; column 'a' is the same in every record; "
         "if a cell means missing, say hearsay schema --missing TOKEN, else correct it, or leave them out: " + DROP,
         DROP),
        *((rows_of("area", "1.5", "2.5", "3.5", cell), "value_invalid",
           "column 'area', line 5: not a finite number; ", f"--missing {cell}")
          for cell in ("nan", "NaN", "inf", "-Infinity", "1e400")),
        *((rows_of("area", cell), "value_invalid", "column 'area', line 2: a number too large or too long", "")
          for cell in ("1e301", "0." + "1" * 60)),
        (rows_of("age", "1", "2", "SECRET", "SECRET"), "value_invalid",
         "column 'age', line 4: not a number, though most are; ", "--missing SECRET"),
        (rows_of("age", "1", "2", "SECRET"), "value_invalid", "--missing TOKEN", ""),
        *(("class,width\ne,3.5\np,4.5\n".replace(",", sign).replace(".", ","), "csv_invalid", CONVERT, "")
          for sign in ";\t"),
        (rows_of("width", *(f'"{at},5"' for at in range(20))) + "".join(f'e,"{i},5"\n' for i in range(280)),
         "too_many_values", f"280 different texts, numbers with commas ({COMMAS}", ""),
        (rows_of("width", '"1,5"'), "value_invalid",
         f"line 2: not a number, though most are, but one with a comma ({COMMAS}", ""),
        ("class,odor," + ",".join(f"c{i}" for i in range(250)) + "\n" + "".join(
            f"{'ep'[i]},{'nf'[i]}{',x' * 250}\n" for i in range(2)),
         "constant_column", "; and 150 more columns; leave them out: " + " ".join(f"--drop c{i}" for i in range(100)),
         ""),
    ],
)  # fmt: skip
def test_a_pilot_that_is_refused_is_told_what_to_do_and_the_advice_helps(tmp_path, content, reason, said, advice):
    label = content.partition(",")[0] if ";" not in content and "\t" not in content else "class"
    line = refused(draft(tmp_path, content, label=label), reason, tmp_path / "s.toml")
    assert said in line
    assert "SECRET" not in line.replace("--missing SECRET", "")
    if advice:
        assert draft(tmp_path, content, *shlex.split(advice), label=label).exit_code == 0


def test_numbers_with_commas_that_are_taken_for_texts_are_warned_of(tmp_path):
    found = draft(tmp_path, "class,width\n" + "".join(f'{"ep"[i % 2]},"{i % 20},5"\n' for i in range(40)))
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


def test_files_that_are_not_there_or_not_gzip_and_a_folder_without_a_name(tmp_path, monkeypatch):
    refused(draft(tmp_path, "not compressed", name="pilot.csv.gz"), "unreadable", tmp_path / "s.toml")
    monkeypatch.chdir(tmp_path)
    refused(invoke("schema", "absent.csv", "--label", "class", "-o", "s.toml"), "file_not_found", tmp_path / "s.toml")
    result = invoke("schema", ".", "--label", "class", "-o", "s.toml")
    assert result.stderr == "unreadable: '.' is a folder; a CSV file is needed\n"
    result = invoke("campaign", ".", "--workspace", "w", "--epsilon", "1", "--mechanism", "direct", "-o", "c.hsc")
    assert result.stderr == invoke("show", ".").stderr == "unreadable: '.' is a folder; a file is needed\n"


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


def test_folders_and_files_of_another_kind(tmp_path):
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "work").mkdir()
    refused(campaign(tmp_path), "not_a_workspace", tmp_path / "c.hsc")
    refused(invoke("estimate", "--store", tmp_path / "work"), "not_a_store", tmp_path / "c.hsc")
    assert not list((tmp_path / "work").iterdir())
    (tmp_path / "x").write_text("not ours")
    for command in (["show", tmp_path / "x"], ["verify", tmp_path / "x", "--trust", tmp_path / "x"]):
        refused(invoke(*command), "unknown_file", tmp_path / "c.hsc")
    for arguments in (["nonsense"], ["campaign"], ["init"], ["show", "--no-such"], ["estimate", "--store"]):
        refused(invoke(*arguments), "usage", tmp_path / "c.hsc")


def test_an_output_named_like_standard_output_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_text("y,x\na,1.5\nb,2.5\n")
    for force in ([], ["--force"]):
        failed = run("schema", "p.csv", "--label", "y", "-o", "-", *force, status=1)
        assert failed.stderr.startswith("output_invalid")
    assert run("merge", "p.csv", "-o", "-", status=1).stderr.startswith("output_invalid")
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def test_an_empty_name_is_not_the_default_name_and_a_refusal_says_what_is_wrong(work):
    """Before, ``--name ''`` signed the next version of another document: the one of the default name."""
    (work / "names.txt").write_text("gate 7\n")
    refused(invoke("init", work / "second", "--no-passphrase", "--name", ""), "name_invalid", work / "second")
    new = ("fleet", "new", work / "names.txt", "--no-passphrase", "-o", work / "fleet")
    refused(invoke(*new, "--name", ""), "name_invalid", work / "fleet")
    # Before: "a mechanism of numbers is asked for a value", and that 1e9 is no positive number.
    assert (
        campaign(work, mechanism="bits").stderr
        == "mechanism_unknown: bits perturbs numbers: it needs --family gaussian\n"
    )
    assert "ε is a positive number below 10⁶ " in campaign(work, epsilon="1e9").stderr
