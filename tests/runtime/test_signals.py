"""What is taken for a rate-limit signal: the exceptions of real clients, and odd ones."""

import asyncio
import io
from collections.abc import Iterator, Mapping
from email.message import Message
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError

import anthropic
import httpx
import openai
import pytest
from botocore.exceptions import ClientError
from google.genai import errors

from dispatch import (
    AdaptiveLimit,
    Dispatcher,
    FailureKind,
    Limits,
    ToolCall,
    ToolError,
    tool,
)
from dispatch.runtime.signals import is_rate_limit

LIMITED = (429, 529)
OTHER = (400, 401, 404, 408, 500, 503)


def by_httpx(status: int) -> Exception:
    response = httpx.Response(status, request=httpx.Request("GET", "https://example.org"))
    return httpx.HTTPStatusError(str(status), request=response.request, response=response)


def by_openai(status: int) -> Exception:
    response: Any = httpx.Response(status, request=httpx.Request("POST", "https://example.org"))
    if status == 429:
        return openai.RateLimitError("slow down", response=response, body=None)
    return openai.APIStatusError(str(status), response=response, body=None)


def by_anthropic(status: int) -> Exception:
    response: Any = httpx.Response(status, request=httpx.Request("POST", "https://example.org"))
    if status == 429:
        return anthropic.RateLimitError("slow down", response=response, body=None)
    return anthropic.APIStatusError(str(status), response=response, body=None)


def by_gemini(status: int) -> Exception:
    told = {"error": {"code": status, "message": "no", "status": "RESOURCE_EXHAUSTED"}}
    return errors.APIError(status, told)


def by_boto(status: int) -> Any:
    told: Any = {"Error": {"Code": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(told, "Converse")


def by_urllib(status: int) -> Exception:
    return HTTPError("https://example.org", status, "no", Message(), io.BytesIO())


def by_a_tool(status: int) -> Exception:
    return ToolError("the other side refused", details={"status": status})


CLIENTS = [by_httpx, by_openai, by_anthropic, by_gemini, by_boto, by_urllib, by_a_tool]
clients = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)


@clients
@pytest.mark.parametrize("status", LIMITED)
def test_a_client_that_was_told_to_slow_down(client: Any, status: int) -> None:
    """Each client's own exception with one of these two statuses is a signal."""
    assert is_rate_limit(client(status))


@clients
@pytest.mark.parametrize("status", OTHER)
def test_any_other_status_is_no_signal(client: Any, status: int) -> None:
    """A fault of the request or of the server says nothing of how much it takes."""
    assert not is_rate_limit(client(status))


@clients
def test_what_an_exception_was_raised_from_counts(client: Any) -> None:
    """A tool that says it in its own words, `from` the client's or while handling it."""
    try:
        try:
            raise client(429)
        except Exception as error:
            raise ToolError("try later") from error
    except ToolError as error:
        named = error
    try:
        try:
            raise client(429)
        except Exception:  # noqa: BLE001 - whatever the client raises
            raise RuntimeError("try later")  # noqa: B904 - that is what is tested
    except RuntimeError as error:
        meanwhile = error
    assert (True, True) == (is_rate_limit(named), is_rate_limit(meanwhile))


def test_a_ring_of_causes_is_not_followed_for_ever() -> None:
    """Two exceptions that name each other as their cause are no signal."""
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_rate_limit(first)


class With(Exception):
    """An exception with these attributes."""

    def __init__(self, **attributes: object) -> None:
        super().__init__("odd")
        for name, value in attributes.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    "attributes",
    [
        {"status": 429},
        {"status_code": HTTPStatus.TOO_MANY_REQUESTS},
        {"code": 429, "status": "RESOURCE_EXHAUSTED"},
        {"response": With(status=429)},
        {"status_code": None, "response": With(status_code=529)},
    ],
    ids=str,
)
def test_the_names_under_which_clients_keep_it(attributes: dict[str, object]) -> None:
    """On the exception or on its response, also beside others that say nothing."""
    assert is_rate_limit(With(**attributes))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"status": "429"},
        {"code": b"429", "details": "status 429"},
        {"status_code": [429], "response": 429},
        {"details": {"status": {429}}, "status": print},
        {"details": {"retry_after": 429}},
        {"response": {"ResponseMetadata": None}},
        {"response": {"ResponseMetadata": {}}, "details": {}},
        {"args": (429,)},
    ],
    ids=str,
)
def test_what_only_looks_like_it_is_no_signal(attributes: dict[str, object]) -> None:
    """Whatever foreign classes keep under these names: no error, and no guess."""
    assert not is_rate_limit(With(**attributes))


class Raising(Exception):
    """Every property that may be looked at raises."""

    @property
    def status_code(self) -> int:
        raise RuntimeError("not read yet")

    @property
    def status(self) -> int:
        raise AttributeError("none")

    @property
    def response(self) -> object:
        raise RuntimeError("closed")

    @property
    def details(self) -> object:
        raise KeyError("details")


class RaisingButCode(Raising):
    """The same, but for one."""

    code = 429


def test_a_property_that_raises_is_passed_over() -> None:
    """It neither gets out nor hides what the other names say."""
    assert (False, True) == (is_rate_limit(Raising()), is_rate_limit(RaisingButCode()))


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), TimeoutError(), OSError(429, "no"), ValueError(429)], ids=repr
)
def test_no_number_but_a_status_counts(error: BaseException) -> None:
    """An errno or an argument is no HTTP status, and neither is the lack of an answer."""
    assert not is_rate_limit(error)


class Closed(Mapping[str, object]):
    """A mapping whose content cannot be read any more."""

    def __getitem__(self, key: str) -> object:
        raise RuntimeError("closed")

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize("name", ["details", "response"])
async def test_a_signal_that_cannot_be_read_is_the_calls_own_error(name: str) -> None:
    """What a foreign mapping raises while it is looked at costs nobody a result."""

    @tool(safe_parallel=True)
    async def fails() -> None:
        raise With(**{name: Closed()})

    dispatcher = Dispatcher([fails], limits=Limits(AdaptiveLimit(1, 4)))
    async with asyncio.timeout(10):
        turn = await dispatcher.run([ToolCall("a", "fails", {}), ToolCall("b", "fails", {})])
    assert [FailureKind.TOOL_ERROR] * 2 == [
        result.failure and result.failure.kind for result in turn
    ]


def test_a_member_of_a_group_is_heard() -> None:
    """A tool that asks several at once raises what they told it together."""
    assert is_rate_limit(ExceptionGroup("both", [ValueError("x"), With(status=429)]))
    assert not is_rate_limit(SystemExit(429))
