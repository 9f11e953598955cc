import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import respx

from dispatch import Dispatcher, Limits, ToolCall, plan, read, write
from dispatch.errors import ToolError
from dispatch.toolkit import fetch, http_tool
from dispatch.toolkit.fetch import BODY_LIMIT, REDIRECT_LIMIT
from tests.toolkit.server import OTHER, PUBLIC, called, fetched, refused


@pytest.fixture
def web(names: dict[str, list[str]]) -> Iterator[respx.MockRouter]:
    """No connection is made; every request must be one that the test expects."""
    with respx.mock as router:
        yield router


def test_httpx_is_imported_by_the_first_call_only() -> None:
    """The toolkit can be imported, and the tool declared and planned, without httpx."""
    code = (
        "import sys; sys.modules['httpx'] = None; from dispatch.toolkit import http_tool;"
        " from dispatch import plan, ToolCall, Dispatcher;"
        " calls = [ToolCall('1', 'http_fetch', {'url': 'http://example.com'})];"
        " plan(calls, [http_tool()]); print(Dispatcher([http_tool()]).run_sync(calls)[0].content())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    expected = "[error] http_fetch needs httpx: pip install tool-dispatch[http]\n"
    assert expected == done.stdout.decode()


async def test_a_response_is_shown_with_status_and_headers(web: respx.MockRouter) -> None:
    """The request goes to the address that was checked, and tells the server the name."""
    route = web.get(f"http://{PUBLIC}/a", params={"b": "c"}).respond(
        text="text", headers={"x-other": "1", "etag": '"v1"'}
    )
    expected = 'HTTP 200 OK\ncontent-type: text/plain; charset=utf-8\ncontent-length: 4\netag: "v1"'
    assert f"{expected}\n\ntext" == await fetched("http://example.com/a?b=c#d")
    request = route.calls.last.request
    assert ("example.com", "example.com") == (
        request.headers["host"],
        request.extensions["sni_hostname"],
    )


async def test_a_status_above_400_is_a_result(web: respx.MockRouter) -> None:
    """A failed request is marked in its first line, and its body is shown like any other."""
    web.get(f"https://{PUBLIC}/").respond(404, text="not here")
    shown = await fetched("https://example.com")
    assert shown.startswith("HTTP 404 Not Found [the request failed]\n")
    assert shown.endswith("\n\nnot here")


async def test_a_write_is_sent_as_it_was_given(web: respx.MockRouter) -> None:
    """Method, headers and body reach the server; what belongs to the connection is ours."""
    route = web.post(f"http://{PUBLIC}:8080/").respond(201)
    headers = {"Content-Type": "application/json", "X-Key": " a ", "User-Agent": "mine"}
    shown = await fetched(
        "http://example.com:8080", method="POST", headers=headers, body='{"é": 1}'
    )
    request = route.calls.last.request
    assert shown.startswith("HTTP 201 Created")
    assert '{"é": 1}'.encode() == request.content
    sent = [request.headers[name] for name in ("content-type", "x-key", "user-agent", "host")]
    assert ["application/json", "a", "mine", "example.com:8080"] == sent


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "other"}, "the header 'host' cannot be set"),
        ({"Content-Length": "1"}, "the header 'content-length' cannot be set"),
        ({"Transfer-Encoding": "chunked"}, "the header 'transfer-encoding' cannot be set"),
        ({"Proxy-Authorization": "x"}, "the header 'proxy-authorization' cannot be set"),
        ({"X-Forwarded-For": "127.0.0.1"}, "the header 'x-forwarded-for' cannot be set"),
        ({"a": "b\r\nHost: c"}, "the header 'a' has characters no header can have"),
        ({"a": "b\nc"}, "the header 'a' has characters no header can have"),
        ({"a": "é"}, "the header 'a' has characters no header can have"),
        ({"a\r\nb": "c"}, "the header 'a\\r\\nb' has characters no header can have"),
        ({"a:": "c"}, "the header 'a:' has characters no header can have"),
        ({"": "c"}, "the header '' has characters no header can have"),
        ({f"a{n}": "" for n in range(33)}, "too many headers"),
        ({"a": "b" * 8192}, "too many headers"),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_headers_that_could_change_the_request_are_refused(
    web: respx.MockRouter, headers: dict[str, str], expected: str
) -> None:
    """Nothing is sent with a header that is not one header of the model's own."""
    assert str(await refused("http://example.com", headers=headers)).startswith(expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"body": ""}, "a GET has no body"),
        ({"method": "HEAD", "body": "x"}, "a HEAD has no body"),
        ({"method": "PUT", "body": "\ud800"}, "body has half a character"),
        ({"method": "PUT", "body": "x" * (BODY_LIMIT + 1)}, "the body has 1,048,577 bytes"),
    ],
    ids=["GET", "HEAD", "surrogate", "too long"],
)
async def test_a_body_that_cannot_be_sent_is_refused(
    web: respx.MockRouter, arguments: dict[str, str], expected: str
) -> None:
    """Reads have no body, and a body is bounded text."""
    assert str(await refused("http://example.com", **arguments)).startswith(expected)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/",
        "http://127.0.0.1:8080/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest/meta-data/",
        "http://intranet.example/",
    ],
)
async def test_what_is_not_public_is_refused(
    web: respx.MockRouter, names: dict[str, list[str]], url: str
) -> None:
    """No request is made to this machine, its networks or its cloud's metadata."""
    names |= {"intranet.example": ["192.168.1.1"], "localhost": ["127.0.0.1"]}
    assert "is not at a public address" in str(await refused(url))


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("http://169.254.169.254/", "host '169.254.169.254' is not at a public address"),
        ("//intranet.example/", "host 'intranet.example' is not at a public address"),
        ("http://127.0.0.1:6379/", "host '127.0.0.1' is not at a public address"),
        ("file:///etc/passwd", "must begin with http:// or https://"),
        ("http://user:pass@example.com/", "a URL with a user name or password is refused"),
    ],
)
async def test_a_redirect_is_checked_like_a_request(
    web: respx.MockRouter, names: dict[str, list[str]], location: str, expected: str
) -> None:
    """A public server cannot send a request to where it could not have gone by itself."""
    names["intranet.example"] = ["192.168.1.1"]
    web.get(f"http://{PUBLIC}/").respond(302, headers={"location": location})
    assert expected in str(await refused("http://example.com"))


