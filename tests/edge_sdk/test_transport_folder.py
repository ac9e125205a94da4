"""A folder as a source, with files, links and pipes that other users have put there."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import stat
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import edge
from support.failures import failure, refusal

from edge_sdk.carriers import GROUP, open_transport
from edge_sdk.sync import sync
from edge_sdk.transport.folder import Folder, _same
from edge_sdk.transport.http import Web

PLACE = "campaigns/mushrooms.hsc"


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "campaigns").mkdir(parents=True)
    (root / "campaigns" / "mushrooms.hsc").write_bytes(b"content")
    return root


@pytest.fixture(autouse=True)
def impatient():
    """A device that reads from a pipe could wait for ever."""
    signal.alarm(20)
    yield
    signal.alarm(0)


def names(folder):
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("left", [None, "reports"])
def test_an_empty_mount_point_is_not_the_disk_that_belongs_there(tmp_path, batch, left):
    """Batches in it would be hidden by the next mount, and their reports are forgotten: they would be lost."""
    point = tmp_path / "mnt"
    point.mkdir()
    if left:
        (point / left).mkdir()  # made by a device that took the mount point for the disk
    source = Folder(point)
    assert refusal(source.fetch, PLACE, 100) == "unreachable"
    assert refusal(source.send, "reports/a.hsr", str(batch)) == "unreachable"
    assert names(point) == ([left] if left else [])
    (point / "roots").mkdir()  # mounted
    assert source.fetch(PLACE, 100) is None
    source.send("reports/a.hsr", str(batch))
    assert (point / "reports" / "a.hsr").read_bytes() == batch.read_bytes()


def test_links_fifos_and_devices_are_not_read(tree, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (tree / "a").symlink_to(secret)
    (tree / "b").symlink_to(tmp_path)
    (tree / "c").symlink_to("c")
    (tree / "d").symlink_to("/dev/zero")
    os.mkfifo(tree / "e")
    (tree / "f").mkdir()
    source = Folder(tree)
    for place in ("a", "c", "d", "e", "f"):
        assert refusal(source.fetch, place, 100) == "io_failed", place
    assert source.fetch("b/secret", 100) is None  # as if the link were no folder


def test_a_source_may_itself_be_reached_by_a_link(tree, tmp_path, batch):
    (tmp_path / "current").symlink_to(tree)
    source = Folder(tmp_path / "current")
    assert source.fetch(PLACE, 100).content == b"content"
    source.send("reports/a.hsr", str(batch))
    assert (tree / "reports" / "a.hsr").read_bytes() == batch.read_bytes()


def test_a_batch_is_copied_once_and_never_replaces_another(tree, batch):
    source = Folder(tree)
    source.send("reports/a.hsr", str(batch))
    first = (tree / "reports" / "a.hsr").stat()
    source.send("reports/a.hsr", str(batch))
    assert (tree / "reports" / "a.hsr").stat() == first
    (tree / "reports" / "a.hsr").write_bytes(b"x" + batch.read_bytes()[1:])
    assert refusal(source.send, "reports/a.hsr", str(batch)) == "file_exists"
    assert (tree / "reports" / "a.hsr").read_bytes()[:1] == b"x"
    assert names(tree / "reports") == ["a.hsr"]


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_files_are_the_same_only_if_they_are(one, other):
    import io

    assert _same(io.BytesIO(one), io.BytesIO(other)) == (one == other)
    assert not _same(io.BytesIO(one), io.BytesIO(one + b"x"))


def test_links_do_not_lead_a_batch_elsewhere(tree, tmp_path, batch):
    source = Folder(tree)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tree / "reports").symlink_to(elsewhere)
    assert refusal(source.send, "reports/a.hsr", str(batch)) == "io_failed"
    (tree / "reports").unlink()
    (tree / "reports").mkdir()
    (tree / "reports" / "a.hsr").symlink_to(elsewhere / "b")
    assert refusal(source.send, "reports/a.hsr", str(batch)) in ("io_failed", "file_exists")
    os.mkfifo(tree / "reports" / "p.hsr")
    assert refusal(source.send, "reports/p.hsr", str(batch)) == "io_failed"
    assert names(elsewhere) == []


def test_the_folders_owner_decides_who_may_read(tree, batch):
    source = Folder(tree)
    source.send("reports/a.hsr", str(batch))
    assert stat.S_IMODE((tree / "reports" / "a.hsr").stat().st_mode) == 0o600
    (tree / "reports").chmod(0o2750)
    source.send("reports/b.hsr", str(batch))
    assert stat.S_IMODE((tree / "reports" / "b.hsr").stat().st_mode) == 0o640


@pytest.mark.parametrize(("problem", "reason"), [(errno.ENOSPC, "disk_full"), (errno.EIO, "io_failed")])
def test_a_disk_that_fails_leaves_nothing(tree, batch, monkeypatch, problem, reason):
    def fail(*_):
        raise OSError(problem, os.strerror(problem))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        assert refusal(Folder(tree).send, "reports/a.hsr", str(batch)) == reason
    with monkeypatch.context() as patched:  # a file that stops to be read
        patched.setattr("edge_sdk.transport.folder._open_source", lambda _: nullcontext(SimpleNamespace(read=fail)))
        assert "the file to be sent" in failure(Folder(tree).send, "reports/a.hsr", str(batch)).detail
    assert names(tree / "reports") == []


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe", "loop"])
def test_a_file_that_can_not_be_read_is_not_the_folders_fault(tree, tmp_path, kind):
    path = tmp_path / "mine.hsr"
    {
        "absent": lambda: None,
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "loop": lambda: path.symlink_to(path.name),
    }[kind]()
    for place in ("reports/a.hsr", PLACE):  # a new one, and one that is there
        error = failure(Folder(tree).send, place, str(path))
        assert (error.reason, error.detail.startswith("the file to be sent")) == ("io_failed", True)
    assert names(tree / "reports") == []


# Transports of other packages, by the entry-point group ``hearsay.transports``: installed, broken, lying, absent

GOOD = """
from edge_sdk.transport import Transport
from edge_sdk.transport.folder import Folder

