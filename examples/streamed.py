"""One turn twice: its calls run while the model still writes, or once the message is whole.

The model is a script of Anthropic's events, written at the pace of a model. Three calls run at most
at once, and the edits of one file conflict. No key and no network is needed.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from dispatch import Dispatcher, Tool, TurnResult
from dispatch.adapters import AnthropicMessages

PACE = 0.02  # seconds for a piece of the message
PIECE = 6  # characters
LIMIT = 3
CALLS: list[tuple[str, dict[str, str]]] = [
    ("search", {"query": "how a stream breaks"}),
    ("edit", {"path": "notes.md", "text": "1 a stream has events"}),
    ("search", {"query": "what a fragment is"}),
    ("edit", {"path": "notes.md", "text": "2 a call has fragments"}),
    ("search", {"query": "who cuts arguments off"}),
    ("edit", {"path": "notes.md", "text": "3 a fragment has no id"}),
    ("search", {"query": "when a call is whole"}),
    ("edit", {"path": "todo.md", "text": "1 read about events"}),
    ("edit", {"path": "notes.md", "text": "4 an id may come twice"}),
    ("edit", {"path": "todo.md", "text": "2 read about limits"}),
]


class Work:
    """The tools, and the files that they edit."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}
        self.tools = [
            Tool("search", self.search, safe_parallel=True),
            Tool("edit", self.edit, writes="file:{path}"),
        ]

    async def search(self, query: str) -> str:
        """Search the web."""
        await asyncio.sleep(0.7)
        return f"a page about {query}"

    async def edit(self, path: str, text: str) -> str:
        """Add a line at the end of a file."""
        lines = self.files.get(path, [])
        await asyncio.sleep(0.3)
        self.files[path] = [*lines, text]  # a line is lost if another edit ran meanwhile
        return f"line {len(lines) + 1} of {path}"


async def model() -> AsyncIterator[dict[str, Any]]:
    """Write the message: a text and the calls, a piece at a time."""
    yield {"type": "message_start", "message": {"role": "assistant", "content": []}}
    blocks: list[tuple[dict[str, Any], str]] = [
        ({"type": "text", "text": ""}, "I search, and write down what I find.")
    ]
    for number, (name, arguments) in enumerate(CALLS):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        blocks.append((block, json.dumps(arguments)))
    for index, (block, whole) in enumerate(blocks):
        is_text = block["type"] == "text"
        kind, field = ("text_delta", "text") if is_text else ("input_json_delta", "partial_json")
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for start in range(0, len(whole), PIECE):
            await asyncio.sleep(PACE)
            delta = {"type": kind, field: whole[start : start + PIECE]}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
    yield {"type": "message_stop"}


async def while_it_writes(dispatcher: Dispatcher) -> TurnResult:
    """Run each call as soon as it is complete."""
    return await AnthropicMessages().stream().run(dispatcher, model())


async def once_it_is_whole(dispatcher: Dispatcher) -> TurnResult:
    """Put the message together, then run its calls."""
    provider = AnthropicMessages()
    stream = provider.stream()
    async for event in model():
        stream.feed(event)
    stream.close()
    return await dispatcher.run(provider.calls(stream.message))


async def main() -> float:
    """Print both, and return how much of the time streaming takes."""
    took: list[float] = []
    replies: list[Any] = []
    for way in (once_it_is_whole, while_it_writes):
        work, clock = Work(), asyncio.get_running_loop().time
        async with Dispatcher(work.tools, max_concurrent=LIMIT) as dispatcher:
            began = clock()
            turn = await way(dispatcher)
            took.append(clock() - began)
        replies.append(AnthropicMessages().reply(turn))
        in_order = all(lines == sorted(lines) for lines in work.files.values())
        kept = sum(map(len, work.files.values()))
        label = way.__name__.replace("_", " ")
        print(f"{label:<18} {took[-1]:.2f} s, {kept} of 6 edits kept, in order: {in_order}")
    print(f"streamed / whole   {took[1] / took[0]:.2f}")
    print("the replies are equal, byte for byte:", json.dumps(replies[0]) == json.dumps(replies[1]))
    return took[1] / took[0]


if __name__ == "__main__":
    asyncio.run(main())