async def test_a_name_that_changes_its_address_gains_nothing(
    web: respx.MockRouter, names: dict[str, list[str]]
) -> None:
    """A name is resolved once for each connection, which goes to the very address checked."""
    names["example.com"] = [PUBLIC, "127.0.0.1"]
    web.get(f"http://{PUBLIC}/").respond(302, headers={"location": "/again"})
    assert "is not at a public address" in str(await refused("http://example.com"))
    assert ["127.0.0.1"] == names["example.com"]


async def test_redirects_of_a_read_are_followed(web: respx.MockRouter) -> None:
    """The response says where it is from; credentials do not go to another origin."""
    web.head(f"http://{PUBLIC}/a").respond(301, headers={"location": "b"})
    same = web.head(f"http://{PUBLIC}/b").respond(307, headers={"location": "//other.example/c"})
    other = web.head(f"http://{OTHER}/c").respond(200)
    headers = {"Authorization": "secret", "Cookie": "secret", "Accept": "text/html", "X-Key": "x"}
    shown = await fetched("http://example.com/a", method="HEAD", headers=headers)
    assert "HTTP 200 OK\nredirected to http://other.example/c" == shown
    assert {"authorization", "cookie", "accept", "x-key"} <= set(same.calls.last.request.headers)
    sent = other.calls.last.request.headers
    assert {"accept"} == {"authorization", "cookie", "accept", "x-key"} & set(sent)
    assert ("text/html", "other.example") == (sent["accept"], sent["host"])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_redirect_of_a_write_is_a_result(
    web: respx.MockRouter, method: str, status: int
) -> None:
    """A write goes to what it claimed and to nothing else; the model is told where to look."""
    web.request(method, f"http://{PUBLIC}/").respond(status, headers={"location": "/b"})
    shown = await fetched("http://example.com", method=method, body="x")
    assert f"HTTP {status}" == shown[:8]
    assert shown.endswith("\nlocation: /b")


async def test_redirects_come_to_an_end(web: respx.MockRouter) -> None:
    """A circle is left after so many redirects; that many are followed."""
    route = web.get(f"http://{PUBLIC}/").respond(302, headers={"location": "/"})
    expected = f"'http://example.com/' redirects more than {REDIRECT_LIMIT} times"
    assert expected == str(await refused("http://example.com"))
    assert REDIRECT_LIMIT + 1 == route.call_count


async def test_the_next_address_is_tried(
    web: respx.MockRouter, names: dict[str, list[str]]
) -> None:
    """Where no connection can be made nothing was sent, so a name's next address is asked."""
    names["example.com"] = [f"{PUBLIC} {OTHER}"]
    web.post(f"http://{PUBLIC}/").mock(side_effect=httpx.ConnectError("refused"))
    web.post(f"http://{OTHER}/").respond(text="here")
    assert (await fetched("http://example.com", method="POST")).endswith("here")


