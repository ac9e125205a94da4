"""A messy inbox: folders, patterns, compressed files, bombs, and what an ingest or a merge makes of it."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
import zlib
from functools import partial

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from support.commands import invoke, run, told
from support.examples import examples
from support.fleets import honest, sealed
from support.mechanisms import inputs_of, sizes
from support.publisher import NOW, Publisher
from support.reports import digest, opened

from aggregator.cli.app import hearsay
from aggregator.reports.intake import sources as compressed
from aggregator.reports.intake.sources import LEAST_BYTES, MOST_GROWTH, Unreadable, decompress, read_source
from aggregator.reports.storage import quarantine
from protocol import mechanisms
from protocol.batches.batch import Header, write_batch
from protocol.batches.report import encode_answer, encode_report, layout_for

DAY = 86_400
RAW = Publisher(now=NOW - 40 * 365 * DAY).campaign(lifetime=60 * 365 * DAY)
CAMPAIGN = opened(RAW)
PERIOD = (NOW - 39 * 365 * DAY) // DAY


def batch(number, count=20):
    return sealed(CAMPAIGN, honest(CAMPAIGN, count, PERIOD, number))


def zstd(raw):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(raw)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def inbox(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.hsc").write_bytes(RAW)
    deep = tmp_path / "in" / "deep"
    deep.mkdir(parents=True)
    for number, place in enumerate(["in/a.hsr", "in/b.hsr", "in/deep/c.hsr"]):
        (tmp_path / place).write_bytes(batch(number))
    (tmp_path / "in" / ".half.hsr").write_bytes(b"an upload under way")
    (tmp_path / "in" / "notes.txt").write_text("no reports", "utf-8")
    return tmp_path


def ingest(*arguments, status=0, **options):
    result = CliRunner().invoke(hearsay, ["ingest", "c.hsc", *arguments, "--store", "s", "--json"], **options)
    assert result.exit_code == status, result.output
    said = json.loads(result.stdout) if result.stdout else None
    return said, result.stderr


@pytest.mark.parametrize(
    ("arguments", "files", "left"),
    [
        ("in", 2, 2),
        ("in --recursive", 3, 2),
        ("in/*.hsr", 2, 0),
        ("in/**/*.hsr", 3, 0),
        ("**/**/deep/*.hsr", 1, 0),
        ("in/?.hsr in/deep", 3, 0),
        ("in/[ab].hsr", 2, 0),
        ("in/* --recursive", 4, 0),
        ("**/*.hsr", 3, 0),
        ("in/**", 4, 0),
        ("in/**/deep/**/c.hsr", 1, 0),
    ],
)
def test_folders_and_patterns_name_the_files_in_them(inbox, arguments, files, left):
    said, notes = ingest(*arguments.split())
    assert (said["files"], said["accepted"]) == (files, 20 * min(files, 3))
    assert (f"left out {left} files in the folders: hidden, or no .hsr" in notes) == (left > 0)


@pytest.mark.parametrize("end", ["\n", "\0"])
def test_a_hundred_thousand_names_come_on_standard_input(inbox, end):
    """That many do not fit on a command line; here a few do, one of them with a star in it."""
    (inbox / "in" / "*.hsr").write_bytes(batch(9))
    names = ["in/a.hsr", "in/*.hsr", "in/deep/c.hsr"]
    said, _ = ingest("-", input=end.join([*names, ""]))
    assert (said["files"], said["accepted"], said["unreadable"]) == (3, 60, [])
    assert (
        "folders are given as arguments"
        in CliRunner().invoke(hearsay, [*["ingest", "c.hsc", "-", "--store", "s"]], input="in\n").stdout
    )


def test_links_to_folders_are_not_followed(inbox):
    (inbox / "in" / "deep" / "up").symlink_to("..")
    assert ingest("in", "--recursive")[0]["files"] == 3
    for number in range(20):  # followed, 20 links that lead back are 20 to the power of 40 paths
        (inbox / "in" / "deep" / f"again{number}").symlink_to(".")
    assert ingest("in/**/*.hsr")[0]["files"] == 3
    assert ingest("in/**")[0]["files"] == 4


def test_folders_that_were_not_looked_into_are_named_and_a_pattern_may_be_a_name(inbox):
    assert "left out 1 folder in the folders; --recursive reads what is in them" in ingest("in")[1]
    assert "--recursive reads" in ingest("in/*")[1]
    assert "--recursive" not in ingest("in", "--recursive")[1]
    (inbox / "in" / "[ab].hsr").write_bytes(batch(9))
    assert ingest("in/[ab].hsr")[0]["files"] == 1


def test_the_names_of_many_unread_files_are_cut_and_counted(inbox):
    for number in range(60):
        (inbox / "in" / f"{number:02d}{'x' * 200}.hsr").write_bytes(b"")
    said = invoke("ingest", "c.hsc", "in", "--store", "s")
    assert said.stdout.count("it holds nothing") == 40
    assert max(map(len, said.stdout.splitlines())) < 250
    assert "and 20 more that were not read; --json names all" in said.stderr


def test_compressed_files_are_read_as_what_they_hold(inbox):
    whole = batch(5, 300)
    (inbox / "in" / "d.hsr").write_bytes(whole)
    (inbox / "in" / "d.hsr.gz").write_bytes(gzip.compress(whole))
    (inbox / "in" / "d.hsr.zst").write_bytes(zstd(whole))
    (inbox / "in" / "e.hsr.gz").write_bytes(gzip.compress(batch(6)) + gzip.compress(batch(7)))
    (inbox / "in" / "f.hsr.gz").write_bytes(batch(8))  # a server sent it as it is
    (inbox / "in" / "g.hsr").write_bytes(gzip.compress(batch(9)))  # its name does not say it
    (inbox / "in" / "h.hsr").write_bytes(zstd(batch(10)))
    (inbox / "in" / "i.hsr.gz").write_bytes(zstd(batch(11)))
    said, _ = ingest("in")
    assert (said["files"], said["files_repeated"], said["unproven"]) == (10, 2, 0)
    assert said["accepted"] == 20 + 20 + 300 + 40 + 20 + 60


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_bomb_is_refused_and_fills_neither_memory_nor_disk(inbox, suffix):
    zeros = bytes(64 << 20)
    bomb = gzip.compress(zeros) if suffix == ".gz" else zstd(zeros)
    assert len(bomb) * MOST_GROWTH < len(zeros)
    del zeros
    place = inbox / "in" / f"bomb.hsr{suffix}"
    place.write_bytes(bomb)
    tracemalloc.start()
    assert read_source(str(place)) == Unreadable(str(place), "expands_too_far")
    assert tracemalloc.get_traced_memory()[1] < 40 << 20
    tracemalloc.stop()
    said, _ = ingest("in")
    assert (said["accepted"], said["unreadable"][0]["reason"]) == (40, "expands_too_far")


def test_a_small_file_holds_little_whatever_it_holds():
    """16 MiB of headers in 49 kB took nine seconds to read; a hundred files of 3 kB, half a minute."""
    content = batch(3, 0)[:44] * (LEAST_BYTES // 44 + 2)
    assert len(gzip.compress(content)) * MOST_GROWTH < LEAST_BYTES
    assert decompress(gzip.compress(content[:LEAST_BYTES]), "gzip", 1 << 24) == content[:LEAST_BYTES]
    with pytest.raises(OSError, match="too large"):
        decompress(gzip.compress(content[: LEAST_BYTES + 44]), "gzip", 1 << 24)


@pytest.mark.parametrize("name", mechanisms.names())
def test_honest_batches_of_every_mechanism_grow_far_less_than_is_allowed(name):
    made = mechanisms.from_epsilon(name, 4, sizes(name, 16)[-1])
    layout = layout_for([made])
    value = next(iter(inputs_of(made)))
    records = [
        encode_report(
            layout, digest("id", i)[:8], PERIOD, 0, encode_answer(made, made.perturb(value, digest(i)), layout)
        )
        for i in range(100)
    ]
    head = Header(bytes(32), layout.kind, layout.record_length)
    for each in (1, 100):
        raw = b"".join(write_batch(head, records[at : at + each]) for at in range(0, 100, each))
        assert len(raw) < MOST_GROWTH / 4 * min(len(gzip.compress(raw)), len(zstd(raw)))


@pytest.mark.parametrize("piece", ["a record and a byte", "a record of no question"])
def test_what_is_kept_of_a_file_is_bounded_by_what_was_sent(inbox, piece):
    """A hundred compressed files of 3 kB each filled 12 MB of the quarantine."""
    good = batch(3, 1)[44:-44]
    record = {"a record and a byte": good + b"\0", "a record of no question": good[:14] + b"\xff\xff\0\0"}[piece]
    content = batch(3, 0)[:44] + record * (LEAST_BYTES // len(record) - 3)
    packed = gzip.compress(content, 9)
    assert 10 * len(packed) < len(content)
    (inbox / "in" / "hostile.hsr.gz").write_bytes(packed)
    said, _ = ingest("in")
    assert sum(said["rejected"].values()) > 800
    kept = sum(path.stat().st_size for path in (inbox / "s" / "quarantine").iterdir())
    assert 100 < kept <= max(quarantine.FILE_BYTES, quarantine.MOST_GROWTH * len(packed))


_WHOLE = batch(12, 400)
_SPREAD = b"".join(bytes([each]) + bytes(each % 7) for each in batch(13, 3000))  # shrinks, so blocks are compressed
_TAIL = random.Random(7).randbytes(400)


_PACKED = {raw: gzip.compress(raw) for raw in (_WHOLE, _SPREAD)}


def in_order(raw, size):
    """What zlib itself gives of a cut gzip file."""
    return zlib.decompressobj(31).decompress(_PACKED[raw][:size])


@given(st.sampled_from([_WHOLE, _SPREAD]), st.integers(18, 1 << 20))
@examples(60)
@example(_WHOLE, len(_PACKED[_WHOLE]) - 12)
def test_of_every_cut_gzip_file_all_is_had_that_zlib_gives(raw, size):
    expected = in_order(raw, size)
    try:
        assert decompress(_PACKED[raw][:size], "gzip", 1 << 20) == expected
    except OSError:
        assert not expected


@given(st.sampled_from([_WHOLE, _SPREAD * 3]), st.integers(1, 1 << 20))
@examples(60)
def test_of_every_cut_zstd_file_the_whole_blocks_are_had(raw, size):
    """Blocks hold 128 KiB, but for the last; the frame's first bytes tell where they begin (RFC 8878, 3.1.1)."""
    cut = zstd(raw)[:size]
    flags = cut[4] if len(cut) > 4 else 0
    single, fields = flags >> 5 & 1, (0, 2, 4, 8)[flags >> 6] or (flags >> 5 & 1)
    place, least, last = 5 + (1 - single) + fields, 0, 0
    while place + 3 <= len(cut) and not last:
        head = int.from_bytes(cut[place : place + 3], "little")
        last, kind = head & 1, head >> 1 & 3
        place += 3 + (1 if kind == 1 else head >> 3)
        if place <= len(cut):
            least = len(raw) if last else least + (1 << 17)
    try:
        found = decompress(cut, "zstd", 1 << 24)
    except OSError:
        found = b""
    assert raw.startswith(found)
    assert len(found) >= least


