"""The web as a source, with servers that are slow, wrong, broken or hostile."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import subprocess
import threading
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import failure, refusal
from support.servers import drip, read_request, reply, scripted, tree_server

from edge_sdk.carriers import open_transport, read_token
from edge_sdk.transport.http import MAX_REDIRECTS, RetryPolicy, Web, _why_untrusted, parse_url
from protocol.errors import DocumentError, InputError, StorageError

QUICK = RetryPolicy(seconds=20, idle=5)
PLACE = "campaigns/mushrooms.hsc"


class Naps:
    """Records pauses instead of waiting."""

    def __init__(self):
        self.lengths = []

    def __call__(self, seconds):
        self.lengths.append(seconds)


@pytest.fixture
def naps():
    return Naps()


@pytest.fixture
def web(naps):
    def make(address, **options):
        options = {"retry": QUICK, "entropy": bytes, "sleep": naps, **options}
        return Web(address, **options)

    return make


# Fetching -------------------------------------------------------------------------------------------


def test_a_file_is_fetched_and_an_absent_one_is_none(web):
    with scripted(reply(200, b"content"), reply(404), reply(410)) as server:
        source = web(server.url + "/tree/")
        assert source.fetch(PLACE, 100).content == b"content"
        assert source.fetch(PLACE, 100) is None
        assert source.fetch(PLACE, 100) is None
        assert {request.path for request in server.requests} == {"/tree/campaigns/mushrooms.hsc"}
        assert server.requests[0].headers["host"] == f"127.0.0.1:{server.port}"
        assert "authorization" not in server.requests[0].headers


def test_names_are_found_as_publish_writes_them(web, tmp_path):
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "campaigns" / "a%2Fb%20%C3%BC.hsc").write_bytes(b"odd name")
    with tree_server(tmp_path) as (url, _):
        assert web(url).fetch("campaigns/a%2Fb%20%C3%BC.hsc", 100).content == b"odd name"


def test_the_limit_is_exact(web):
    with scripted(reply(200, b"x" * 100)) as server:
        source = web(server.url)
        assert len(source.fetch(PLACE, 100).content) == 100
        assert refusal(source.fetch, PLACE, 99) == "too_large"


def endless(connection, _):
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def endless_chunks(connection, _):
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def endless_headers(connection, _):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"A: b\r\n")


def endless_line(connection, _):
    while True:
        connection.sendall(b"x" * 65536)


def endless_continue(connection, _):
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.001)


@pytest.mark.parametrize("step", [endless, endless_chunks])
def test_an_endless_body_is_cut_off(web, step):
    with scripted(step) as server:
        tracemalloc.start()
        assert refusal(web(server.url).fetch, PLACE, 1 << 20) == "too_large"
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()
    assert len(server.requests) == 1


@pytest.mark.parametrize("step", [endless_headers, endless_line, endless_continue])
def test_an_endless_head_is_cut_off(web, step):
    retry = RetryPolicy(seconds=1, attempts=2)
    with scripted(step) as server:
        assert refusal(web(server.url, retry=retry).fetch, PLACE, 100) == "unreachable"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "lie",
    [
        CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"-1\r\nhello",
        CHUNKED + b"+0x5\r\n-5\r\n",
        CHUNKED + b"7fffffffffffffffffff\r\nx",
        CHUNKED + b"-" + b"f" * 60_000 + b"\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\n" + b"a: b\r\n" * 50_000,
        b"HTTP/1.1 -200 OK\r\n\r\n",
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"a%d: b\r\n" % number for number in range(101)) + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r" * 101 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * (1 << 15) + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n" + b" x: y\r\n" * 5000 + b"\r\n",
    ],
)
def test_a_lie_in_http_is_a_refusal_of_that_source(web, lie):
    with scripted(lie) as server:
        assert refusal(web(server.url).fetch, PLACE, 100) in ("unreachable", "too_large")
        with contextlib.suppress(StorageError):  # a head that says 200 is a success, whatever follows it
            web(server.url).send("reports/a.hsr", __file__)


def test_a_redirect_into_something_that_tls_refuses_to_name(web):
    with scripted(reply(302, Location="https://" + "a" * 70 + ".example/")) as server:
        assert refusal(web(server.url).fetch, PLACE, 100) == "unreachable"


BLOCK = b"x" * 65536
LONG_HEADERS = b"HTTP/1.1 200 OK\r\n" + (b"a: " + b"b" * 65_000 + b"\r\n") * 99 + b"\r\n"
MANY_HEADERS = b"HTTP/1.1 200 OK\r\n" + (b"a:\r" * 21_000 + b"b\r\n") * 99 + b"\r\n"


def endless_chunk(connection, _):
    connection.sendall(CHUNKED + b"-1\r\n")
    while True:
        connection.sendall(BLOCK)


@pytest.mark.parametrize("step", [LONG_HEADERS, MANY_HEADERS, endless_chunk])
def test_what_an_answer_takes_of_memory_is_bounded(web, step):
    with scripted(step) as server:
        source = web(server.url, retry=RetryPolicy(seconds=20, attempts=1))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        assert refusal(source.fetch, PLACE, 100) == "unreachable"
        assert tracemalloc.get_traced_memory()[1] - before < 1 << 20
        tracemalloc.stop()


def test_what_is_announced_too_large_is_not_waited_for(web):
    with scripted(reply(200, b"x", length=1 << 40)) as server:
        assert refusal(web(server.url).fetch, PLACE, 100) == "too_large"


@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"],
)
def test_a_slow_drip_ends_at_the_deadline(web, head):
    retry = RetryPolicy(seconds=0.5, idle=5)
    with scripted(drip(head)) as server:
        began = time.monotonic()
        assert refusal(web(server.url, retry=retry).fetch, PLACE, 1000) == "unreachable"
        assert time.monotonic() - began < 15


def test_silence_ends_sooner(web):
    retry = RetryPolicy(seconds=20, idle=0.1, attempts=2)
    with scripted(lambda connection, _: connection.recv(1)) as server:
        began = time.monotonic()
        assert refusal(web(server.url, retry=retry).fetch, PLACE, 1000) == "unreachable"
        assert time.monotonic() - began < 15
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "broken",
    [
        reply(200, b"half", length=8),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200",
        b"SSH-2.0-OpenSSH\r\n",
        b"\0\xff" * 50,
        b"",
        reply(500),
        reply(503),
        reply(429),
    ],
)
def test_a_passing_trouble_is_tried_again(web, naps, broken):
    with scripted(broken, reply(200, b"all of it")) as server:
        assert web(server.url).fetch(PLACE, 100).content == b"all of it"
    assert len(server.requests) == 2
    assert len(naps.lengths) == 1


@pytest.mark.parametrize("status", [201, 204, 206, 300, 304, 400, 401, 403, 405, 418])
def test_other_statuses_are_refusals_and_not_tried_again(web, naps, status):
    with scripted(reply(status, b"\x1b[2Jdo not print this")) as server, pytest.raises(StorageError) as caught:
        web(server.url).fetch(PLACE, 100)
    told, _, next_step = str(caught.value).partition("; ")
    assert told == f"refused_by_server: the server answers with status {status}"
    assert ("--token FILE" in next_step) == (status == 401)
    assert len(server.requests) == 1
    assert naps.lengths == []


def test_no_server_at_all(web, naps):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert refusal(web(f"http://127.0.0.1:{port}").fetch, PLACE, 100) == "unreachable"
    assert len(naps.lengths) == QUICK.attempts - 1
    assert refusal(web("http://host.invalid").fetch, PLACE, 100) == "unreachable"
    assert refusal(web(f"http://{'x' * 70}").fetch, PLACE, 100) == "unreachable"


# Pauses ---------------------------------------------------------------------------------------------


def test_pauses_double_up_to_a_bound_and_differ_by_chance(web, naps):
    retry = RetryPolicy(seconds=1000, idle=5, attempts=6, first=1, longest=5)
    with scripted(reply(503)) as server:
        assert refusal(web(server.url, retry=retry).fetch, PLACE, 100) == "refused_by_server"
        assert naps.lengths == [0.5, 1, 2, 2.5, 2.5]
        naps.lengths.clear()
        latest = web(server.url, retry=retry, entropy=lambda count: b"\xff" * count)
        assert refusal(latest.fetch, PLACE, 100) == "refused_by_server"
        assert [round(length, 6) for length in naps.lengths] == [1, 2, 4, 5, 5]


@given(st.integers(0, 20), st.binary(min_size=4, max_size=4), st.floats(0, 100))
def test_a_pause_is_in_its_bounds(number, chance, asked):
    retry = RetryPolicy(attempts=10)
    pause = retry.pause(number, chance, asked)
    if number >= 9 or asked > retry.longest:
        assert pause is None
    else:
        assert asked <= pause <= retry.longest
        assert pause >= min(2.0**number, retry.longest) / 2


@pytest.mark.parametrize(
    ("header", "pauses"),
    [
        ("7", [7]),
        ("0", [0.5]),
        ("60", [60]),
        ("61", []),
        ("99999999999999999999999", []),
        ("Sat, 21 Nov 2026 10:00:09 GMT", [9]),
        ("Sat, 21 Nov 2026 09:00:09 GMT", [0.5]),
        ("Sun, 22 Nov 2026 10:00:09 GMT", []),
        ("soon", [0.5]),
        ("-7", [0.5]),
        ("7" * 70, []),
    ],
)
def test_retry_after_is_honoured_within_bounds(web, naps, header, pauses):
    retry = RetryPolicy(seconds=1000, idle=5, attempts=3)
    busy = reply(429, Retry_After=header, Date="Sat, 21 Nov 2026 10:00:00 GMT")
    with scripted(busy, reply(200, b"now")) as server:
        source = web(server.url, retry=retry)
        if pauses:
            assert source.fetch(PLACE, 100).content == b"now"
        else:
            assert refusal(source.fetch, PLACE, 100) == "refused_by_server"
    assert naps.lengths == pauses


def test_no_pause_goes_beyond_the_deadline(web, naps):
    with scripted(reply(429, Retry_After="50")) as server:
        assert refusal(web(server.url, retry=RetryPolicy(seconds=40)).fetch, PLACE, 100) == "refused_by_server"
    assert naps.lengths == []


def test_a_server_that_gave_no_answer_is_not_waited_for_again_for_a_while(web, naps):
    now = [0.0]
    with scripted(b"") as server:
        source = web(server.url, retry=RetryPolicy(attempts=3), monotonic=lambda: now[0])
        assert refusal(source.fetch, PLACE, 100) == "unreachable"
        assert len(server.requests) == 3
        assert refusal(source.fetch, PLACE, 100) == "unreachable"
        assert len(server.requests) == 4
        now[0] = 61.0
        assert refusal(source.fetch, PLACE, 100) == "unreachable"
        assert len(server.requests) == 7


# Conditions -----------------------------------------------------------------------------------------


def test_an_unchanged_file_costs_one_conditional_request(web):
    with scripted(reply(200, b"content", ETag='"abc"'), reply(304), reply(200, b"new", ETag='W/"d"')) as server:
        source = web(server.url)
        first = source.fetch(PLACE, 100)
        assert source.fetch(PLACE, 100, first.tag) == (None, first.tag)
        assert source.fetch(PLACE, 100, first.tag).content == b"new"
    assert [request.headers.get("if-none-match") for request in server.requests] == [None, '"abc"', '"abc"']


def test_a_real_server_by_its_dates(web, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    with tree_server(tmp_path) as (url, log):
        found = web(url).fetch("file", 100)
        assert web(url).fetch("file", 100, found.tag).content is None
    assert [status for _, _, status in log] == [200, 304]


def test_a_date_of_the_same_second_is_not_believed(web):
    date = "Sat, 21 Nov 2026 10:00:00 GMT"
    with scripted(reply(200, b"1", Date=date, Last_Modified=date)) as server:
        assert web(server.url).fetch(PLACE, 100).tag == ""


@pytest.mark.parametrize("etag", ["abc", '"a b"', '"\x80"', '"' + "x" * 300 + '"', "W/abc", '""a"'])
def test_a_strange_tag_is_not_kept(web, etag):
    with scripted(reply(200, b"1", ETag=etag)) as server:
        assert web(server.url).fetch(PLACE, 100).tag == ""


@given(st.text(max_size=80))
def test_no_remembered_tag_can_break_a_request(tag):
    from edge_sdk.transport.http import _conditions

    for value in _conditions(tag).values():
        assert re.fullmatch(r"[\x20-\x7e]+", value)


def test_unchanged_without_a_condition_is_a_refusal(web):
    with scripted(reply(304)) as server:
        assert refusal(web(server.url).fetch, PLACE, 100, "no tag of ours") == "refused_by_server"


# Redirects ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed(web, status):
    with scripted(reply(status, Location="../moved?to=here#part"), reply(200, b"content")) as server:
        assert web(server.url).fetch(PLACE, 100).content == b"content"
    assert server.requests[1].path == "/moved?to=here"


def test_a_loop_of_redirects_ends(web):
    with scripted(reply(302, Location="/again")) as server:
        assert refusal(web(server.url).fetch, PLACE, 100) == "redirect_refused"
    assert len(server.requests) == MAX_REDIRECTS + 1


@pytest.mark.parametrize(
    "target",
    [
        "file:///etc/passwd",
        "ftp://host/x",
        "http://",
        "http://[::1",
        "http://a:b@host/",
        "http://host:99999/",
        "//h\xe9/",
    ],
)
def test_a_redirect_to_something_else_is_refused(web, target):
    with scripted(reply(302, Location=target)) as server:
        assert refusal(web(server.url).fetch, PLACE, 100) == "redirect_refused"


def test_the_token_goes_to_its_server_only(web):
    with scripted(reply(200, b"elsewhere")) as other:
        moved = reply(307, Location=other.url + "/x")
        with scripted(reply(307, Location="/here"), moved) as server:
            assert web(server.url, token="secret").fetch(PLACE, 100).content == b"elsewhere"
    assert [request.headers.get("authorization") for request in server.requests] == ["Bearer secret"] * 2
    assert "authorization" not in other.requests[0].headers


# Sending --------------------------------------------------------------------------------------------


def interim(status, count=1):
    """Interim answers, each with one header."""
    return f"HTTP/1.1 {status} Wait\r\nLink: </style.css>\r\n\r\n".encode() * count


@pytest.mark.parametrize("status", [100, 102, 103, 199])
def test_interim_answers_are_skipped(web, batch, status):
    with scripted(interim(status) + reply(200, b"content"), interim(status, 10) + reply(201)) as server:
        source = web(server.url)
        assert source.fetch(PLACE, 100).content == b"content"
        source.send("reports/a.hsr", str(batch))
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [100, 103])
def test_more_than_ten_interim_answers_are_refused(web, status):
    with scripted(interim(status, 11) + reply(200, b"content")) as server:
        retry = RetryPolicy(seconds=5, attempts=1)
        assert refusal(web(server.url, retry=retry).fetch, PLACE, 100) == "unreachable"


@pytest.mark.parametrize("answer", [interim(103), interim(103)[:-2], interim(103) + b"HTTP/1.1 20"])
def test_an_interim_answer_without_a_final_one_is_no_answer(web, answer):
    with scripted(answer) as server:
        retry = RetryPolicy(seconds=5, attempts=1)
        assert refusal(web(server.url, retry=retry).fetch, PLACE, 100) == "unreachable"


def test_a_change_of_protocol_is_refused(web, batch):
    with scripted(reply(101)) as server:
        assert refusal(web(server.url).fetch, PLACE, 100) == "refused_by_server"
        assert refusal(web(server.url).send, "reports/a.hsr", str(batch)) == "refused_by_server"


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_batch_is_sent_whole(web, batch, method):
    with scripted(reply(201)) as server:
        web(server.url, method=method, token="secret").send("reports/a.hsr", str(batch))
    (request,) = server.requests
    assert (request.method, request.path, request.body) == (method, "/reports/a.hsr", batch.read_bytes())
    assert request.headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize("status", [100, 301, 302, 303, 304, 400, 403, 404, 409, 413])
def test_only_success_counts_as_arrived(web, batch, status):
    with scripted(reply(status, Location="/elsewhere")) as server:
        retry = RetryPolicy(seconds=1, idle=0.3, attempts=1) if status == 100 else RetryPolicy(attempts=1)
        reason = refusal(web(server.url, retry=retry).send, "reports/a.hsr", str(batch))
        assert reason == {100: "unreachable", 409: "file_exists"}.get(status, "refused_by_server")
    assert len(server.requests) == 1


def test_an_upload_that_the_server_kept_before_it_died_is_sent_again_under_its_name(web, batch):
    with scripted(b"", reply(503), reply(200)) as server:
        web(server.url).send("reports/a.hsr", str(batch))
    assert [(request.path, request.body) for request in server.requests] == [("/reports/a.hsr", batch.read_bytes())] * 3


def test_an_answer_cut_in_its_head_is_none(web, batch):
    with scripted(b"HTTP/1.1 200 OK\r\nContent-Le", reply(200)) as server:
        web(server.url).send("reports/a.hsr", str(batch))
    assert len(server.requests) == 2


def test_an_upload_follows_only_redirects_that_keep_it(web, batch):
    with scripted(reply(307, Location="/bucket"), reply(200)) as server:
        web(server.url).send("reports/a.hsr", str(batch))
    assert [(request.path, len(request.body)) for request in server.requests] == [
        ("/reports/a.hsr", 200_000),
        ("/bucket", 200_000),
    ]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(413, "refused_by_server"), (507, "refused_by_server"), (200, "unreachable"), (204, "unreachable")],
)
def test_a_server_that_hangs_up_on_a_long_body_is_heard_only_if_it_refuses(web, tmp_path, status, reason):
    """A status 2xx before the whole file was sent can not mean that the file has arrived."""
    path = tmp_path / "long.hsr"
    path.write_bytes(bytes(8 << 20))
    requests = []

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse():
            connection, _ = listener.accept()
            with connection:
                requests.append(connection.recv(1000))
                connection.sendall(reply(status))
                connection.shutdown(socket.SHUT_WR)
                time.sleep(0.3)

        thread = threading.Thread(target=refuse)
        thread.start()
        source = web(f"http://127.0.0.1:{listener.getsockname()[1]}", retry=RetryPolicy(seconds=5, attempts=1))
        assert refusal(source.send, "reports/a.hsr", str(path)) == reason
        thread.join()
    assert len(requests) == 1


def test_a_server_that_reads_slowly_is_left_at_the_deadline(web, tmp_path):
    path = tmp_path / "long.hsr"
    path.write_bytes(bytes(16 << 20))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        source = web(f"http://127.0.0.1:{listener.getsockname()[1]}", retry=RetryPolicy(seconds=0.5, attempts=1))
        assert refusal(source.send, "reports/a.hsr", str(path)) == "unreachable"
        assert time.monotonic() - began < 15


def test_a_batch_that_can_not_be_read_is_the_devices_trouble(web, tmp_path):
    with scripted(reply(200)) as server:
        assert refusal(web(server.url).send, "reports/a.hsr", str(tmp_path / "none")) == "io_failed"
    assert server.requests == []


# TLS ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*command.split(), *names], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return lambda plain: context.wrap_socket(plain, server_side=True)


def test_https_with_an_authority_that_is_trusted(web, tls, certificate, batch):
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    with scripted(reply(200, b"content"), reply(200), wrap=tls) as server:
        source = web(f"https://127.0.0.1:{server.port}", context=trusting, token="secret")
        assert source.fetch(PLACE, 100).content == b"content"
        source.send("reports/a.hsr", str(batch))
    assert server.requests[1].body == batch.read_bytes()


def test_https_with_one_that_is_not(web, tls, naps):
    with scripted(reply(200, b"content"), wrap=tls) as server:
        assert refusal(web(f"https://127.0.0.1:{server.port}").fetch, PLACE, 100) == "server_untrusted"
    assert server.requests == []
    assert naps.lengths == []


def test_never_from_https_to_http(web, tls, certificate):
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    with scripted(reply(200, b"content")) as plain, scripted(reply(302, Location=plain.url), wrap=tls) as server:
        source = web(f"https://127.0.0.1:{server.port}", context=trusting)
        assert refusal(source.fetch, PLACE, 100) == "redirect_refused"
    assert plain.requests == []


def test_a_tls_handshake_that_never_comes_ends(web):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source = web(f"https://127.0.0.1:{listener.getsockname()[1]}", retry=RetryPolicy(seconds=0.3))
        began = time.monotonic()
        assert refusal(source.fetch, PLACE, 100) == "unreachable"
        assert time.monotonic() - began < 15


# Addresses and tokens -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "http://", "https:///x", "http://user:pw@host/", "http://host/?q", "http://host/#f", "http://host:0/",
        "http://host:x/", "http://ho st/", "http://h\xf6st/", "http://host/\n", "http://[::1/", "ftp://host/",
        "", "a\0b", "https:\\\\host",
    ],
)  # fmt: skip
def test_addresses_that_are_none(address):
    if "://" in address or not address or "\0" in address:
        with pytest.raises(InputError) as caught:
            open_transport(address)
        assert caught.value.reason == "address_invalid"
        assert "pw" not in str(caught.value)
    else:
        with pytest.raises(InputError):
            parse_url(address)


def test_a_token_needs_encryption():
    with pytest.raises(InputError, match="token_invalid"):
        open_transport("http://example.org", token="secret")
    with pytest.raises(InputError, match="token_invalid"):
        open_transport("http://127.0.0.1.example.org", token="secret")
    assert "secret" not in repr(open_transport("https://example.org", token="secret"))
    assert open_transport("http://[::1]:8080", token="secret").address == "http://[::1]:8080/"


@pytest.mark.parametrize("raw", [b"", b"\n", b"two words", b"a\r\nX: y", b"\xff", b"x" * 5000])
def test_tokens_that_are_none(raw):
    with pytest.raises(InputError, match="token_invalid"):
        read_token(raw)


def test_a_token_may_end_with_a_line():
    assert read_token(b"abc.DEF-1\r\n") == "abc.DEF-1"


@pytest.mark.parametrize("place", ["", "/", "a//b", "../x", "a/../b", "a/.", "a\0"])
def test_a_place_leads_down_only(place, web, tmp_path, batch):
    for source in (web("http://127.0.0.1:1"), open_transport(str(tmp_path))):
        assert refusal(source.fetch, place, 100) == "address_invalid"
        assert refusal(source.send, place, str(batch)) == "address_invalid"


def test_the_scripted_server_reads_what_is_sent():
    """The test server records a request as it was made."""
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"PUT /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
        request = read_request(other)
    assert (request.method, request.path, request.body) == ("PUT", "/x", b"abc")


def test_documents_too_large_say_so(web):
    with scripted(reply(200, b"12345")) as server, pytest.raises(DocumentError, match="campaigns/mushrooms"):
        web(server.url).fetch(PLACE, 4)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_authorities_that_are_not_there_are_named(web, tls, naps, monkeypatch, variable):
    monkeypatch.setenv(variable, "/nope")
    with scripted(reply(200, b"content"), wrap=tls) as server:
        error = failure(web(f"https://127.0.0.1:{server.port}").fetch, PLACE, 100)
    assert (error.reason, f"{variable} names '/nope'" in error.detail) == ("server_untrusted", True)
    assert "clock" not in error.detail


def test_a_stranger_is_no_matter_of_the_clock(web, tls, naps):
    with scripted(reply(200, b"content"), wrap=tls) as server:
        detail = failure(web(f"https://127.0.0.1:{server.port}").fetch, PLACE, 100).detail
    assert ("no authority" in detail, "clock" in detail) == (True, False)


@pytest.mark.parametrize(("code", "word"), [(9, "clock"), (10, "clock"), (62, "another host"), (64, "another host")])
def test_dates_point_to_the_clock_and_names_to_the_address(code, word):
    error = ssl.SSLCertVerificationError()
    error.verify_code = code
    assert word in _why_untrusted(error, own_context=False)
