"""The loops that the SDKs bring along, and one with `dispatch`, as one kind of function.

Each asks the scripted model, runs the calls of its first message with the tools, and sends the
answers. Tools are coroutine functions; loops without `async` get them as plain functions that wait.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anthropic
import openai
from openai.lib import responses_tool_runner as runner

from dispatch import Dispatcher
from dispatch.adapters import AnthropicMessages
from tests.providers.clients import gemini_client, openai_client

Tool = Callable[..., Any]
Host = Callable[[str, Sequence[Tool]], Awaitable[None]]
GO: Any = [{"role": "user", "content": "Go."}]


REQUEST: Any = {"model": "any", "max_tokens": 99, "messages": GO, "thread": False}
"""Without a thread each request has the whole history."""


def blocking(tools: Sequence[Tool]) -> list[Tool]:
    """The tools as plain functions, to be called from another thread."""
    loop = asyncio.get_running_loop()

    def one(tool: Tool) -> Tool:
        @functools.wraps(tool)
        def called(*args: Any, **options: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(tool(*args, **options), loop).result()

        return called

    return [one(tool) for tool in tools]


async def anthropic_runner(url: str, tools: Sequence[Tool], **options: Any) -> None:
    """Anthropic's tool runner."""
    async with anthropic.AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
        own = [anthropic.beta_async_tool(tool) for tool in tools]
        await client.beta.messages.tool_runner(**REQUEST, tools=own, **options).until_done()


async def anthropic_eager(url: str, tools: Sequence[Tool]) -> None:
    """The same where calls run while the reply is read."""
    await anthropic_runner(url, tools, stream=True, run_tools_eagerly=True)


async def anthropic_sync(url: str, tools: Sequence[Tool]) -> None:
    """The same with the client that is not async."""
    own = [anthropic.beta_tool(tool) for tool in blocking(tools)]

    def run() -> None:
        with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as client:
            client.beta.messages.tool_runner(**REQUEST, tools=own).until_done()

    await asyncio.to_thread(run)


def definition(tool: Tool) -> Any:
    """A tool of Responses."""
    return {"type": "function", "name": tool.__name__, "parameters": {}}


async def openai_runner(url: str, tools: Sequence[Tool], **options: Any) -> None:
    """OpenAI's runner for Responses."""

    def registered(tool: Tool) -> runner.AsyncRegisteredFunction:
        async def execute(arguments: dict[str, object]) -> str:
            return str(await tool(**arguments))

        return runner.AsyncRegisteredFunction(definition(tool), execute, independent=True)

    http = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="any", max_retries=0, http_client=http
    ) as client:
        host = runner.AsyncResponsesToolRunner(functions=[registered(tool) for tool in tools])
        request: Any = {"model": "any", "input": GO}
        await host.run(client, request, max_steps=9, **options)


async def openai_sync(url: str, tools: Sequence[Tool]) -> None:
    """The same with the client that is not async."""

    def registered(tool: Tool) -> runner.RegisteredFunction:
        return runner.RegisteredFunction(definition(tool), lambda arguments: tool(**arguments))

    host = runner.ResponsesToolRunner(functions=[registered(tool) for tool in blocking(tools)])

    def run() -> None:
        with openai_client(url) as client:
            host.run(client, {"model": "any", "input": GO}, max_steps=9)

    await asyncio.to_thread(run)


async def openai_eager(url: str, tools: Sequence[Tool]) -> None:
    """The same with its tools marked as independent, so that some run while the model writes."""
    await openai_runner(url, tools, stream=True, eager=True)


def function(tool: Tool) -> Tool:
    """The tool as a function: the SDK copies what it is given, the object of a method too."""
    if not inspect.iscoroutinefunction(tool):
        return tool

    @functools.wraps(tool)
    async def called(*args: Any, **options: Any) -> Any:
        return await tool(*args, **options)

    return called


async def gemini_calling(url: str, tools: Sequence[Tool]) -> None:
    """Google's automatic function calling."""
    client = gemini_client(url)
    try:
        config: Any = {"tools": [function(tool) for tool in tools]}
        await client.aio.models.generate_content(model="any", contents="Go.", config=config)
    finally:
        await client.aio.aclose()
        client.close()


async def gemini_sync(url: str, tools: Sequence[Tool]) -> None:
    """The same with the client that is not async."""
    config: Any = {"tools": blocking(tools)}

    def run() -> None:
        with gemini_client(url) as client:
            client.models.generate_content(model="any", contents="Go.", config=config)

    await asyncio.to_thread(run)


async def dispatched(url: str, tools: Sequence[Tool], dispatcher: Dispatcher | None = None) -> None:
    """A loop with `dispatch`."""
    provider, messages = AnthropicMessages(), list(GO)
    dispatcher = dispatcher or Dispatcher(tools, undeclared="parallel")
    http = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(
        base_url=url, api_key="any", max_retries=0, http_client=http
    ) as client:
        while True:
            message = await client.messages.create(
                model="any",
                max_tokens=99,
                tools=provider.tools(dispatcher),
                messages=messages,
            )
            messages.append(provider.message(message))
            if not (calls := provider.calls(message)):
                return
            messages.append(provider.reply(await dispatcher.run(calls)))
