"""The MQTT example with a real broker: whatever is killed, the tally is exact."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import broker as support_broker
from support.broker import (
    EXAMPLE,
    HostileBroker,
    RunningBroker,
    huge_message,
    kill,
    need_mosquitto,
    start_gateway,
    unfinished_messages,
)
from support.failures import failure, refusal
from support.nodes import PERIOD, node_campaign, summary_of
from support.publisher import DAY, NOW, Publisher
from support.reports import batch, opened, report
from support.servers import certificate
from support.watched import peak, wait_for

from aggregator.operations.report_store import create_store
from edge_sdk import Device, Node, Policy, StorageError
from edge_sdk.sync import sync
from protocol.nodes.summary import read_summaries

sys.path.insert(0, str(EXAMPLE))
from device import Broker, divided
from gateway import Gateway, keep
from topics import REPORTS, client, kept

pytestmark = pytest.mark.slow

DEVICES, PERIODS, WORKERS = 12, 6, 4
DYING = """
import os, runpy
from aggregator.common import files
write = files.write_output
def write_and_die(*arguments, **options):
    write(*arguments, **options)
    os._exit(9)
files.write_output = write_and_die
runpy.run_path({!r}, run_name="__main__")
"""
RECORD = {"odor": "n", "width": 2.0}


@pytest.fixture
def folder(tmp_path, publisher):
    """What the gateway has: an inbox, and a source with a campaign of an hour's periods and a model."""
    for place in ("inbox", "source/campaigns", "source/models"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "source" / "campaigns" / "mushrooms.hsc").write_bytes(campaign_of(publisher))
    (tmp_path / "source" / "models" / "mushrooms.hsm").write_bytes(publisher.model())
    return tmp_path


def campaign_of(publisher):
    return publisher.campaign(time_precision=3600)


@pytest.fixture
def broker(tmp_path):
    running = RunningBroker(tmp_path / "broker")
    running.start()
    yield running
    running.stop(signal.SIGKILL)


@pytest.fixture
def starting(broker, folder):
    """Starts one gateway or another; what still runs at the end is killed."""
    started = []

    def start(*program):
        started.append(start_gateway(broker, folder / "inbox", folder / "source", *program))
        return started[-1]

    yield start
    for process in started:
        kill(process)


@pytest.fixture
def gateway(starting):
    return starting()


class Member:
    """A device with a state on disk and a clock of the test's; it remembers what it has said."""

    def __init__(self, place, publisher, broker):
        self.hour = 0
        self.said = []
        self._broker = broker
        self.device = Device.provision(
            place, trust=publisher.root(), policy=Policy.of(epsilon_per_day="100"), clock=self._now
        )

    def _now(self):
        return NOW + 3600 * self.hour

    def connect(self, seconds=10):
        return Broker("127.0.0.1", self._broker.port, seconds=seconds, login=self._broker.logins["device"])

    def sync(self, seconds=10):
        """One run; the refusals' reasons."""
        try:
            with self.connect(seconds) as connection:
                outcome = sync(self.device, connection, campaigns=["mushrooms"])
        except StorageError as error:
            return [error.reason]
        return [refusal.reason for refusal in outcome.refusals]

    def report(self):
        (campaign,) = self.device.campaigns()
        self.said.append(self.device.report(campaign.id, RECORD, label="e"))
        self.hour += 1

    @property
    def waiting(self):
        return self.device.status().spooled


@pytest.fixture
def member(tmp_path, publisher, broker):
    made = Member(tmp_path / "member", publisher, broker)
    yield made
    made.device.close()


def batch_of(publisher, reports):
    """A batch of these reports, as `drain` seals it."""
    return batch(opened(campaign_of(publisher)), reports)


def tally_of(folder, publisher, files):
    """Bytes of the tally of these files, and why records were not used."""
    store = create_store(folder, campaign_of(publisher))
    store.ingest(files, now=NOW + DAY)
    statistics = store.statistics()
    return statistics.statistics_id, statistics.reports, dict(statistics.rejected)


