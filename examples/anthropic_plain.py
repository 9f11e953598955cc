"""An agent loop with Anthropic's SDK and `asyncio.gather`; `anthropic_dispatch.py` is its twin.

The model is scripted, so no key is needed: python examples/anthropic_plain.py
"""

import asyncio
from functools import partial
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.types import ToolResultBlockParam, ToolUseBlock
from eight_calls import CALLS, TOOLS, schema, show
from model_server import model_server

DEFINITIONS: list[Any] = [
    {"name": name, "description": tool.__doc__, "input_schema": schema(name)}
    for name, tool in TOOLS.items()
]


async def run(call: ToolUseBlock) -> ToolResultBlockParam:
    """Run one call."""
    text = await TOOLS[call.name](**call.input)
    return {"type": "tool_result", "tool_use_id": call.id, "content": text}


async def run_or_tell(call: ToolUseBlock) -> ToolResultBlockParam:
    """Run one call; an error becomes its result."""
    try:
        return await run(call)
    except Exception as error:  # noqa: BLE001 - the model is told
        told = f"error: {error!r}"
        return {"type": "tool_result", "tool_use_id": call.id, "content": told, "is_error": True}


async def agent(client: AsyncAnthropic, messages: list[Any], run: Any = run) -> str:
    """Work until the model asks for no more calls; return its last words."""
    while True:
        message = await client.messages.create(
            model="any", max_tokens=4096, tools=DEFINITIONS, messages=messages
        )
        messages.append({"role": "assistant", "content": message.content})
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in message.content if block.type == "text")
        results = await asyncio.gather(*(run(call) for call in calls))
        messages.append({"role": "user", "content": results})


async def main() -> None:
    """Show the loop with plain gather, and with one whose calls catch their errors."""
    with model_server(CALLS) as server:
        async with AsyncAnthropic(base_url=server.url, api_key="any") as client:
            await show("gather", server, partial(agent, client))
            print()
            await show("gather, errors caught", server, partial(agent, client, run=run_or_tell))


if __name__ == "__main__":
    asyncio.run(main())
