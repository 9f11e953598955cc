"""Whole loops, that of the README among them, with the real SDKs against the loopback server."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from dispatch import Dispatcher, tool
from dispatch.adapters import AnthropicMessages, OpenAIChat
from tests.providers import Call, Server, Step, serve

EXAMPLES = Path(__file__).parents[2] / "examples"
BEFORE = "".join(f"line {number}\n" for number in range(1, 101))
BOTH = BEFORE.replace("line 50\n", "fifty\n").replace("line 75\n", "seventy-five\n")
TASK = "Spell out 50 and 75."


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example works in the folder it is started in."""
    monkeypatch.chdir(tmp_path)


def example() -> ModuleType:
    """The README's loop, loaded from its file."""
    spec = importlib.util.spec_from_file_location("agent_loop", EXAMPLES / "agent_loop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def with_anthropic(server: Server) -> str:
    async with AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0) as client:
        said: str = await example().agent(TASK, client)
        return said


async def with_openai(server: Server) -> str:
    """The same loop, with the same tools, in the other form."""
    module, provider = example(), OpenAIChat()
    messages: list[Any] = [{"role": "user", "content": TASK}]
    url = f"{server.url}/v1"
    async with (
        AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client,
        Dispatcher([module.read_file, module.edit_file]) as dispatcher,
    ):
        while True:
            response = await client.chat.completions.create(
                model="any", tools=provider.tools(dispatcher), messages=messages
            )
            messages.append(provider.message(response, messages))
            if not (calls := provider.calls(response, messages[:-1])):
                return response.choices[0].message.content or ""
            messages += provider.reply(await dispatcher.run(calls))


def two_edits(path: Path) -> list[Step]:
    """Read, edit twice in one turn, and say so."""
    edits = (("line 50\n", "fifty\n"), ("line 75\n", "seventy-five\n"))
    return [
        Step("I read.", (Call("read_file", {"path": str(path)}),)),
        Step(
            calls=tuple(
                Call("edit_file", {"path": str(path), "old": old, "new": new}) for old, new in edits
            )
        ),
        Step("Both are spelled out."),
    ]


def last_results(server: Server) -> list[str]:
    """The texts that answered the last turn, as the provider received them."""
    messages = json.loads(server.requests[-1])["messages"]
    if messages[-1]["role"] == "tool":
        return [m["content"] for m in messages if m["role"] == "tool"][-2:]
    return [block["content"] for block in messages[-1]["content"]]


@pytest.mark.parametrize("loop", [with_anthropic, with_openai])
async def test_two_edits_of_one_file_in_one_turn(
    loop: Callable[[Server], Awaitable[str]], tmp_path: Path
) -> None:
    """A5: of two edits of one file in one turn both are there, and each says so.

    One worker thread takes what the edits do in the order in which they ask for it, so that side by
    side they would certainly read, read, write, write.
    """
    path = tmp_path / "lines.txt"
    path.write_text(BEFORE)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))
    with serve(two_edits(path)) as server:
        assert "Both are spelled out." == await loop(server)
    assert [f"edited {path}"] * 2 == last_results(server)
    assert BOTH == path.read_text()


async def test_two_loops_share_a_server(tmp_path: Path) -> None:
    """Each conversation plays the whole script, side by side with the other."""
    path = tmp_path / "lines.txt"
    path.write_text(BEFORE)
    script = [Step(calls=(Call("read_file", {"path": str(path)}),)), Step("Read.")]
    with serve(script) as server:
        said = await asyncio.gather(with_anthropic(server), with_openai(server))
    assert ("Read.", "Read.") == tuple(said)
    assert 4 == len(server.requests)


async def test_bad_calls_are_answered(tmp_path: Path) -> None:
    """An unknown tool, wrong arguments and a failing call get errors, a sibling its result."""
    path = tmp_path / "a.txt"
    path.write_text("hello")
    calls = (
        Call("reed_file", {"path": str(path)}),
        Call("read_file", {"path": 7}),
        Call("edit_file", {"path": str(path), "old": "absent", "new": ""}),
        Call("read_file", {"path": str(path)}),
    )
    with serve([Step(calls=calls), Step("I see.")]) as server:
        assert "I see." == await with_anthropic(server)
    blocks = json.loads(server.requests[-1])["messages"][-1]["content"]
    assert [True, True, True, None] == [block.get("is_error") for block in blocks]
    assert "hello" == blocks[-1]["content"]
    texts = ["Did you mean 'read_file'?", "path", "does not contain 'absent'"]
    assert [] == [
        text for text, block in zip(texts, blocks, strict=False) if text not in block["content"]
    ]


async def test_raw_arguments_that_are_no_json_are_answered(tmp_path: Path) -> None:
    """Text that is cut off reaches the turn as it is, and its sibling runs."""
    path = tmp_path / "a.txt"
    path.write_text("hello")
    calls = (Call("read_file", '{"path": "a.t'), Call("read_file", {"path": str(path)}))
    with serve([Step(calls=calls), Step("I see.")]) as server:
        assert "I see." == await with_openai(server)
    broken, fine = last_results(server)
    assert "not valid JSON" in broken
    assert "hello" == fine


async def test_blank_ids_make_a_history_that_pairs(tmp_path: Path) -> None:
    """E6: a server that gives empty ids gets a history that the strictest provider takes."""
    for name in "ab":
        (tmp_path / name).write_text(name)
    calls = tuple(Call("read_file", {"path": str(tmp_path / name)}, id="") for name in "ab")
    with serve([Step(calls=calls), Step("Read.")]) as server:
        assert "Read." == await with_openai(server)
    assert ["a", "b"] == last_results(server)


@pytest.mark.parametrize(
    "provider", [AnthropicMessages(), OpenAIChat()], ids=["anthropic", "openai"]
)
async def test_a_reply_does_not_depend_on_timing(provider: Any) -> None:
    """D6, D7: whichever call ends first, the reply has the same bytes."""

    async def reply(first: str) -> bytes:
        ended = asyncio.Event()

        @tool(safe_parallel=True)
        async def search(query: str) -> dict[str, str]:
            if query == first:
                ended.set()
            await ended.wait()
            return {"found": query}

        queries = ("slow", "fast")
        message = {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": f"t{i}", "name": "search", "input": {"query": query}}
                for i, query in enumerate(queries)
            ],
        }
        if isinstance(provider, OpenAIChat):
            function = [{"name": "search", "arguments": {"query": query}} for query in queries]
            made = [{"id": f"t{i}", "function": each} for i, each in enumerate(function)]
            message = {"role": "assistant", "tool_calls": made}
        async with Dispatcher([search]) as dispatcher:
            turn = await dispatcher.run(provider.calls(message))
        return json.dumps(provider.reply(turn)).encode()

    assert await reply("slow") == await reply("fast")


async def test_main_takes_key_and_address_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `python examples/agent_loop.py TASK` runs prints the model's last words."""
    (tmp_path / "a.txt").write_text("hello")
    script = [Step(calls=(Call("read_file", {"path": "a.txt"}),)), Step("It says hello.")]
    with serve(script) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        await example().main("What is in a.txt?")
    assert ("It says hello.\n", "") == capsys.readouterr()
    assert "hello" == last_results(server)[-1]
