"""The agent loop of `openai_plain.py`, its tools unchanged, with `dispatch`.

The model is scripted, so no key is needed: python examples/openai_dispatch.py
"""

import asyncio
from functools import partial
from typing import Any

from eight_calls import CALLS, TOOLS, show
from model_server import model_server
from openai import AsyncOpenAI

from dispatch import Dispatcher, ToolConcurrency
from dispatch.adapters import OpenAIChat

TOUCHES = {
    "edit": ToolConcurrency(writes="file:{path}"),
    "read": ToolConcurrency(reads="file:{path}"),
    "publish": ToolConcurrency(reads="file:{path}"),
    "search": ToolConcurrency(safe_parallel=True),
}


async def agent(client: AsyncOpenAI, messages: list[Any]) -> str:
    """Work until the model asks for no more calls; return its last words."""
    provider = OpenAIChat()
    async with Dispatcher(TOOLS.values(), descriptors=TOUCHES) as dispatcher:
        while True:
            response = await client.chat.completions.create(
                model="any", tools=provider.tools(dispatcher), messages=messages
            )
            messages.append(provider.message(response))
            calls = provider.calls(response)
            if not calls:
                return response.choices[0].message.content or ""
            turn = await dispatcher.run(calls)
            messages += provider.reply(turn)


async def main() -> None:
    """Show the loop."""
    with model_server(CALLS) as server:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
            await show("dispatch", server, partial(agent, client))


if __name__ == "__main__":
    asyncio.run(main())
