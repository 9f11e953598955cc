"""What an exception says of the other side: whether it was a rate-limit signal.

Knows no HTTP client: the exceptions of all of them carry the status under one of a few names.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping

RATE_LIMITED = frozenset({429, 529})
"""HTTP statuses: too many requests; overloaded, as some model providers say it."""
NAMES = ("status_code", "status", "code")
LOOKED_AT = 16
"""How many exceptions are looked at, from one to what it was raised from and its members."""


def is_rate_limit(error: BaseException) -> bool:
    """Whether this exception, or what it was raised from, has such a status. Never raises.

    Found as `status_code`, `status` or `code` on the exception or its `response` (httpx, the SDKs
    of model providers, aiohttp, urllib), in the metadata of a boto response, and as `status` in the
    details of a `ToolError`; of a group, on any of its members.
    """
    try:
        return any(RATE_LIMITED & set(_statuses(one)) for one in _told(error))
    except (Exception, CancelledError):  # noqa: BLE001 - properties and mappings are foreign
        return False


def _told(error: BaseException) -> list[Exception]:
    """The exception, its members, and what they were raised from; a bounded number of them."""
    found: list[Exception] = []
    stack: list[BaseException | None] = [error]
    while stack and len(found) < LOOKED_AT:
        one = stack.pop()
        if isinstance(one, Exception) and not any(one is other for other in found):
            found.append(one)
            cause = one.__cause__
            stack.append(one.__context__ if cause is None else cause)
            if isinstance(one, ExceptionGroup):
                stack += one.exceptions[:LOOKED_AT]
    return found


def _statuses(error: Exception) -> list[int]:
    response = _plain(error, "response")
    found = [_plain(holder, name) for holder in (error, response) for name in NAMES]
    details = _plain(error, "details")
    if isinstance(details, Mapping):
        found.append(details.get("status"))
    if isinstance(response, Mapping):
        metadata = response.get("ResponseMetadata")
        found.append(metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None)
    return [one for one in found if isinstance(one, int)]


def _plain(holder: object, name: str) -> object:
    try:
        return getattr(holder, name, None)
    except (Exception, CancelledError):  # noqa: BLE001 - a property of a foreign class
        return None
