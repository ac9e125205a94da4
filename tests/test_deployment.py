"""A server by how-to/serving.md and a device by how-to/raspberry-pi.md, on one machine, from the documents' text.

The commands, nginx's file, `edge.conf` and the policy are taken from the documents, the units from docs/systemd; names
such as `reports.example.org` are true there. systemd can not run in it: what a unit would start is started as it says.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.machine import Machine, need
from support.units import UNITS, command_line, entries, variables

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("deployment")]  # one machine, its tests in order

DOCS = Path(__file__).parent.parent / "docs"
SERVING = (DOCS / "how-to" / "serving.md").read_text("utf-8")
GUIDE = (DOCS / "how-to" / "raspberry-pi.md").read_text("utf-8")
SCHEMA = """
name = "pumps"
[label]
name = "failed"
classes = ["no", "yes"]
[[features]]
name = "sound"
kind = "categorical"
values = ["calm", "rattling"]
"""
DEVICE = "/home/card"
OPERATOR = "/home/ann"


def block(text, heading, language="bash", number=0):
    """A code block below a heading, of a language: the first one, or a later one by its number."""
    after = text.split(f"\n## {heading}\n", 1)[1]
    return re.findall(rf"^```{language}\n(.*?)^```", after, re.DOTALL | re.MULTILINE)[number].rstrip("\n")


GATHERING = block(SERVING, "Every day")
"""The operator's daily lines; the first of them publishes."""


