"""Fetching from a real server, which sees what is sent and when the client goes."""

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dispatch import Dispatcher, Status, ToolCall
from dispatch.runtime.cancel import CancelToken
from dispatch.toolkit import http_tool
from tests.toolkit.bench import context_of
from tests.toolkit.server import (
    beginning,
    called,
    fetched,
    flood,
    nothing,
    refused,
    saying,
    serving,
)


async def test_a_real_request_is_what_it_should_be() -> None:
    """To the byte: nothing of the environment or of the HTTP library's habits is in it."""
    async with serving(saying()) as server:
        shown = await fetched(server.url("/a%20b?c"), private=("127.0.0.1",))
    expected = (
        f"GET /a%20b?c HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\nAccept: */*\r\n"
        "user-agent: tool-dispatch\r\naccept-encoding: gzip\r\nconnection: close\r\n\r\n"
    )
    assert [expected.encode()] == server.requests
    assert "HTTP 200 OK\ncontent-type: text/plain\ncontent-length: 5\n\nhello" == shown


async def test_proxies_and_netrc_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A proxy would connect to whatever it likes, and a netrc has credentials."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with serving(saying()) as server:
        assert (await fetched(server.url(), private=("127.0.0.1",))).endswith("hello")
    assert b"authorization" not in server.requests[0].lower()


@pytest.mark.parametrize("answer", [nothing, beginning], ids=["waiting", "reading"])
async def test_cancelling_closes_the_connection(answer: Any) -> None:
    """The server sees the client go, while it is silent and in the middle of a body."""
    async with serving(answer) as server:
        running = asyncio.create_task(called("127.0.0.1", url=server.url()))
        await server.asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with asyncio.timeout(5):
            await server.disconnected.wait()


async def test_the_token_alone_closes_the_connection() -> None:
    """A cancelled token ends the request at once; no grace has to pass first."""
    token = CancelToken()
    context = context_of("http_fetch", token)
    async with serving(nothing) as server:
        tool = http_tool(private_hosts=["127.0.0.1"])
        running = asyncio.create_task(tool(url=server.url(), ctx=context))
        await server.asked.wait()
        token.cancel("enough")
        async with asyncio.timeout(5):
            await server.disconnected.wait()
            with pytest.raises(asyncio.CancelledError):
                await running


@pytest.mark.parametrize("answer", [nothing, beginning], ids=["waiting", "reading"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_above_its_time_fails(answer: Any, method: str) -> None:
    """The time is for all of it; the connection is closed, and only a read is worth repeating."""
    async with serving(answer) as server:
        result = await called("127.0.0.1", url=server.url(), method=method, timeout=0.1)
        await server.disconnected.wait()
    assert f"failed: no answer within 0.1 s{'; it may' * (method == 'POST')}" in result.content()
    assert result.failure is not None
    assert ("GET" == method) == result.failure.retryable


async def test_the_limit_of_the_call_closes_the_connection_too() -> None:
    """A call that times out has really stopped: it is not abandoned."""
    async with serving(nothing) as server:
        async with Dispatcher([http_tool(private_hosts=["127.0.0.1"])]) as dispatcher:
            call = ToolCall("1", "http_fetch", {"url": server.url()}, timeout=0.1)
            result = (await dispatcher.run([call]))[0]
        await server.disconnected.wait()
    assert Status.TIMED_OUT == result.status


async def test_a_flood_is_cut_off() -> None:
    """No more than was asked for is read of a body without end, and the server sees it."""
    async with serving(flood) as server:
        shown = await fetched(server.url(), private=("127.0.0.1",), max_bytes=10)
        await server.disconnected.wait()
    note = "[only the first 10 bytes are shown; ask for more with max_bytes]"
    assert f"HTTP 200 OK\ncontent-type: text/plain\n\n{'x' * 10}\n{note}" == shown


async def test_a_server_that_hangs_up_is_a_failure() -> None:
    """A connection that ends before its answer is told as what it is."""

    async def hang_up(writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with serving(hang_up) as server:
        result = await called("127.0.0.1", url=server.url())
    assert "failed: Server disconnected without sending a response." in result.content()


async def test_nobody_there_is_a_failure() -> None:
    """A port that nobody listens on is told as that."""
    async with serving(nothing) as server:
        url = server.url()
    caught = await refused(url, private=("127.0.0.1",))
    assert str(caught).startswith(f"cannot connect to '127.0.0.1:{server.port}': ")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for `secure.example`, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=test", *files),
            *("-addext", "subjectAltName=DNS:secure.example"),
        ],
        check=True,
        capture_output=True,
    )
    both = folder / "both"
    both.write_text((folder / "key").read_text() + (folder / "certificate").read_text())
    return both


@pytest.mark.parametrize(
    ("host", "expected"),
    [("secure.example", "hello"), ("other.example", "CERTIFICATE_VERIFY_FAILED")],
)
async def test_a_certificate_must_be_for_the_name(
    certificate: Path, names: dict[str, list[str]], host: str, expected: str
) -> None:
    """Though the connection goes to an address, it is the name that the certificate proves."""
    names |= {"secure.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    trust = ssl.create_default_context(cafile=str(certificate))
    tool = http_tool(private_hosts=[host], ssl_context=trust)
    async with serving(saying(), tls) as server:
        call = ToolCall("1", "http_fetch", {"url": server.url(host=host, scheme="https")})
        async with Dispatcher([tool]) as dispatcher:
            result = (await dispatcher.run([call]))[0]
    assert expected in result.content()