def test_broker_and_gateway_are_killed_again_and_again_and_the_tally_is_exact(
    tmp_path, folder, publisher, broker, starting
):
    """Twelve devices report for six periods and send after each, four at a time, while the other side is killed."""
    members = [Member(tmp_path / f"device{number}", publisher, broker) for number in range(DEVICES)]
    gateways = [starting()]
    for member in members:
        assert member.sync() == []
    over = threading.Event()
    refusals = []

    def live(part):
        for _ in range(PERIODS):
            for member in part:
                member.report()
                refusals.extend(member.sync(seconds=0.5))
                time.sleep(0.05)

    def disturb():
        for what in ("gateway", "broker", "both", "gateway", "broker"):
            time.sleep(0.2)
            if what != "broker":
                kill(gateways.pop())
            if what != "gateway":
                broker.stop(signal.SIGKILL)
            time.sleep(0.2)
            if what != "gateway":
                broker.start()
                while gateways:  # it ends with its connection
                    gateways.pop().wait(timeout=60)
            gateways.append(starting())
        over.set()

    with ThreadPoolExecutor(WORKERS + 1) as pool:
        disturbance = pool.submit(disturb)
        work = [pool.submit(live, members[first::WORKERS]) for first in range(WORKERS)]
        for each in [*work, disturbance]:
            each.result()
    assert over.is_set()
    assert refusals, "the disturbance has hit nobody"
    for member in members:
        assert member.sync(seconds=10) == []
        assert member.waiting == 0
        member.device.close()
    kill(gateways.pop())
    straight = tmp_path / "straight.hsr"
    straight.write_bytes(batch_of(publisher, [report for member in members for report in member.said]))
    expected, *_ = tally_of(tmp_path / "expected", publisher, [straight])
    counted, reports, rejected = tally_of(tmp_path / "store", publisher, sorted((folder / "inbox").iterdir()))
    assert reports == DEVICES * PERIODS
    assert counted == expected
    assert set(rejected) <= {"report_replayed"}


def test_what_the_gateway_wrote_and_did_not_acknowledge_is_the_same_file_again(folder, starting, publisher, member):
    """It dies between the disk and its word; the broker redelivers, the device sends again, one file is there."""
    dying = folder / "dying.py"
    dying.write_text(DYING.format(str(EXAMPLE / "gateway.py")), "utf-8")
    gateway = starting(dying)
    assert member.sync(seconds=10) == []
    member.report()
    assert member.sync(seconds=1) == ["unreachable"]
    assert gateway.wait(timeout=60) == 9
    assert member.waiting == 1
    (found,) = (folder / "inbox").iterdir()
    gateway = starting()
    assert member.sync(seconds=10) == []
    assert member.waiting == 0
    assert [path.name for path in (folder / "inbox").iterdir()] == [found.name]
    assert tally_of(folder / "store", publisher, [found])[1:] == (1, {})


def test_what_the_gateway_keeps_is_for_its_user_alone_and_summaries_have_names_of_their_own(tmp_path):
    """A report's id is what a device of a closed fleet votes with."""
    umask = os.umask(0)
    try:
        keep(tmp_path, b"a batch")
    finally:
        os.umask(umask)
    (kept_file,) = tmp_path.iterdir()
    assert kept_file.stat().st_mode & 0o777 == 0o600
    with Node.open(None, Publisher().root(), clock=lambda: NOW) as node:
        node.enrol(Publisher().node_campaign())
        keep(tmp_path, node.summarise("clinics", []).raw)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".hsn", ".hsr"]


def test_a_batch_that_can_not_be_kept_stays_with_the_broker_and_the_device(folder, starting, member):
    gateway = starting()
    assert member.sync(seconds=10) == []
    (folder / "inbox").rmdir()
    (folder / "inbox").touch()
    member.report()
    assert member.sync(seconds=1) == ["unreachable"]
    assert gateway.wait(timeout=60) == 1
    assert member.waiting == 1
    (folder / "inbox").unlink()
    (folder / "inbox").mkdir()
    gateway = starting()
    wait_for(lambda: list((folder / "inbox").iterdir()))  # the broker's copy comes without the device
    assert member.sync(seconds=10) == []


def test_where_nobody_listens_the_brokers_receipt_is_not_believed(tmp_path, publisher, member):
    sealed = tmp_path / "batch.hsr"
    sealed.write_bytes(batch_of(publisher, []))
    with member.connect() as connection:
        error = failure(connection.send, "reports/batch.hsr", str(sealed))
    assert (error.reason, "No matching subscribers" in error.detail) == ("refused_by_server", True)


def test_no_device_may_say_that_a_batch_is_kept_and_none_reads_anothers(tmp_path, broker, gateway, publisher, member):
    """The gateway sleeps; another device forges its word and listens to everything."""
    gateway.send_signal(signal.SIGSTOP)
    sealed = tmp_path / "batch.hsr"
    sealed.write_bytes(batch_of(publisher, []))
    heard = []
    forger = client("", ca=None, login=broker.logins["device"])
    forger.on_connect = lambda *_: forger.subscribe("#", qos=1)
    forger.on_message = lambda _client, _data, message: heard.append(message.topic)
    forger.connect("127.0.0.1", broker.port)
    forger.loop_start()
    wait_for(lambda: heard)
    with member.connect(seconds=1) as connection, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(connection.send, "reports/batch.hsr", str(sealed))
        for _ in range(10):
            forger.publish(kept(sealed.read_bytes()), qos=1)
            time.sleep(0.05)
        with pytest.raises(StorageError) as caught:
            sending.result()
    assert caught.value.reason == "unreachable"
    gateway.send_signal(signal.SIGCONT)
    with member.connect(seconds=10) as connection:
        connection.send("reports/batch.hsr", str(sealed))
    wait_for(lambda: kept(sealed.read_bytes()) in heard)
    forger.disconnect()
    forger.loop_stop()
    assert REPORTS not in heard