@pytest.mark.parametrize("tail", [bytes(512), b"\0", b"garbage", _TAIL, b"\x1f\x8b\x08"])
@pytest.mark.parametrize(("codec", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
def test_what_stands_after_a_whole_compressed_file_takes_nothing_from_it(codec, pack, tail):
    assert decompress(pack(_WHOLE) + tail, codec, 1 << 20) == _WHOLE
    assert decompress(pack(_WHOLE) + pack(_SPREAD) + tail, codec, 1 << 20) == _WHOLE + _SPREAD


@pytest.mark.parametrize(("codec", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
def test_of_a_damaged_compressed_file_the_beginning_is_had_in_few_steps(codec, pack, monkeypatch):
    raw = random.Random(3).randbytes(3 << 20)
    packed = bytearray(pack(raw))
    packed[2 << 20 : (2 << 20) + 64] = bytes(64)
    asked = []
    steps = compressed._Steps.read
    monkeypatch.setattr(compressed._Steps, "read", lambda self, most: asked.append(most) or steps(self, most))
    found = decompress(bytes(packed), codec, 1 << 24)
    same = next((place for place in range(len(found)) if found[place] != raw[place]), len(found))
    assert same > (2 << 20) - (1 << 17)
    assert len(asked) < 1000


def test_of_a_compressed_file_that_lacks_its_last_bytes_nearly_all_is_had():
    whole = batch(5, 100_000)
    found = decompress(gzip.compress(whole, 1)[:-12], "gzip", 1 << 24)
    assert whole.startswith(found[:])
    assert len(found) > len(whole) - 1000


def test_what_is_large_is_mapped_from_a_file_without_a_name():
    whole = batch(3, 1000)
    mapped = decompress(gzip.compress(whole), "gzip", 1000)
    assert not isinstance(mapped, bytes)
    assert mapped[:] == whole


def test_an_ingest_without_one_readable_file_leaves_no_store(inbox):
    (inbox / "empty.hsr").write_bytes(b"")
    (inbox / "nothing").mkdir()
    for named, files, why in (
        (["empty.hsr", "absent.hsr"], 2, "none of 2 files can be read"),
        (["nothing"], 0, "there is no report file"),
        (["no/*.hsr"], 1, "none of 1 file can be read"),
    ):
        said, notes = ingest(*named, status=1)
        assert (said["files"], len(said["unreadable"])) == (files, files)
        assert notes.splitlines()[-1] == f"unreadable: {why}; no store was made"
        assert not (inbox / "s").exists()


def test_a_run_that_did_its_work_ends_well_unless_it_is_to_be_strict(inbox):
    """As a timer meets it on most days: an empty folder adds nothing to a store that exists."""
    ingest("in")
    before = {path: path.read_bytes() for path in (inbox / "s").rglob("*") if path.is_file()}
    (inbox / "nothing").mkdir()
    for more in ([], ["--strict"]):
        said, notes = ingest("nothing", *more)
        assert (said["files"], said["accepted"], said["unreadable"]) == (0, 0, [])
        assert notes.splitlines()[-1] == "note: there is no report file; nothing was added"
    assert {path: path.read_bytes() for path in (inbox / "s").rglob("*") if path.is_file()} == before
    (inbox / "in" / "empty.hsr").write_bytes(b"")
    assert "note: 1 of 3 files could not be read; --strict makes that an error" in ingest("in")[1]
    for arguments, missed in ((["in", "--strict"], "1 of 3 files"), (["absent.hsr"], "1 of 1 file")):
        assert ingest(*arguments, status=1)[1].splitlines()[-1] == f"unreadable: {missed} could not be read"


def test_empty_files_are_in_the_quarantine_by_name_and_can_be_removed(inbox):
    def quarantine(*arguments):
        return told("quarantine", *arguments, "--store", "s")

    names = ("e1.hsr", "e2.hsr", "e3.hsr.gz")
    for name in names:
        (inbox / "in" / name).write_bytes(gzip.compress(b"") if name.endswith("gz") else b"")
    for _ in range(2):
        ingest("in")
        found = quarantine("ls")
        kept = sorted((each["file"], each["reason"], each["length"]) for each in found["kept"])
        assert (kept, found["counted"]) == ([(name, "empty_file", 0) for name in names], {})
    assert "holds nothing" in quarantine("show", "e1.hsr")["why"]
    assert quarantine("retry")["left"]
    assert len(quarantine("ls")["kept"]) == 3
    assert quarantine("rm", "e1.hsr")["removed"] == 1
    assert quarantine("rm", "--all", "--reason", "empty_file")["removed"] == 2
    assert quarantine("ls")["kept"] == []
    said = run("ingest", "c.hsc", "absent.hsr", "in", "--store", "s").stdout
    assert "file_not_found  there is no such file" in said


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gzip", "zstd"])
def test_what_a_compressed_file_holds_is_shown_within_the_bounds_of_an_ingest(inbox, pack):
    raw = batch(3, 40)
    many = pack(b"".join(batch(number, 40) for number in range(300)))
    files = {"x.hsr": raw, "x.packed": pack(raw), "cut.packed": many[:-9], "root.hst": Publisher().root()}
    bad = {
        "expands_too_far": pack(bytes(1 << 25)),
        "compression_damaged": pack(raw)[:9],
        "empty_file": pack(b""),
        "unknown_file": pack(b"no report"),
    }
    for name, content in (files | bad).items():
        (inbox / name).write_bytes(content)
    assert told("show", "x.packed") == told("show", "x.hsr")
    assert told("show", "cut.packed")["reports"] > 0
    for reason in bad:
        assert run("show", reason, "--json", status=1).stderr.startswith(f"{reason}: ")
    assert run("verify", "x.packed", "--trust", "root.hst", status=1).stderr.startswith("not_signed: ")


# ``hearsay merge``


merge = partial(run, "merge")


@pytest.fixture
def files(tmp_path):
    records = honest(CAMPAIGN, 20, PERIOD, 1)
    (tmp_path / "a.hsr").write_bytes(sealed(CAMPAIGN, records[:15]))
    (tmp_path / "b.hsr").write_bytes(sealed(CAMPAIGN, records[10:])[:-1])
    (tmp_path / "c.hsc").write_bytes(RAW)
    return [tmp_path / "a.hsr", tmp_path / "b.hsr"]


def test_what_a_merge_did_is_said_and_memory_changes_nothing(files, tmp_path):
    result = merge(*files, "-o", tmp_path / "out.hsr")
    assert dict(line.rsplit(maxsplit=1) for line in result.stdout.splitlines()) == {
        "files": "2", "campaigns": "1", "reports written": "20", "of them from damaged files": "5",
        "identical ones left out": "5", "left out: truncated": "1",
    }  # fmt: skip
    merge(*reversed(files), "-o", tmp_path / "two", "--memory", "1MiB")
    assert (tmp_path / "out.hsr").read_bytes() == (tmp_path / "two").read_bytes()
    found = json.loads(merge(*files, "-o", tmp_path / "o", "--json", "--campaign", tmp_path / "c.hsc").stdout)
    assert found == {
        "files": 2, "campaigns": 1, "proven": 15, "unproven": 5, "repeated": 5, "superseded": 0,
        "rejected": {"truncated": 1}, "output": str(tmp_path / "o"),
    }  # fmt: skip


def test_refusals_of_a_merge_are_one_line(files, tmp_path):
    for output, arguments, reason in (
        (tmp_path / "a.hsr", (files[1],), "output_exists"),
        (tmp_path / "no" / "o", (files[0],), "output_invalid"),
        (tmp_path / "o", (tmp_path / "absent",), "file_not_found"),
        (tmp_path / "o", (tmp_path / "c.hsc",), "no_reports"),
        (tmp_path / "o", (files[0], "--campaign", files[0]), "malformed"),
        *((tmp_path / "o", (files[0], "--memory", size), "usage")
          for size in ("1", "1023KiB", "1MB", "-1GiB", "GiB", "1.5GiB", "")),
    ):  # fmt: skip
        result = merge(*arguments, "-o", output, status=2 if reason == "usage" else 1)
        assert result.stderr.startswith(f"{reason}: ")
        assert len(result.stderr.splitlines()) == 1
        assert not (tmp_path / "o").exists()


def test_a_merge_reads_compressed_files_and_folders_as_an_ingest_does(files, tmp_path):
    """But one of which nothing can be had ends the run."""
    raws = [file.read_bytes() for file in files]
    merge(*files, "-o", tmp_path / "plain")
    packed = tmp_path / "in" / "deep"
    packed.mkdir(parents=True)
    names = [packed.parent / "a.hsr.gz", packed / "b.hsr"]
    names[0].write_bytes(gzip.compress(raws[0]))
    names[1].write_bytes(zstd(raws[1]))
    (packed / "empty.hsr").write_bytes(b"")
    for more in (names, [packed.parent, "--recursive"], [packed.parent / "**" / "*hsr*"]):
        merge(*more, "-o", tmp_path / "out", "--force")
        assert (tmp_path / "out").read_bytes() == (tmp_path / "plain").read_bytes()
    listed = "".join(f"{name}\n" for name in names)
    result = CliRunner().invoke(hearsay, ["merge", "-", "-o", str(tmp_path / "out"), "--force"], input=listed)
    assert (result.exit_code, (tmp_path / "out").read_bytes()) == (0, (tmp_path / "plain").read_bytes())
    names[0].write_bytes(gzip.compress(bytes(20 << 20)))
    assert merge(*names, "-o", tmp_path / "no", status=1).stderr.startswith("expands_too_far: ")
    assert not (tmp_path / "no").exists()
