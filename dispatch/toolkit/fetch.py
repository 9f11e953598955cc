"""`http_fetch`: one HTTP request, with httpx, which is imported when the first call runs.

Owns what is sent, which redirects are followed, and the claims. Invariants: every connection, of
a redirect too, goes to the very address that was checked, so a name that changes its address in
between gains nothing; proxies and stored credentials of the environment are not used; nothing is
kept from one call to the next; when the call is cancelled the connection is closed at once.

A GET or HEAD claims its URL's path for reading and everything else for itself alone. Where a
redirect leads cannot be claimed, since nobody knows before: so reads follow it, and the redirect
of a write is a result, with its `location`.
"""

from __future__ import annotations

import asyncio
import functools
import re
import ssl
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field

from dispatch.claims import Claim, read, write
from dispatch.errors import ToolError
from dispatch.render import one_line, preview
from dispatch.runtime.activity import ACTIVITY
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import CallContext
from dispatch.runtime.threads import run_apart
from dispatch.tool import Tool
from dispatch.toolkit.addresses import THREADS, Reach
from dispatch.toolkit.responses import Body, report
from dispatch.toolkit.urls import Target

if TYPE_CHECKING:
    import httpx

SHOWN = 64 * 1024
SHOWN_LIMIT = 1024 * 1024
"""Bytes of a body that one call shows, unless told otherwise and at most."""

BODY_LIMIT = 1024 * 1024
"""Bytes of a body that one call sends."""

TIMEOUT = 30.0
TIMEOUT_LIMIT = 300.0
CONNECT_TIMEOUT = 10.0
"""Seconds: of a whole call, and of one try to connect."""

HEADER_COUNT = 32
HEADERS_LIMIT = 8192
REDIRECT_LIMIT = 5

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
READS = frozenset({"GET", "HEAD"})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
REPEATABLE = READS | {"PUT", "DELETE"}
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
OUR_HEADERS = re.compile(
    "host|connection|keep-alive|te|trailer|transfer-encoding|content-length|upgrade|expect"
    "|accept-encoding|proxy-.*|forwarded|x-forwarded-.*|x-real-ip"
)
"""What the connection is made of, and what a server may take for the word of a proxy."""

HARMLESS_HEADERS = frozenset({"accept", "accept-language", "user-agent"})
"""What is still sent when a redirect leads to another origin; all others may be credentials."""

T = TypeVar("T")


def http_tool(
    *,
    private_hosts: Iterable[str] = (),
    allow_private: bool = False,
    ssl_context: ssl.SSLContext | None = None,
) -> Tool:
    """Return `http_fetch`, which reaches public addresses only; its tag is `http`.

    Args:
        private_hosts: Host names and addresses that may be at any address, too.
        allow_private: Whether every host may be at a loopback or private address. Addresses of
            cloud metadata, link-local and multicast ones stay closed.
        ssl_context: Whom to trust; None is what httpx trusts.

    It needs the extra `http`; without it every call fails and says so. A call that is cancelled
    closes its connection; whether a request that was being sent took effect is then not known.
    """
    reach = Reach(private_hosts, allow_private=allow_private)

    async def http_fetch(
        url: str,
        ctx: CallContext,
        method: Method = "GET",
        headers: dict[str, str] | None = None,
        body: str | None = None,
        max_bytes: Annotated[int, Field(ge=1, le=SHOWN_LIMIT)] = SHOWN,
        timeout: Annotated[float, Field(gt=0, le=TIMEOUT_LIMIT)] = TIMEOUT,
    ) -> str:
        """Send one HTTP request and return status, some headers and the text of the body.

        A status of 400 and above is a result too. Only public hosts can be reached, and no
        credentials can stand in the URL. `max_bytes` bounds the body that is shown, and
        `timeout` is in seconds.
        """
        request = _Request(
            method, Target.parse(url), _checked_headers(headers or {}), _encoded(method, body)
        )
        context = await run_apart(THREADS, _trust)
        fetch = _Fetch(reach, ssl_context or context, max_bytes)
        return await _until_cancelled(ctx.token, fetch.result(request, timeout))

    return Tool("http_fetch", http_fetch, resource_keys=_claims, tags=["http"])


def _claims(arguments: Mapping[str, Any]) -> Iterable[Claim]:
    try:
        key = Target.parse(arguments["url"]).key
    except ToolError:
        return []  # nothing is sent
    return [read(*key) if arguments["method"] in READS else write(*key)]


