"""An agent loop with OpenAI's SDK and `asyncio.gather`; `openai_dispatch.py` is its twin.

The model is scripted, so no key is needed: python examples/openai_plain.py
"""

import asyncio
import json
from functools import partial
from typing import Any

from eight_calls import CALLS, TOOLS, schema, show
from model_server import model_server
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionToolMessageParam

DEFINITIONS: list[Any] = [
    {
        "type": "function",
        "function": {"name": name, "description": tool.__doc__, "parameters": schema(name)},
    }
    for name, tool in TOOLS.items()
]


async def run(call: Any) -> ChatCompletionToolMessageParam:
    """Run one call."""
    text = await TOOLS[call.function.name](**json.loads(call.function.arguments))
    return {"role": "tool", "tool_call_id": call.id, "content": text}


async def run_or_tell(call: Any) -> ChatCompletionToolMessageParam:
    """Run one call; an error becomes its result."""
    try:
        return await run(call)
    except Exception as error:  # noqa: BLE001 - the model is told
        return {"role": "tool", "tool_call_id": call.id, "content": f"error: {error!r}"}


async def agent(client: AsyncOpenAI, messages: list[Any], run: Any = run) -> str:
    """Work until the model asks for no more calls; return its last words."""
    while True:
        response = await client.chat.completions.create(
            model="any", tools=DEFINITIONS, messages=messages
        )
        message = response.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content or ""
        messages += await asyncio.gather(*(run(call) for call in message.tool_calls))


async def main() -> None:
    """Show the loop with plain gather, and with one whose calls catch their errors."""
    with model_server(CALLS) as server:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
            await show("gather", server, partial(agent, client))
            print()
            await show("gather, errors caught", server, partial(agent, client, run=run_or_tell))


if __name__ == "__main__":
    asyncio.run(main())
