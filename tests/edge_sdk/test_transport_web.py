"""The web as a source, with servers that are slow, wrong, broken or hostile."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.failures import failure, refusal
from support.failures import reason as reason_of
from support.servers import certificate, drip, reply, scripted

from edge_sdk.carriers import open_transport, read_token
from edge_sdk.transport.http import MAX_REDIRECTS, RetryPolicy, Web, _why_untrusted, parse_url
from protocol.errors import StorageError

QUICK = RetryPolicy(seconds=20, idle=5)
PLACE = "campaigns/mushrooms.hsc"


@pytest.fixture
def naps():
    """The pauses, in place of waiting."""
    return []


@pytest.fixture
def web(naps):
    return lambda address, **options: Web(
        address, **{"retry": QUICK, "entropy": bytes, "sleep": naps.append, **options}
    )


def test_a_file_is_fetched_and_an_absent_one_is_none(web):
    with scripted(reply(200, b"content"), reply(404), reply(410)) as server:
        source = web(server.url + "/tree/")
        assert source.fetch(PLACE, 100).content == b"content"
        assert source.fetch(PLACE, 100) is None
        assert source.fetch(PLACE, 100) is None
        assert {request.path for request in server.requests} == {"/tree/campaigns/mushrooms.hsc"}
        assert server.requests[0].headers["host"] == f"127.0.0.1:{server.port}"
        assert "authorization" not in server.requests[0].headers


def test_the_limit_is_exact(web):
    full = reply(200, b"x" * 100)
    with scripted(full, full, reply(200, b"x", length=1 << 40)) as server:
        source = web(server.url)
        assert len(source.fetch(PLACE, 100).content) == 100
        for limit in (99, 100):  # what is announced too large is not waited for
            assert str(failure(source.fetch, PLACE, limit)).startswith(f"too_large: what is at {PLACE} ")


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BLOCK = b"x" * 65536
HTTP_100 = b"HTTP/1.1 100 Continue\r\n\r\n"


def endless(head, block):
    """A step that sends the head, and then the block without end."""

    def step(connection, _):
        connection.sendall(head)
        while True:
            connection.sendall(block)

    return step


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


LONG_HEADERS = OK + (b"a: " + b"b" * 65_000 + b"\r\n") * 99 + b"\r\n"
MANY_HEADERS = OK + (b"a:\r" * 21_000 + b"b\r\n") * 99 + b"\r\n"


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (endless(OK + b"\r\n", BLOCK), "too_large"),
        (endless(CHUNKED, b"10000\r\n" + BLOCK + b"\r\n"), "too_large"),
        *((endless(*head), "unreachable") for head in ((OK, b"A: b\r\n"), (b"", BLOCK), (b"", HTTP_100))),
        (LONG_HEADERS, "unreachable"),
        (MANY_HEADERS, "unreachable"),
        (endless(CHUNKED + b"-1\r\n", BLOCK), "unreachable"),
    ],
)
def test_an_endless_or_long_answer_is_cut_off_in_little_memory(web, step, reason):
    with scripted(step) as server:
        source = web(server.url, retry=RetryPolicy(seconds=1, attempts=1))
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        assert refusal(source.fetch, PLACE, 1 << 18) == reason
        assert tracemalloc.get_traced_memory()[1] - before < 1 << 20
        tracemalloc.stop()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"],
)
def test_a_slow_drip_ends_at_the_deadline(web, head):
    retry = RetryPolicy(seconds=0.3, idle=5)
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
    assert len(naps) == 1


@pytest.mark.parametrize("status", [201, 204, 206, 300, 304, 400, 401, 403, 405, 418])
def test_other_statuses_are_refusals_and_not_tried_again(web, naps, status):
    with scripted(reply(status, b"\x1b[2Jdo not print this")) as server, pytest.raises(StorageError) as caught:
        web(server.url).fetch(PLACE, 100)
    told, _, next_step = str(caught.value).partition("; ")
    assert told == f"refused_by_server: the server answers with status {status}"
    assert ("--token FILE" in next_step) == (status == 401)
    assert len(server.requests) == 1
    assert naps == []


def test_no_server_at_all(web, naps):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert refusal(web(f"http://127.0.0.1:{port}").fetch, PLACE, 100) == "unreachable"
    assert len(naps) == QUICK.attempts - 1
    assert refusal(web("http://host.invalid").fetch, PLACE, 100) == "unreachable"
    assert refusal(web(f"http://{'x' * 70}").fetch, PLACE, 100) == "unreachable"


def test_pauses_double_up_to_a_bound_and_differ_by_chance(web, naps):
    retry = RetryPolicy(seconds=1000, idle=5, attempts=6, first=1, longest=5)
    with scripted(reply(503)) as server:
        assert refusal(web(server.url, retry=retry).fetch, PLACE, 100) == "refused_by_server"
        assert naps == [0.5, 1, 2, 2.5, 2.5]
        naps.clear()
        latest = web(server.url, retry=retry, entropy=lambda count: b"\xff" * count)
        assert refusal(latest.fetch, PLACE, 100) == "refused_by_server"
        assert [round(length, 6) for length in naps] == [1, 2, 4, 5, 5]


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
        ("9" * 23, []),
        ("Sat, 21 Nov 2026 10:00:09 GMT", [9]),
        ("Sat, 21 Nov 2026 09:00:09 GMT", [0.5]),
        ("Sun, 22 Nov 2026 10:00:09 GMT", []),
        ("soon", [0.5]),
        ("-7", [0.5]),
        ("7" * 70, []),
    ],
)
@pytest.mark.parametrize("seconds", [1000, 40])
def test_retry_after_is_honoured_within_bounds_and_never_beyond_the_deadline(web, naps, header, pauses, seconds):
    pauses = [pause for pause in pauses if pause < seconds]
    busy = reply(429, Retry_After=header, Date="Sat, 21 Nov 2026 10:00:00 GMT")
    with scripted(busy, reply(200, b"now")) as server:
        source = web(server.url, retry=RetryPolicy(seconds=seconds, idle=5, attempts=3))
        assert reason_of(source.fetch, PLACE, 100) == (None if pauses else "refused_by_server")
    assert naps == pauses


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


def test_an_unchanged_file_costs_one_conditional_request(web):
    with scripted(reply(200, b"content", ETag='"abc"'), reply(304), reply(200, b"new", ETag='W/"d"')) as server:
        source = web(server.url)
        first = source.fetch(PLACE, 100)
        assert source.fetch(PLACE, 100, first.tag) == (None, first.tag)
        assert source.fetch(PLACE, 100, first.tag).content == b"new"
    assert [request.headers.get("if-none-match") for request in server.requests] == [None, '"abc"', '"abc"']


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
        *("file:///etc/passwd", "ftp://host/x", "http://", "http://[::1", "http://a:b@host/", "http://host:99999/"),
        *("//h\xe9/", "https://" + "a" * 70 + ".example/"),
    ],
)
def test_a_redirect_to_something_else_is_refused(web, target):
    with scripted(reply(302, Location=target)) as server:
        expected = "unreachable" if ".example" in target else "redirect_refused"  # a name that TLS can not encode
        assert refusal(web(server.url).fetch, PLACE, 100) == expected


def test_the_token_goes_to_its_server_only(web):
    with scripted(reply(200, b"elsewhere")) as other:
        moved = reply(307, Location=other.url + "/x")
        with scripted(reply(307, Location="/here"), moved) as server:
            assert web(server.url, token="secret").fetch(PLACE, 100).content == b"elsewhere"
    assert [request.headers.get("authorization") for request in server.requests] == ["Bearer secret"] * 2
    assert "authorization" not in other.requests[0].headers


def interim(status, count=1):
    """Interim answers, each with one header."""
    return f"HTTP/1.1 {status} Wait\r\nLink: </style.css>\r\n\r\n".encode() * count


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        *((interim(status) + reply(200, b"content"), None) for status in (100, 102, 103, 199)),
        (interim(103, 10) + reply(200, b"content"), None),
        *((interim(status, 11) + reply(200, b"content"), "unreachable") for status in (100, 103)),
        (interim(103), "unreachable"),
        (interim(103)[:-2], "unreachable"),
        (interim(103) + b"HTTP/1.1 20", "unreachable"),
        (reply(101), "refused_by_server"),
    ],
)
def test_up_to_ten_interim_answers_are_skipped(web, batch, answer, reason):
    with scripted(answer) as server:
        source = web(server.url, retry=RetryPolicy(seconds=5, attempts=1))
        assert reason_of(source.fetch, PLACE, 100) == reason
        assert reason or source.fetch(PLACE, 100).content == b"content"
        assert reason_of(source.send, "reports/a.hsr", str(batch)) == reason


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


@pytest.mark.parametrize(
    ("answers", "paths"),
    [
        ([b"", reply(503), reply(200)], ["/reports/a.hsr"] * 3),
        ([OK + b"Content-Le", reply(200)], ["/reports/a.hsr"] * 2),
        ([reply(307, Location="/bucket"), reply(200)], ["/reports/a.hsr", "/bucket"]),
    ],
)
def test_an_upload_without_an_answer_is_sent_again_whole_under_its_name(web, batch, answers, paths):
    with scripted(*answers) as server:
        web(server.url).send("reports/a.hsr", str(batch))
    assert [(request.path, request.body) for request in server.requests] == [
        (path, batch.read_bytes()) for path in paths
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
                time.sleep(0.1)

        thread = threading.Thread(target=refuse)
        thread.start()
        source = web(f"http://127.0.0.1:{listener.getsockname()[1]}", retry=RetryPolicy(seconds=5, attempts=1))
        assert refusal(source.send, "reports/a.hsr", str(path)) == reason
        thread.join()
    assert len(requests) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_reads_nothing_or_never_shakes_hands_is_left_at_the_deadline(web, tmp_path, scheme):
    path = tmp_path / "long.hsr"
    path.write_bytes(bytes(16 << 20))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        began = time.monotonic()
        source = web(address, retry=RetryPolicy(seconds=0.4, attempts=1))
        assert refusal(source.send, "reports/a.hsr", str(path)) == "unreachable"
        assert time.monotonic() - began < 15


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def trusting(tls_folder):
    """What trusts the server's certificate."""
    return certificate(tls_folder)