calls = []

class Stick(Folder):
    def __init__(self, path, address):
        super().__init__(path)
        self._own = address

    @property
    def address(self):
        return self._own

def open_stick(address, *, method, token, seconds):
    calls.append((method, token, seconds))
    return Stick("/" + address.partition("://")[2].partition("/")[2], address)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a package as pip would: a module and its entry points."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    before = set(sys.modules)

    def put(name, source, **entries):
        site = tmp_path / "site"
        information = site / f"{name}-1.0.dist-info"
        information.mkdir(parents=True)
        (site / f"{name}.py").write_text(source, "utf-8")
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
        lines = [f"{scheme} = {target}" for scheme, target in entries.items()]
        (information / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]), "utf-8")
        importlib.invalidate_caches()

    yield put
    for name in set(sys.modules) - before:
        if name.startswith("brought"):
            del sys.modules[name]


def test_an_unknown_scheme_is_opened_by_the_package_that_brings_it(install, tmp_path, device, publisher):
    install("brought_good", GOOD, stick="brought_good:open_stick")
    tree, own = tmp_path / "tree", tmp_path / "own"
    (tree / "campaigns").mkdir(parents=True)
    (tree / "campaigns" / "mushrooms.hsc").write_bytes(publisher.campaign())
    transport = open_transport(f"STICK://host{tree}", method="POST", token="word", seconds=3)
    assert sys.modules["brought_good"].calls == [("POST", "word", 3)]
    done = sync(device, transport, campaigns=["mushrooms"])
    assert [taken.name for taken in done.campaigns] == ["mushrooms"]
    (tmp_path / "root.hst").write_bytes(publisher.root(lifetime=1 << 33))
    assert edge("--state", own, "provision", tmp_path / "root.hst")[0] == 0
    assert edge("--state", own, "sync", f"stick://host{tree}")[0::2] == (0, "")


def test_what_is_built_in_is_never_another_packages(install, tmp_path):
    install(
        "brought_taker", "raise SystemExit", http="brought_taker:x", https="brought_taker:x", file="brought_taker:x"
    )
    assert type(open_transport("http://host/")) is Web
    assert type(open_transport("HTTPS://host/")) is Web
    assert type(open_transport(str(tmp_path))) is Folder
    assert "brought_taker" not in sys.modules


def test_a_scheme_that_nobody_or_that_two_packages_bring_is_refused(install):
    assert refusal(open_transport, "stick://host/") == "address_invalid"
    install("brought_good", GOOD, stick="brought_good:open_stick")
    install("brought_other", GOOD, stick="brought_other:open_stick")
    assert refusal(open_transport, "stick://host/") == "address_invalid"


ODD = "\nclass Odd:\n    address, fetch, send = {}\ndef open_stick(address, **options): return Odd()"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ValueError('secret')", "transport_failed"),
        ("raise SystemExit('secret')", "transport_failed"),
        ("import no_such_package_anywhere", "transport_failed"),
        ("def open_stick(:", "transport_failed"),
        ("open_stick = 5", "transport_failed"),
        ("def open_stick(address): pass", "transport_failed"),
        ("def open_stick(address, **options): raise OSError('secret')", "transport_failed"),
        ("def open_stick(address, **options): return None", "transport_failed"),
        ("def open_stick(address, **options): return object()", "transport_failed"),
        (ODD.format("b'x', print, print"), "transport_failed"),
        (ODD.format("'x' * 5000, print, print"), "transport_failed"),
        (ODD.format("'x', 1, print"), "transport_failed"),
        (
            "from edge_sdk.transport import Transport\nclass open_stick(Transport): __init__ = print",
            "transport_failed",
        ),
        (
            "import edge_sdk\ndef open_stick(*_, **__): raise edge_sdk.StorageError('unreachable', 'no')",
            "unreachable",
        ),
    ],
)
def test_a_package_that_fails_is_a_refusal_that_quotes_nothing_of_it(install, source, reason):
    install("brought_bad", source, stick="brought_bad:open_stick")
    error = failure(open_transport, "stick://host/")
    assert error.reason == reason
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    "address",
    [
        "", "\0", "://x", "1a://x", "a b://x", "st\xefck://x", "a/b://x", "x" * 33 + "://host", "stick://user:word@host/x",
        "stick://word@host", "stick://ho\nst", "stick://\x1b[2J", "stick://\u202e", "stick://" + "x" * 3000,
    ],
)  # fmt: skip
def test_an_address_that_no_transport_is_told(install, address):
    install("brought_good", GOOD, stick="brought_good:open_stick")
    error = failure(open_transport, address)
    assert (error.reason, "\n" in str(error)) == ("address_invalid", False)


def test_the_list_of_packages_is_read_for_an_unknown_scheme_only(tmp_path):
    code = """
import sys
from edge_sdk.carriers import open_transport
from protocol.errors import HearsayError
for address in (sys.argv[1], "http://host/", "stick://host/"):
    try:
        open_transport(address)
    except HearsayError as error:
        print(error.reason)
    print("importlib.metadata" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "address_invalid", "True"]
