"""The agent loop of `anthropic_plain.py`, its tools unchanged, with `dispatch`.

The model is scripted, so no key is needed: python examples/anthropic_dispatch.py
"""

import asyncio
from functools import partial
from typing import Any

from anthropic import AsyncAnthropic
from eight_calls import CALLS, TOOLS, show
from model_server import model_server

from dispatch import Dispatcher, ToolConcurrency
from dispatch.adapters import AnthropicMessages

TOUCHES = {
    "edit": ToolConcurrency(writes="file:{path}"),
    "read": ToolConcurrency(reads="file:{path}"),
    "publish": ToolConcurrency(reads="file:{path}"),
    "search": ToolConcurrency(safe_parallel=True),
}


async def agent(client: AsyncAnthropic, messages: list[Any]) -> str:
    """Work until the model asks for no more calls; return its last words."""
    provider = AnthropicMessages()
    async with Dispatcher(TOOLS.values(), descriptors=TOUCHES) as dispatcher:
        while True:
            message = await client.messages.create(
                model="any",
                max_tokens=4096,
                tools=provider.tools(dispatcher),
                messages=messages,
            )
            messages.append({"role": "assistant", "content": message.content})
            calls = provider.calls(message)
            if not calls:
                return "".join(block.text for block in message.content if block.type == "text")
            turn = await dispatcher.run(calls)
            messages.append(provider.reply(turn))


async def main() -> None:
    """Show the loop."""
    with model_server(CALLS) as server:
        async with AsyncAnthropic(base_url=server.url, api_key="any") as client:
            await show("dispatch", server, partial(agent, client))


if __name__ == "__main__":
    asyncio.run(main())