class Site:
    """The machine, with an operator who publishes and ingests, and a device that runs its units."""

    def __init__(self, machine):
        self.machine = machine
        self.said = []

    def operator(self, text):
        """Lines of an operator who keeps files to herself unless told otherwise."""
        return self.machine.shell(f"umask 077\n{text}", user="ann", folder=OPERATOR)

    def unit(self, name, instance="", status=0):
        """Run a unit's command as systemd would: its user, its variables, its words."""
        path = UNITS / name
        found = entries(path)
        (user,) = found["Service", "User"]
        environment = variables(found.get(("Service", "Environment"), []))
        for file in found.get(("Service", "EnvironmentFile"), []):
            environment |= variables(self.machine.run("cat", file).splitlines())
        words = command_line(path, environment, instance)
        process = self.machine.start(*words, user=user, **environment)
        out, err = process.communicate(timeout=60)
        assert process.returncode == status, out + err
        self.said += [*words, *environment.values(), out, err]
        return out, err

    def sync(self, status=0):
        out, err = self.unit("hearsay-edge.service", status=status)
        return json.loads(out), err


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    need("nginx", "nginx")
    need("openssl", "openssl")
    made = Machine(tmp_path_factory.mktemp("machine"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def site(machine, tmp_path_factory):
    """The server as serving.md makes it, then the device as raspberry-pi.md makes it."""
    machine.run("useradd", "--create-home", "ann")
    made = Site(machine)
    machine.run("mkdir", "-p", "/etc/ssl/hearsay", DEVICE)
    certificate = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    names = "-addext subjectAltName=DNS:reports.example.org -keyout privkey.pem -out fullchain.pem"
    machine.shell(f"{certificate} {names}", user="root", folder="/etc/ssl/hearsay")
    machine.write(f"{OPERATOR}/hearsay.conf", block(SERVING, "nginx", "nginx"), user="ann")
    for line in block(SERVING, "nginx").splitlines():
        if " apt " not in line:
            machine.run("sh", "-euc", line, user="root" if "sudo" in line else "ann", folder=OPERATOR, USER="ann")
    machine.write(f"{OPERATOR}/schema.toml", SCHEMA, user="ann")
    made.operator("hearsay init work --no-passphrase")
    terms = "--epsilon 1 --mechanism direct --min-batch-size 100"
    made.operator(f"hearsay campaign schema.toml --workspace work {terms} -o c.hsc")
    made.operator(GATHERING.splitlines()[0])
    install(machine, tmp_path_factory.mktemp("wheel"))
    machine.put(UNITS, f"{DEVICE}/systemd")
    machine.run("cp", f"{OPERATOR}/work/root.hst", f"{OPERATOR}/token", DEVICE)
    machine.write(f"{DEVICE}/policy.toml", block(GUIDE, "Provision", "toml"))
    machine.write(f"{DEVICE}/measure", '#!/bin/sh\necho \'{"sound": "rattling", "failed": "yes"}\'\n')
    authority = "SSL_CERT_FILE=/etc/hearsay/authority.pem"
    machine.write(f"{DEVICE}/edge.conf", block(GUIDE, "Run", "ini") + "\n" + authority + "\n")
    machine.shell(block(GUIDE, "Provision"), user="root", folder=DEVICE)
    machine.shell(block(GUIDE, "Run"), user="root", folder=DEVICE)
    machine.run("cp", "/etc/ssl/hearsay/fullchain.pem", "/etc/hearsay/authority.pem")
    return made


def install(machine, folder):
    """What the guide's Install comes to, without a network: the wheel in an environment of its own."""
    edge = Path(__file__).parent.parent / "distribution" / "edge.py"
    subprocess.run([sys.executable, edge, folder], check=True, capture_output=True)
    machine.run(sys.executable, "-m", "venv", "--without-pip", "/opt/hearsay")
    (wheel,) = folder.iterdir()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", "/opt/hearsay/bin/python"]
    packages = machine.run("/opt/hearsay/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('platlib'))")
    for name in ("msgpack", "pynacl", "cffi", "pycparser"):
        for top in {file.parts[0] for file in importlib.metadata.files(name) if ".." not in file.parts}:
            machine.put(importlib.metadata.distribution(name).locate_file(top), packages.strip())
    machine.run(*pip, "install", "--quiet", "--no-index", wheel)


ASK = """
import http.client, ssl, sys
connection = http.client.HTTPSConnection("reports.example.org", timeout=10)
headers = {"Authorization": f"Bearer {sys.argv[3]}"} if sys.argv[3] else {}
connection.request(sys.argv[1], "/hearsay/" + sys.argv[2], b"x" * int(sys.argv[4]), headers)
print(connection.getresponse().status)
"""
NAME = f"reports/{'0a' * 16}.hsr"


def ask(site, method, place, token="", size=0):
    """The status that a stranger gets who speaks TLS and HTTP."""
    words = (sys.executable, "-c", ASK, method, place, token, size)
    return int(site.machine.run(*words, SSL_CERT_FILE="/etc/hearsay/authority.pem"))


def token_of(site):
    return site.machine.run("cat", "/etc/hearsay/token").strip()


def test_a_report_goes_from_the_units_to_an_operator_who_is_not_root(site):
    """With another token at first: the documents come, the report waits, and the journal says why."""
    machine, token = site.machine, token_of(site)
    machine.write("/etc/hearsay/token", "another\n", mode="640")
    machine.run("chgrp", "hearsay", "/etc/hearsay/token")
    begun, _ = site.sync()
    assert begun["campaigns"] == [{"name": "pumps", "version": 1}]
    site.unit("hearsay-report@.service", "pumps")
    refused, err = site.sync(status=5)
    assert (refused["sent"], [each["step"] for each in refused["refusals"]]) == (0, ["outbox"])
    assert re.fullmatch(r"refused_by_server: outbox: .*status 401.*--token FILE.*\n", err)
    assert "`refused_by_server: outbox: … 401`" in GUIDE
    machine.shell(block(GUIDE, "Run"), user="root", folder=DEVICE)
    assert token_of(site) == token
    sent, _ = site.sync()
    assert (sent["sent"], sent["released"], sent["refusals"]) == (1, 1, [])
    (arrived,) = machine.run("find", "/srv/hearsay/reports", "-type", "f", user="ann").split()
    assert machine.run("stat", "--format=%U %G %a", arrived) == "www-data hearsay-reports 640\n"
    machine.run("cat", arrived, user="nobody", status=1)
    said = site.operator(GATHERING)
    assert "note" not in said
    assert json.loads(site.operator("hearsay status --store store --json"))["reports"] == 1
    assert machine.run("find", "/srv/hearsay", "-type", "f") == ""


def test_the_secret_is_in_two_files_and_nowhere_else(site):
    """Not in a command line, a variable, what the units print, nginx's processes or logs; few may read it."""
    site.sync()
    token = token_of(site)
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert "/etc/hearsay/token" in site.said
    assert not any(token in text for text in site.said)
    seen = site.machine.run("sh", "-c", "cat /proc/[0-9]*/cmdline /var/log/nginx/*; nginx -V 2>&1")
    assert "nginx: worker" in seen
    assert token not in seen
    rights = site.machine.run("stat", "--format=%U %G %a", "/etc/hearsay/token", "/etc/nginx/hearsay.tokens")
    assert rights == "root hearsay 640\nroot root 600\n"
    site.machine.run("cat", "/etc/hearsay/token", user="nobody", status=1)


def test_a_stranger_fetches_documents_and_does_nothing_else(site):
    token = token_of(site)
    assert ask(site, "GET", "campaigns/pumps.hsc") == 200
    for method in ("GET", "HEAD", "DELETE", "MKCOL", "POST"):
        assert {ask(site, method, NAME), ask(site, method, NAME, token)} <= {401, 403, 405}, method
    for wrong in ("", "0" * 64, token[:-1], token + "0", token.upper()):
        assert ask(site, "PUT", NAME, wrong, 100) == 401, wrong
    for place in ("reports/", "reports/.profile", "reports/a.hsr/b.hsr", "reports/a.hsr.", "reports/%2e%2e/a.hsr"):
        assert ask(site, "PUT", place, token, 100) in (400, 404, 405), place
    assert ask(site, "PUT", "campaigns/pumps.hsc", token, 100) == 405
    assert site.machine.run("find", "/srv/hearsay", "-type", "f") == ""
    assert "127.0.0.1" not in "".join(
        line for line in site.machine.run("sh", "-c", "cat /var/log/nginx/*").splitlines() if "reports/0a" in line
    )


def test_as_much_is_taken_as_a_device_may_gather_and_not_more(site):
    spool = re.search(r"`spool_bytes` of its `policy.toml`, (\d+) MB", SERVING)[1]
    assert ask(site, "PUT", NAME, token_of(site), int(spool) * 1_100_000) == 201
    assert ask(site, "PUT", NAME, token_of(site), int(spool) * 1_100_000) == 204
    assert ask(site, "PUT", NAME, token_of(site), (16 << 20) + 1) == 413
    assert site.operator("find /srv/hearsay/reports -type f -size +1M -exec rm -v {} +").count("removed") == 1


def test_a_second_word_is_accepted_beside_the_first(site):
    line = re.search(r"printf ('.*?')", block(SERVING, "nginx"))[1]
    site.machine.run("sh", "-euc", f"printf {line} abc123 >> /etc/nginx/hearsay.tokens && systemctl reload nginx")
    for _ in range(100):  # a reload comes about some moments later
        if ask(site, "PUT", NAME, "abc123") in (201, 204):
            break
    assert {ask(site, "PUT", NAME, word) for word in ("abc123", token_of(site))} == {204}
    site.operator("rm /srv/hearsay/reports/*.hsr")


def test_the_owners_commands_work(site):
    """The last test: it ends with an opt-out. `journalctl` needs systemd, which does not run here."""
    site.machine.run("install", "-m", "644", f"{OPERATOR}/c.hsc", f"{DEVICE}/pumps.hsc")
    explained = site.machine.shell(block(GUIDE, "Provision", number=1), user="root", folder=DEVICE)
    assert "sound" in explained
    lines = block(GUIDE, "Look after it").splitlines()
    assert [line.split()[0] for line in lines] == ["sudo", "sudo", "sudo", "journalctl"]
    shown = [site.machine.shell(line, user="root", folder=DEVICE) for line in lines[:3]]
    assert json.loads(shown[0])["epsilon_spent"] != "0"


def test_the_guide_installs_the_wheel_with_what_it_needs():
    """The machine of the tests has no network: :func:`install` does the same with files."""
    ready, debian = (block(GUIDE, "Install", number=number).splitlines() for number in (0, 1))
    for lines, option in ((ready, []), (debian, ["--no-deps"])):
        assert lines[0].startswith("sudo apt install python3-venv")
        assert lines[1].startswith("sudo python3 -m venv ")
        assert lines[2].split() == ["sudo", "/opt/hearsay/bin/pip", "install", *option, "hearsay_bayes_edge-*.whl"]