@pytest.fixture
def tls(trusting, tls_folder):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls_folder / "cert.pem", tls_folder / "key.pem")
    return lambda plain: context.wrap_socket(plain, server_side=True)


def test_https_with_an_authority_that_is_trusted(web, tls, trusting, batch):
    with scripted(reply(200, b"content"), reply(200), wrap=tls) as server:
        source = web(f"https://127.0.0.1:{server.port}", context=trusting, token="secret")
        assert source.fetch(PLACE, 100).content == b"content"
        source.send("reports/a.hsr", str(batch))
    assert server.requests[1].body == batch.read_bytes()


def test_never_from_https_to_http(web, tls, trusting):
    with scripted(reply(200, b"content")) as plain, scripted(reply(302, Location=plain.url), wrap=tls) as server:
        source = web(f"https://127.0.0.1:{server.port}", context=trusting)
        assert refusal(source.fetch, PLACE, 100) == "redirect_refused"
    assert plain.requests == []


@pytest.mark.parametrize(
    "address",
    [
        "http://", "https:///x", "http://user:pw@host/", "http://host/?q", "http://host/#f", "http://host:0/",
        "http://host:x/", "http://ho st/", "http://h\xf6st/", "http://host/\n", "http://[::1/", "ftp://host/",
        "", "a\0b", "https:\\\\host",
    ],
)  # fmt: skip
def test_addresses_that_are_none(address):
    error = failure(parse_url if address.startswith("https:\\") else open_transport, address)
    assert error.reason == "address_invalid"
    assert "pw" not in str(error)