@functools.cache
def _trust() -> ssl.SSLContext:
    """Import httpx and read the certificates, once; it takes a while, so not on the loop."""
    try:
        import httpx
    except ImportError:
        raise ToolError("http_fetch needs httpx: pip install tool-dispatch[http]") from None
    return httpx.create_ssl_context()


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: Target
    headers: Mapping[str, str]
    body: bytes | None

    @property
    def sent_headers(self) -> dict[str, str]:
        """The model's headers and ours."""
        return {
            "user-agent": "tool-dispatch",
            **self.headers,
            "host": self.target.authority,
            "accept-encoding": "gzip",
            "connection": "close",
        }

    def redirected(self, status: int, location: str) -> _Request | None:
        """Return the request that follows a redirect; None if there is none to follow."""
        if self.method not in READS or status not in REDIRECTS or not location:
            return None
        target = self.target.joined(location)
        kept = self.headers
        if target.origin != self.target.origin:
            kept = {name: value for name, value in kept.items() if name in HARMLESS_HEADERS}
        return replace(self, target=target, headers=kept)


class _Fetch:
    """One call: its requests one after the other, each on a connection of its own."""

    def __init__(self, reach: Reach, trust: ssl.SSLContext, limit: int) -> None:
        self._reach = reach
        self._trust = trust
        self._limit = limit

    async def result(self, request: _Request, timeout: float) -> str:
        """Return the response for the model. Raises `ToolError`."""
        import httpx

        ACTIVITY.add(1)
        try:
            async with asyncio.timeout(timeout):
                return await self._followed(request)
        except (TimeoutError, httpx.TimeoutException):
            raise _failure(request, f"no answer within {timeout:g} s") from None
        except httpx.TransportError as error:
            raise _failure(request, one_line(str(error) or type(error).__name__)) from error
        finally:
            ACTIVITY.add(-1)

    async def _followed(self, request: _Request) -> str:
        current = request
        for _ in range(REDIRECT_LIMIT + 1):
            response, body = await self._exchanged(current)
            redirected = current.redirected(
                response.status_code, response.headers.get("location", "")
            )
            if redirected is None:
                moved_to = None if current is request else current.target.url
                text = body.text(response.headers.get("content-type", ""))
                return report(response.status_code, response.headers, text, moved_to=moved_to)
            current = redirected
        raise ToolError(f"{preview(request.target.url)} redirects more than {REDIRECT_LIMIT} times")

    async def _exchanged(self, request: _Request) -> tuple[httpx.Response, Body]:
        """Send it to the first address that takes a connection."""
        import httpx

        target = request.target
        reason = ""
        for address in await self._reach.addresses(target.host, target.port):
            try:
                return await self._sent(request, address)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:  # so nothing was sent
                reason = one_line(str(error)) or "no answer"
        raise ToolError(f"cannot connect to {preview(target.authority)}: {reason}", retryable=True)

    async def _sent(self, request: _Request, address: str) -> tuple[httpx.Response, Body]:
        import httpx

        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT)
        async with (
            httpx.AsyncClient(verify=self._trust, trust_env=False, timeout=timeout) as client,
            client.stream(
                request.method,
                request.target.at(address),
                headers=request.sent_headers,
                content=request.body,
                extensions={"sni_hostname": request.target.host},
            ) as response,
        ):
            body = Body(self._limit, response.headers.get("content-encoding", ""))
            async for chunk in response.aiter_raw():
                body.take(chunk)
                if body.is_full:
                    break
            return response, body


async def _until_cancelled(token: CancelToken, work: Coroutine[Any, Any, T]) -> T:
    """Await it in a task of its own, which the token ends at once, without waiting for a grace."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    forget = token.on_cancel(lambda _: loop.call_soon_threadsafe(task.cancel))
    try:
        return await task
    finally:
        forget()


def _failure(request: _Request, reason: str) -> ToolError:
    is_repeatable = request.method in REPEATABLE
    doubt = "" if is_repeatable else "; it may have taken effect, so look before sending it again"
    return ToolError(
        f"{request.method} {preview(request.target.url)} failed: {reason}{doubt}",
        retryable=is_repeatable,
    )


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    size = sum(len(name) + len(value) for name, value in headers.items())
    if len(headers) > HEADER_COUNT or size > HEADERS_LIMIT:
        raise ToolError(
            f"too many headers: at most {HEADER_COUNT}, of {HEADERS_LIMIT:,} characters in all"
        )
    checked = {name.lower(): value.strip() for name, value in headers.items()}
    for name, value in checked.items():
        if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            raise ToolError(
                f"the header {preview(name)} has characters no header can have, such as line ends"
            )
        if OUR_HEADERS.fullmatch(name):
            raise ToolError(f"the header {preview(name)} cannot be set; leave it out")
    return checked


def _encoded(method: str, body: str | None) -> bytes | None:
    if body is None:
        return None
    if method in READS:
        raise ToolError(f"a {method} has no body; leave it out, or use another method")
    try:
        data = body.encode()
    except UnicodeEncodeError:
        raise ToolError("body has half a character (a lone surrogate)") from None
    if len(data) > BODY_LIMIT:
        raise ToolError(f"the body has {len(data):,} bytes; {BODY_LIMIT:,} is the limit")
    return data
