"""``hearsay merge`` on the command line."""

import gzip
import json
from functools import partial

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support import commands
from support.reports import CAMPAIGN, RAW, batch, report

from aggregator.cli.app import hearsay

run = partial(commands.run, "merge")


@pytest.fixture
def files(tmp_path):
    records = [report(CAMPAIGN, device) for device in range(20)]
    (tmp_path / "a.hsr").write_bytes(batch(CAMPAIGN, records[:15]))
    (tmp_path / "b.hsr").write_bytes(batch(CAMPAIGN, records[10:])[:-1])
    (tmp_path / "c.hsc").write_bytes(RAW)
    return [tmp_path / "a.hsr", tmp_path / "b.hsr"]


def test_what_was_done_is_said(files, tmp_path):
    result = run(*files, "-o", tmp_path / "out.hsr")
    assert dict(line.rsplit(maxsplit=1) for line in result.stdout.splitlines()) == {
        "files": "2", "campaigns": "1", "reports written": "20", "of them from damaged files": "5",
        "identical ones left out": "5", "left out: truncated": "1",
    }  # fmt: skip
    found = json.loads(run(*files, "-o", tmp_path / "o", "--json", "--campaign", tmp_path / "c.hsc").stdout)
    assert found == {
        "files": 2, "campaigns": 1, "proven": 15, "unproven": 5, "repeated": 5, "superseded": 0,
        "rejected": {"truncated": 1}, "output": str(tmp_path / "o"),
    }  # fmt: skip


def test_the_same_with_little_memory(files, tmp_path):
    run(*files, "-o", tmp_path / "one")
    run(*reversed(files), "-o", tmp_path / "two", "--memory", "1MiB")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("size", ["1", "1023KiB", "1MB", "-1GiB", "GiB", "1.5GiB", ""])
def test_a_size_that_is_none_is_wrong_usage(files, tmp_path, size):
    assert run(*files, "-o", tmp_path / "o", "--memory", size, status=2).stderr.startswith("usage: ")


def test_refusals_are_one_line(files, tmp_path):
    for output, arguments, reason in (
        (tmp_path / "a.hsr", (files[1],), "output_exists"),
        (tmp_path / "no" / "o", (files[0],), "output_invalid"),
        (tmp_path / "o", (tmp_path / "absent",), "file_not_found"),
        (tmp_path / "o", (tmp_path / "c.hsc",), "no_reports"),
        (tmp_path / "o", (files[0], "--campaign", files[0]), "malformed"),
    ):
        result = run(*arguments, "-o", output, status=1)
        assert result.stderr.startswith(f"{reason}: ")
        assert len(result.stderr.splitlines()) == 1
        assert not (tmp_path / "o").exists()


def test_compressed_files_give_what_they_hold_whatever_their_names(files, tmp_path):
    """Each of them, and what an ingest would read; one of which nothing can be had ends the run."""
    raws = [file.read_bytes() for file in files]
    run(*files, "-o", tmp_path / "plain")
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(raws[1])
    packed = tmp_path / "in" / "deep"
    packed.mkdir(parents=True)
    (packed.parent / "a.hsr.gz").write_bytes(gzip.compress(raws[0]))
    (packed / "b.hsr").write_bytes(sink.getvalue().to_pybytes())
    (packed / "empty.hsr").write_bytes(b"")
    names = [packed.parent / "a.hsr.gz", packed / "b.hsr"]
    for number, given in enumerate((names, [packed.parent, "--recursive"], [packed.parent / "**" / "*hsr*"])):
        run(*given, "-o", tmp_path / str(number))
        assert (tmp_path / str(number)).read_bytes() == (tmp_path / "plain").read_bytes()
    listed = "".join(f"{name}\n" for name in names)
    result = CliRunner().invoke(hearsay, ["merge", "-", "-o", str(tmp_path / "listed")], input=listed)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "listed").read_bytes() == (tmp_path / "plain").read_bytes()
    (packed / "cut.hsr.gz").write_bytes(gzip.compress(raws[0])[:10])
    (packed / "bomb.hsr.gz").write_bytes(gzip.compress(bytes(20 << 20)))
    for name, reason in (("cut", "compression_damaged"), ("bomb", "expands_too_far")):
        refused = run(files[0], packed / f"{name}.hsr.gz", "-o", tmp_path / "no", status=1)
        assert refused.stderr.startswith(f"{reason}: ")
        assert not (tmp_path / "no").exists()