def test_a_token_needs_encryption():
    for address in ("http://example.org", "http://127.0.0.1.example.org"):
        assert refusal(open_transport, address, token="secret") == "token_invalid"
    assert "secret" not in repr(open_transport("https://example.org", token="secret"))
    assert open_transport("http://[::1]:8080", token="secret").address == "http://[::1]:8080/"


@pytest.mark.parametrize("raw", [b"", b"\n", b"two words", b"a\r\nX: y", b"\xff", b"x" * 5000])
def test_tokens_that_are_none(raw):
    assert refusal(read_token, raw) == "token_invalid"
    assert read_token(b"abc.DEF-1\r\n") == "abc.DEF-1"


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("SSL_CERT_FILE", "SSL_CERT_FILE names '/nope'"),
        ("SSL_CERT_DIR", "SSL_CERT_DIR names '/nope'"),
        ("", "no authority"),
    ],
)
def test_https_with_an_authority_that_is_not_trusted(web, tls, naps, monkeypatch, variable, said):
    if variable:
        monkeypatch.setenv(variable, "/nope")
    with scripted(reply(200, b"content"), wrap=tls) as server:
        error = failure(web(f"https://127.0.0.1:{server.port}").fetch, PLACE, 100)
    assert (error.reason, said in error.detail, "clock" in error.detail) == ("server_untrusted", True, False)
    assert (server.requests, naps) == ([], [])


@pytest.mark.parametrize(("code", "word"), [(9, "clock"), (10, "clock"), (62, "another host"), (64, "another host")])
def test_dates_point_to_the_clock_and_names_to_the_address(code, word):
    error = ssl.SSLCertVerificationError()
    error.verify_code = code
    assert word in _why_untrusted(error, own_context=False)
