"""A URL that a model may ask for, taken apart once: for the claim and for the connection.

Pure. Invariant: what is claimed, checked and connected to comes from the same `Target`, so no
two parsers can disagree about the host. Two spellings of one path have one key: escapes, `.`,
`..`, empty segments and the query do not count. Two names of one server remain two resources.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from dispatch.claims import Key
from dispatch.errors import ToolError
from dispatch.render import preview

URL_LIMIT = 8192
HOST_LIMIT = 253
DEPTH_LIMIT = 64
"""Segments of a path in a key; a deeper path is claimed by its first ones, which cover more."""

PORTS = {"http": 80, "https": 443}
HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
NO_URL = re.compile(r"[\x00-\x20\x7f\\]")
UNESCAPED = "/%:@!$&'()*+,;=-._~?[]"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes. `host` is lower-case ASCII, without brackets; `path` has the query."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> Target:
        """Take a URL apart. Raises `ToolError` for whatever is not plainly http or https."""
        if len(url) > URL_LIMIT:
            raise ToolError(f"the URL has {len(url):,} characters; {URL_LIMIT:,} is the limit")
        if NO_URL.search(url):
            raise _no_url(url, "it has spaces, control characters or backslashes; escape them")
        try:
            parts = urlsplit(url)
            port = parts.port
            path = quote(f"{parts.path}?{parts.query}" if parts.query else parts.path, UNESCAPED)
        except ValueError as error:
            raise _no_url(url, str(error)) from None
        if parts.scheme not in PORTS:
            raise _no_url(url, "it must begin with http:// or https://")
        if "@" in parts.netloc:
            # Not quoted: the text may go to logs that nobody guards.
            raise ToolError("a URL with a user name or password is refused; leave it out")
        if port == 0:
            raise _no_url(url, "no server has port 0")
        return cls(parts.scheme, _host(parts, url), port or PORTS[parts.scheme], _rooted(path))

    def joined(self, location: str) -> Target:
        """Return where a redirect from here leads. Raises `ToolError`."""
        try:
            return Target.parse(urljoin(self.url, location.strip()))
        except (ToolError, ValueError) as error:
            raise ToolError(f"a redirect from {preview(self.url)} is refused: {error}") from None

    @property
    def authority(self) -> str:
        """The host, and the port unless it is the usual one: what `Host` says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole of it."""
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def origin(self) -> str:
        """Scheme, host and port, always with the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def key(self) -> Key:
        """The resource: `("http", origin, *segments of the path)`."""
        # Unescaped first: whether a server takes `%2F` for a slash is not known, so it is one.
        path = unquote(self.path.partition("?")[0])
        return ("http", self.origin, *_segments(path.split("/"))[:DEPTH_LIMIT])

    def at(self, address: str) -> str:
        """Return the URL with the host replaced by an address, to connect to just that."""
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def _host(parts: SplitResult, url: str) -> str:
    host = (parts.hostname or "").removesuffix(".")
    try:
        if ":" in host:
            return str(ipaddress.IPv6Address(host if "%" not in host else ""))
        if len(host) <= HOST_LIMIT and not host.isascii():
            host = host.encode("idna").decode("ascii").lower()
    except ValueError:
        raise _no_url(url, "its host is no host name") from None
    if len(host) > HOST_LIMIT or not HOST.fullmatch(host):
        raise _no_url(url, "its host is no host name")
    return host


def _rooted(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def _segments(parts: Iterable[str]) -> list[str]:
    segments: list[str] = []
    for part in parts:
        if part == "..":
            del segments[-1:]
        elif part not in ("", "."):
            segments.append(part)
    return segments


def _no_url(url: str, reason: str) -> ToolError:
    return ToolError(f"{preview(url)} is no URL that can be fetched: {reason}")