@pytest.mark.usefixtures("gateway")
def test_the_broker_sees_one_user_and_names_of_its_own_making(broker, member):
    assert member.sync(seconds=10) == []
    member.report()
    assert member.sync(seconds=10) == []
    broker.stop()
    seen = re.findall(r" as (\S+) \(.* u'(\w+)'\)", broker.log())
    assert {name for name, user in seen if user == "gateway"} == {"hearsay-gateway"}
    mine = [name for name, user in seen if user == "device"]
    assert len(set(mine)) == len(mine) == 2
    assert all(name.startswith("auto-") for name in mine)


def test_a_login_that_the_broker_does_not_know_is_refused_and_a_broker_that_is_not_there(tmp_path, broker):
    (tmp_path / "wrong").write_text("device:guess\n", "utf-8")
    error = failure(Broker, "127.0.0.1", broker.port, login=tmp_path / "wrong")
    assert error.reason == "refused_by_server"
    assert re.search("Not authorized|Bad user name", error.detail)
    broker.stop()
    assert refusal(Broker, "127.0.0.1", broker.port) == "unreachable"
    command = [sys.executable, "gateway.py", "--broker", f"localhost:{broker.port}", "--inbox", tmp_path / "inbox"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLE)
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert run.stderr.startswith(f"unreachable: localhost:{broker.port}: ")


@pytest.mark.filterwarnings("ignore:.*SSLSocket:pytest.PytestUnraisableExceptionWarning")
def test_over_tls_the_broker_must_be_the_one_that_is_vouched_for(tmp_path):
    for name in ("ours", "others"):
        certificate(tmp_path / name)
    broker = RunningBroker(tmp_path / "broker", tmp_path / "ours")
    broker.start()
    login = broker.logins["device"]
    try:
        with Broker("127.0.0.1", broker.port, ca=tmp_path / "ours" / "cert.pem", login=login) as connection:
            assert connection.address == f"mqtts://127.0.0.1:{broker.port}"
        stranger = tmp_path / "others" / "cert.pem"
        assert refusal(Broker, "127.0.0.1", broker.port, ca=stranger, login=login) == "server_untrusted"
        gc.collect()  # paho-mqtt leaves the socket of a handshake that failed to the collector, which says so
        assert refusal(Broker, "127.0.0.1", broker.port, seconds=1, login=login) == "unreachable"
    finally:
        broker.stop(signal.SIGKILL)


@pytest.mark.usefixtures("gateway")
def test_the_programs_as_the_readme_runs_them(tmp_path, broker, folder):
    """Provision, device.py, report, device.py: each a process of its own, on documents valid today."""
    publisher = Publisher(now=1)
    (tmp_path / "root.hst").write_bytes(publisher.root(lifetime=1 << 33))
    state = ["--state", "state"]

    def run(*command, text=""):
        command = [sys.executable, "-W", "error", *command]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, input=text, check=False)
        return done.returncode, done.stdout, done.stderr

    device = [EXAMPLE / "device.py", *state, "--broker", f"127.0.0.1:{broker.port}"]
    device += ["--login", broker.logins["device"], "--campaign", "mushrooms"]
    status, out, err = run(*device)
    assert (status, out) == (1, "")
    assert err.startswith("not_provisioned: ")
    assert run("-m", "edge_sdk.cli.main", *state, "provision", "root.hst")[0] == 0
    status, out, err = run(*device)
    assert (status, json.loads(out)["campaigns"], err) == (0, [{"name": "mushrooms", "version": 1}], "")
    assert run("-m", "edge_sdk.cli.main", *state, "report", "--campaign", "mushrooms", text='{"odor": "n"}')[0] == 0
    status, out, err = run(*device)
    assert (status, json.loads(out)["released"], err) == (0, 1, "")
    assert len(list((folder / "inbox").iterdir())) == 1
    status, out, err = run(*device, "--campaign", "none")
    assert (status, [refusal["reason"] for refusal in json.loads(out)["refusals"]], err) == (1, ["not_published"], "")


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_where_the_broker_is_missing_ci_fails_and_others_skip(monkeypatch, ci, outcome):
    monkeypatch.setattr(support_broker, "PATHS", "/nowhere")
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome):
        need_mosquitto()


def test_the_readme_names_what_is_there():
    readme = (EXAMPLE / "README.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+)` \| in `(\w+\.py)`", readme, re.MULTILINE)
    assert [name for name, _ in named] == ["Broker", "Gateway", "offer", "kept"]
    for name, file in named:
        assert re.search(rf"^(class|def) {name}\b", (EXAMPLE / file).read_text("utf-8"), re.MULTILINE)


