"""The loop of `agent_loop.py` with OpenAI's Chat Completions, or any server that speaks it."""

import asyncio
import sys

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from dispatch import Dispatcher, tool
from dispatch.adapters import OpenAIChat
from dispatch.toolkit import Folder

WORK = Folder(".")  # the model's paths cannot leave it


@tool(reads="file:{path}")
async def read_file(path: str) -> str:
    """Read a text file."""
    return await asyncio.to_thread(WORK.resolve(path).read_text)


@tool(writes="file:{path}")
async def edit_file(path: str, old: str, new: str) -> str:
    """Replace the text `old` by `new` in a file."""
    text = await asyncio.to_thread(WORK.resolve(path).read_text)
    if old not in text:
        raise ValueError(f"{path} does not contain {old!r}")
    await asyncio.to_thread(WORK.resolve(path).write_text, text.replace(old, new))
    return f"edited {path}"


async def agent(task: str, client: AsyncOpenAI) -> str:
    """Work on the task until the model asks for no more calls; return its last words."""
    provider = OpenAIChat()
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": task}]
    async with Dispatcher([read_file, edit_file]) as dispatcher:
        while True:
            response = await client.chat.completions.create(
                model="gpt-6-sol", tools=provider.tools(dispatcher), messages=messages
            )
            messages.append(provider.message(response))
            calls = provider.calls(response)
            if not calls:
                return response.choices[0].message.content or ""
            turn = await dispatcher.run(calls)
            messages.extend(provider.reply(turn))


async def main(task: str) -> None:
    """Run the loop with the key in OPENAI_API_KEY, at OPENAI_BASE_URL if that is set."""
    async with AsyncOpenAI() as client:
        print(await agent(task, client))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
