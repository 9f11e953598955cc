"""The loop of `agent_loop.py` with plain `asyncio.gather`: of two edits of a file, one is lost."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam, ToolUseBlock


async def read_file(path: str) -> str:
    """Read a text file."""
    return await asyncio.to_thread(Path(path).read_text)


async def edit_file(path: str, old: str, new: str) -> str:
    """Replace the text `old` by `new` in a file."""
    text = await asyncio.to_thread(Path(path).read_text)
    if old not in text:
        raise ValueError(f"{path} does not contain {old!r}")
    await asyncio.to_thread(Path(path).write_text, text.replace(old, new))
    return f"edited {path}"


HANDLERS: dict[str, Callable[..., Awaitable[str]]] = {
    "read_file": read_file,
    "edit_file": edit_file,
}


def definition(name: str, *arguments: str) -> ToolParam:
    """Describe a tool that takes texts."""
    properties: dict[str, object] = {argument: {"type": "string"} for argument in arguments}
    return {
        "name": name,
        "description": HANDLERS[name].__doc__ or "",
        "input_schema": {"type": "object", "properties": properties, "required": arguments},
    }


TOOLS = [definition("read_file", "path"), definition("edit_file", "path", "old", "new")]


async def run(call: ToolUseBlock) -> ToolResultBlockParam:
    """Run one call."""
    result: ToolResultBlockParam = {"type": "tool_result", "tool_use_id": call.id}
    try:
        return {**result, "content": await HANDLERS[call.name](**call.input)}
    except Exception as error:  # noqa: BLE001 - the model is told
        return {**result, "content": repr(error), "is_error": True}


async def agent(task: str, client: AsyncAnthropic) -> str:
    """Work on the task until the model asks for no more calls; return its last words."""
    messages: list[MessageParam] = [{"role": "user", "content": task}]
    while True:
        message = await client.messages.create(
            model="claude-sonnet-5-5", max_tokens=4096, tools=TOOLS, messages=messages
        )
        messages.append({"role": "assistant", "content": message.content})
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in message.content if block.type == "text")
        results = await asyncio.gather(*(run(call) for call in calls))
        messages.append({"role": "user", "content": results})


async def main(task: str) -> None:
    """Run the loop with the key in ANTHROPIC_API_KEY."""
    async with AsyncAnthropic() as client:
        print(await agent(task, client))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