class FloodingClient:
    """In the place of paho's client: grants nothing, and delivers and confirms whatever it likes."""

    def __init__(self, *granted):
        self.granted = list(granted)

    def connect(self, *_, **__):
        pass

    disconnect = loop_stop = unsubscribe = connect

    def loop_start(self):
        self.on_connect(self, None, None, SimpleNamespace(is_failure=False), None)

    def subscribe(self, topic, qos):
        for number in range(1000):
            self.on_message(self, None, SimpleNamespace(topic=f"other/{number}", payload=b"flood"))
            self.on_publish(self, None, number, None, None)
        self.on_subscribe(self, None, 7, self.granted, None)
        self.on_message(self, None, SimpleNamespace(topic=topic, payload=b"{}"))
        return 0, 7


def test_a_broker_whose_answer_grants_nothing_refuses_and_what_was_not_asked_for_is_not_kept(monkeypatch):
    monkeypatch.setattr("device.client", lambda *_, **__: FloodingClient())
    error = failure(Broker("localhost", seconds=1).fetch, "models/a.hsm", 10)
    assert (error.reason, "grants nothing" in error.detail) == ("refused_by_server", True)
    with pytest.raises(ConnectionRefusedError):
        Gateway(Path("inbox"), ca=None, login=None)._subscribed(None, None, 1, [], None)
    monkeypatch.setattr("device.client", lambda *_, **__: FloodingClient(SimpleNamespace(is_failure=False)))
    broker = Broker("localhost", seconds=1)
    assert broker.fetch("models/a.hsm", 10) is None
    assert not any(isinstance(event, str) for event in broker._seen)
    assert len(broker._seen) <= 100


@pytest.mark.parametrize("flood", [huge_message, unfinished_messages])
def test_a_hostile_brokers_messages_are_not_read_into_memory(flood):
    """A device may have few megabytes. MaximumPacketSize asks the broker, and a hostile one does not heed it."""
    hostile = HostileBroker(flood())

    def fetch():
        with Broker("127.0.0.1", hostile.port, seconds=20) as connection:
            assert refusal(connection.fetch, "models/a.hsm", 10) == "unreachable"

    assert peak(fetch) < 12 << 20
    hostile.join(timeout=20)


def test_a_larger_outbox_than_the_broker_takes_arrives_in_parts(tmp_path, folder, publisher):
    """It would stick for ever, with every report after it."""
    broker = RunningBroker(tmp_path / "broker", largest=6000)
    broker.start()
    gateway = start_gateway(broker, folder / "inbox", folder / "source")
    try:
        campaign = opened(campaign_of(publisher))
        records = [report(campaign, number, number) for number in range(500)]
        sealed = tmp_path / "batch.hsr"
        sealed.write_bytes(batch_of(publisher, records))
        assert len(sealed.read_bytes()) > 6000
        with Broker("127.0.0.1", broker.port, seconds=10, login=broker.logins["device"]) as connection:
            connection.send("reports/batch.hsr", str(sealed))
    finally:
        kill(gateway)
        broker.stop(signal.SIGKILL)
    parts = list((folder / "inbox").iterdir())
    assert len(parts) > 1
    whole = tally_of(tmp_path / "whole", publisher, [sealed])
    assert whole[1] == len(records)
    assert tally_of(tmp_path / "parts", publisher, parts) == whole


def test_a_larger_file_of_summaries_is_divided_between_two():
    campaign = node_campaign()
    envelopes = [summary_of(campaign, 0, 1, PERIOD + later) for later in range(6)]
    whole = b"".join(envelopes)
    parts = list(divided(whole, "reports/a.hsn", 2 * len(envelopes[0]) + 100))
    assert b"".join(parts) == whole
    assert [len(list(read_summaries(part))) for part in parts] == [2, 2, 2]
    assert list(divided(whole, "reports/a.hsn", 10)) == envelopes


@pytest.mark.parametrize("option", ["--login", "--ca"])
@pytest.mark.parametrize("content", [None, b"no colon", b"\xff\xfe"])
def test_a_missing_or_wrong_file_is_a_refusal_with_a_reason(tmp_path, publisher, option, content):
    """Both programs say so in one line."""
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    Device.provision(tmp_path / "state", trust=publisher.root()).close()
    for program in (["device.py", "--state", tmp_path / "state"], ["gateway.py", "--inbox", tmp_path / "inbox"]):
        command = [sys.executable, *program, "--broker", "localhost:1", option, tmp_path / "file"]
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLE)
        assert run.returncode == 1
        assert run.stderr.startswith(f"file_unreadable: {option} '{tmp_path / 'file'}': ")
        assert run.stderr.count("\n") == 1
