"""Fetching, and a real HTTP server on the loopback, which says what a test tells it to."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from dispatch import Dispatcher, ToolCall
from dispatch.call import ToolResult
from dispatch.errors import ToolError
from dispatch.toolkit import http_tool
from tests.toolkit.bench import context_of

PUBLIC = "93.184.216.34"
OTHER = "93.184.216.35"

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers every connection with `answer`; `requests` has what was asked, as it came in."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.port = 0
        self._answer = answer

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
            self.requests.append(head + await reader.readexactly(int(length or 0)))
            self.asked.set()
            # Reads on while it answers: the end of the stream is the client's going away.
            answering = asyncio.ensure_future(self._answer(writer))
            await reader.read()
            answering.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await answering
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.disconnected.set()
            writer.close()


@contextlib.asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await listener.wait_closed()


def saying(
    body: bytes = b"hello", status: str = "200 OK", headers: str = "content-type: text/plain\r\n"
) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return answer


async def nothing(writer: asyncio.StreamWriter) -> None:
    """Keep the connection and say nothing."""
    await asyncio.Event().wait()


async def beginning(writer: asyncio.StreamWriter) -> None:
    """Begin a body and never end it."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbeginning")
    await writer.drain()
    await asyncio.Event().wait()


async def flood(writer: asyncio.StreamWriter) -> None:
    """Send a body without end."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def fetched(url: str, *, private: tuple[str, ...] = (), **arguments: Any) -> str:
    context = context_of("http_fetch")
    text = await http_tool(private_hosts=private)(url=url, ctx=context, **arguments)
    assert isinstance(text, str)
    return text


async def refused(url: str, **arguments: Any) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await fetched(url, **arguments)
    return caught.value


async def called(server_host: str, **arguments: Any) -> ToolResult:
    tool = http_tool(private_hosts=[server_host])
    async with Dispatcher([tool], grace=0.2) as dispatcher:
        return (await dispatcher.run([ToolCall("1", "http_fetch", arguments)]))[0]