@pytest.mark.parametrize(
    ("method", "error", "expected", "retryable"),
    [
        ("GET", httpx.ConnectError("no route"), "cannot connect to 'example.com': no route", True),
        ("POST", httpx.ConnectError("no route"), "cannot connect to 'example.com': no", True),
        ("POST", httpx.ConnectTimeout(""), "cannot connect to 'example.com': no answer", True),
        ("GET", httpx.ReadError("reset"), "GET 'http://example.com/' failed: reset", True),
        ("PUT", httpx.ReadError(""), "PUT 'http://example.com/' failed: ReadError", True),
        ("GET", httpx.ReadTimeout(""), "GET 'http://example.com/' failed: no answer", True),
        ("POST", httpx.ReadError("reset"), "reset; it may have taken effect, so look", False),
        ("PATCH", httpx.RemoteProtocolError("bad"), "bad; it may have taken effect", False),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_failure_says_whether_it_may_pass(
    web: respx.MockRouter, method: str, error: Exception, expected: str, retryable: bool
) -> None:
    """What may be repeated is retryable; a write that may have been done twice then is not."""
    web.request(method, f"http://{PUBLIC}/").mock(side_effect=error)
    caught = await refused("http://example.com", method=method)
    assert expected in str(caught)
    assert retryable == caught.retryable


ORIGIN = "https://example.com:443"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {read("http", ORIGIN, "a", "b")}),
        ({"method": "HEAD"}, {read("http", ORIGIN, "a", "b")}),
        ({"method": "POST"}, {write("http", ORIGIN, "a", "b")}),
        ({"method": "DELETE"}, {write("http", ORIGIN, "a", "b")}),
        ({"url": "https://example.com", "method": "PUT"}, {write("http", ORIGIN)}),
        ({"url": "no url", "method": "PUT"}, set()),
    ],
    ids=str,
)
def test_the_claim_follows_method_and_path(arguments: dict[str, str], expected: set[Any]) -> None:
    """Reads share a path, a write has it for itself; what is refused claims nothing."""
    given = {"url": "https://EXAMPLE.com/a/./b?c", "method": "GET", **arguments}
    claims, warning = http_tool().claims(given)
    assert (expected, None) == ({claim for claim in claims if claim.key[0] == "http"}, warning)


def test_a_write_and_a_read_of_one_path_keep_their_order() -> None:
    """Reads run together; a write of a path waits for them, and what is below it for the write."""
    steps = [("GET", "/a/b"), ("GET", "/a/b"), ("POST", "/a"), ("GET", "/a/b"), ("POST", "/c")]
    calls = [
        ToolCall(f"{n}", "http_fetch", {"url": f"http://example.com{path}", "method": method})
        for n, (method, path) in enumerate(steps)
    ]
    assert ((0, 1, 4), (2,), (3,)) == plan(calls, [http_tool()]).groups


async def test_calls_can_be_limited_by_tag(web: respx.MockRouter) -> None:
    """A limit for the tag `http` counts every fetch."""
    running: list[int] = []
    peaks: list[int] = []

    async def respond(request: httpx.Request) -> httpx.Response:
        running.append(1)
        peaks.append(len(running))
        for _ in range(50):
            await asyncio.sleep(0)
        running.pop()
        return httpx.Response(200)

    web.get(f"http://{PUBLIC}/").mock(side_effect=respond)
    calls = [ToolCall(f"{n}", "http_fetch", {"url": "http://example.com"}) for n in range(4)]
    limits = Limits(total=8, per_tag={"http": 1})
    async with Dispatcher([http_tool()], limits=limits) as dispatcher:
        await dispatcher.run(calls)
    assert [1] * 4 == peaks


@pytest.mark.parametrize(
    "arguments",
    [{"method": "get"}, {"max_bytes": 0}, {"max_bytes": 2**40}, {"timeout": 0}, {"timeout": 1e9}],
    ids=str,
)
async def test_arguments_out_of_bounds_never_reach_the_tool(arguments: dict[str, Any]) -> None:
    """Bounds are part of the schema, so the model is told what would be right."""
    result = await called("127.0.0.1", url="http://127.0.0.1", **arguments)
    assert result.content().startswith(f"[error] invalid arguments: {next(iter(arguments))}: ")


def test_without_httpx_a_call_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure names the extra."""
    monkeypatch.setitem(sys.modules, "httpx", None)
    fetch._trust.cache_clear()
    with pytest.raises(ToolError, match=r"pip install tool-dispatch\[http\]"):
        fetch._trust()
