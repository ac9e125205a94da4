"""Transports of other packages, by the entry-point group ``hearsay.transports``: installed, broken, lying, absent."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from support.commands import edge
from support.failures import failure, refusal

from edge_sdk.carriers import GROUP, open_transport
from edge_sdk.sync import sync
from edge_sdk.transport.folder import Folder
from edge_sdk.transport.http import Web

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
