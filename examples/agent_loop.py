"""A whole agent loop: the model asks, `dispatch` runs the calls of each turn, until it is done."""

import asyncio
import sys

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam

from dispatch import Dispatcher, tool
from dispatch.adapters import AnthropicMessages
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


async def agent(task: str, client: AsyncAnthropic) -> str:
    """Work on the task until the model asks for no more calls; return its last words."""
    provider = AnthropicMessages()
    messages: list[MessageParam] = [{"role": "user", "content": task}]
    async with Dispatcher([read_file, edit_file]) as dispatcher:
        while True:
            message = await client.messages.create(
                model="claude-sonnet-5-5",
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


async def main(task: str) -> None:
    """Run the loop with the key in ANTHROPIC_API_KEY."""
    async with AsyncAnthropic() as client:
        print(await agent(task, client))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
