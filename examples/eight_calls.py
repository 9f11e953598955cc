"""What the four examples share: tools, the model's turn of eight calls, and what came of it.

Two calls edit one file, one is slow, one fails. The tools know nothing of `dispatch`.
"""

import asyncio
import inspect
import textwrap
import time
from collections.abc import Awaitable, Callable
from typing import Any

from model_server import ModelServer

FILES: dict[str, str] = {}
RETURNED: list[str] = []
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("edit", {"path": "notes.txt", "old": "alpha", "new": "ALPHA"}),
    ("edit", {"path": "notes.txt", "old": "beta", "new": "BETA"}),
    ("search", {"text": "slow"}),
    ("search", {"text": "one"}),
    ("publish", {"path": "notes.txt"}),
    ("search", {"text": "two"}),
    ("read", {"path": "notes.txt"}),
    ("search", {"text": "three"}),
]


async def edit(path: str, old: str, new: str) -> str:
    """Replace the text `old` by `new` in a file: read, change, write."""
    text = FILES[path]
    await asyncio.sleep(0.05)
    FILES[path] = text.replace(old, new)
    return f"{old} is {new} now"


async def read(path: str) -> str:
    """Read a file."""
    return FILES[path]


async def search(text: str) -> str:
    """Search the web."""
    await asyncio.sleep(0.6 if text == "slow" else 0.02)
    RETURNED.append(f"search {text}")
    return f"found {text}"


async def publish(path: str) -> str:
    """Publish a file."""
    await asyncio.sleep(0.2)
    raise ConnectionError("the mirror is down")


TOOLS: dict[str, Callable[..., Awaitable[str]]] = {
    "edit": edit,
    "read": read,
    "search": search,
    "publish": publish,
}


def schema(name: str) -> dict[str, object]:
    """The JSON schema of a tool's arguments, which are all texts."""
    parameters = list(inspect.signature(TOOLS[name]).parameters)
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return {"type": "object", "properties": properties, "required": parameters}


async def show(title: str, server: ModelServer, agent: Callable[[list[Any]], Any]) -> None:
    """Give the agent a task, then say one thing more to it, and print what came of both."""
    FILES["notes.txt"] = "alpha beta"
    server.answers = {}
    messages: list[Any] = [{"role": "user", "content": "Release the notes."}]
    started = time.monotonic()
    ended = await outcome(agent(messages))
    seconds = time.monotonic() - started
    returned, answers = len(RETURNED), server.answers
    await asyncio.sleep(0.6)
    print(f"{title}: {ended}")
    for call_id, answer in answers.items():
        print(" ", shortened(f"{call_id} {answer}"))
    print(f"answered: {len(answers)} of {len(CALLS)} calls, in {seconds:.2f} s")
    print("ran on behind the loop:", ", ".join(RETURNED[returned:]) or "nothing")
    messages.append({"role": "user", "content": "Go on."})
    then = await outcome(agent(messages))
    print("the next request:", shortened(f"400 {server.refusal}" if server.refusal else then))
    lost = "" if FILES["notes.txt"] == "ALPHA BETA" else ": an edit is lost"
    print(f"notes.txt: {FILES['notes.txt']}{lost}")


async def outcome(said: Awaitable[str]) -> str:
    """What the agent said last, or what it ended with."""
    try:
        return await said
    except Exception as error:  # noqa: BLE001 - whatever ends the loop is shown
        return f"{type(error).__name__}: {error}"


def shortened(text: str) -> str:
    return textwrap.shorten(text, 78, placeholder=" ...")
