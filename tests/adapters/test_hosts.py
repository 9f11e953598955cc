"""What the SDKs' own loops do with a turn of several calls, and what `dispatch` does instead.

The pages of the providers tell of it; these tests keep that true.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

import openai
import pytest
from google import genai
from openai.lib import responses_tool_runner as runner

from dispatch import Dispatcher
from tests.adapters.sdk_loops import (
    Host,
    Tool,
    anthropic_eager,
    anthropic_runner,
    anthropic_sync,
    dispatched,
    gemini_calling,
    gemini_sync,
    openai_eager,
    openai_runner,
    openai_sync,
)
from tests.providers import Call, Server, Step, serve
from tests.providers.clients import gemini_client

HOSTS: list[Host] = [anthropic_runner, openai_runner, gemini_calling]
SYNC: list[Host] = [anthropic_sync, openai_sync, gemini_sync]


def script(*calls: Call) -> list[Step]:
    """The calls, and then an end."""
    return [Step(calls=calls), Step("Done.")]


def told(server: Server) -> list[str]:
    """The names and texts that answered the calls, in the order of the last request."""
    request = json.loads(server.requests[-1])
    if "input" in request:
        return [item["output"] for item in request["input"] if "output" in item]
    if "contents" in request:
        parts = request["contents"][-1]["parts"]
        found = [part["functionResponse"]["response"] for part in parts]
        return [str(*response.values()) for response in found]
    blocks = request["messages"][-1]["content"]
    return [block["content"] for block in blocks if isinstance(block, dict)]


async def some_steps() -> None:
    """Let whatever may run run."""
    for _ in range(20):
        await asyncio.sleep(0)


class Desk:
    """Tools, and what is seen of how they ran."""

    def __init__(self) -> None:
        self.text = "one two"
        self.peak = self._running = 0
        self.ran: list[str] = []
        self.began, self.go_on = asyncio.Event(), asyncio.Event()
        self.both_read = asyncio.Event()
        self._read = 0

    async def work(self, number: int) -> str:
        """Count how many run."""
        self._running += 1
        self.peak = max(self.peak, self._running)
        await some_steps()
        self._running -= 1
        return f"{number}"

    async def edit(self, old: str) -> str:
        """Read, wait, write."""
        text = self.text
        self._read += 1
        if self._read == 2:
            self.both_read.set()
        await some_steps()
        self.text = text.replace(old, old.upper())
        return f"edited {old}"

    async def edit_together(self, old: str) -> str:
        """Read, wait until both have read, write."""
        text = self.text
        self._read += 1
        if self._read == 2:
            self.both_read.set()
        await self.both_read.wait()
        self.text = text.replace(old, old.upper())
        return f"edited {old}"

    async def fail(self) -> str:
        """Fail."""
        raise ConnectionError("down")

    async def quick(self) -> str:
        """Be done."""
        self.ran.append("quick")
        return "quick"

    async def slow(self) -> str:
        """Wait to be let go."""
        self.began.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ran.append("slow was cancelled")
            raise
        self.ran.append("slow")
        return "slow"


@pytest.mark.parametrize(
    ("host", "peak"),
    [*((host, 1) for host in (*HOSTS, *SYNC, anthropic_eager)), (dispatched, 8)],
)
async def test_order_and_overlap(host: Host, peak: int) -> None:
    """All answer in the model's order; the SDKs run one call after the other."""
    desk = Desk()
    with serve(script(*(Call("work", {"number": n}) for n in range(12)))) as server:
        await host(server.url, [desk.work])
        assert [f"{n}" for n in range(12)] == told(server)
    assert peak == desk.peak


async def test_the_bound_of_openais_eager_mode() -> None:
    """Two of the calls marked as independent run at once, and the third waits for both."""
    desk = Desk()
    calls = [Call("edit_together", {"old": old}) for old in ("one", "two")]
    with serve(script(*calls, Call("work", {"number": 3}))) as server:
        await openai_eager(server.url, [desk.edit_together, desk.work])
        assert ["edited one", "edited two", "3"] == told(server)
    assert desk.text in ("ONE two", "one TWO")  # and so they lose an edit


@pytest.mark.parametrize("host", [*HOSTS, dispatched])
async def test_two_edits_in_one_turn(host: Host) -> None:
    """A2: what runs one after the other loses no edit, and neither does `dispatch`."""
    desk = Desk()
    tools, loop = [desk.edit], host
    if host is dispatched:
        own = Dispatcher(tools)  # nothing is declared, so each runs alone

        async def loop(url: str, tools: Sequence[Tool]) -> None:
            await dispatched(url, tools, own)

    with serve(script(*(Call("edit", {"old": old}) for old in ("one", "two")))) as server:
        await loop(server.url, tools)
    assert "ONE TWO" == desk.text


@pytest.mark.parametrize("host", [*HOSTS, openai_eager, dispatched])
async def test_two_agents_edit_one_file(host: Host) -> None:
    """Two loops at the same time know nothing of each other, unless they share a table."""
    desk = Desk()
    shared = Dispatcher([desk.edit])

    async def loop(url: str) -> None:
        if host is dispatched:
            await dispatched(url, [], shared)
        else:
            await host(url, [desk.edit_together])

    name = "edit" if host is dispatched else "edit_together"
    with (
        serve(script(Call(name, {"old": "one"}))) as one,
        serve(script(Call(name, {"old": "two"}))) as two,
    ):
        await asyncio.gather(loop(one.url), loop(two.url))
    assert (host is dispatched) == (desk.text == "ONE TWO")


FAILED: dict[Host, list[str]] = {
    anthropic_runner: ["quick", "ConnectionError('down')", "quick"],
    gemini_calling: [
        "quick",
        "Failed to invoke function fail with converted arguments {} from model returned function"
        " call argument {} because of error down",
        "quick",
    ],
    dispatched: [
        "quick",
        "[error] ConnectionError: down\n"
        "Do not repeat the same call; mend what it says, or do it another way.",
        "quick",
    ],
}


@pytest.mark.parametrize("host", FAILED)
async def test_a_failing_call_is_told(host: Host) -> None:
    """The siblings' results stay, and the call has an error in its place."""
    desk = Desk()
    with serve(script(Call("quick", {}), Call("fail", {}), Call("quick", {}))) as server:
        await host(server.url, [desk.quick, desk.fail])
        assert FAILED[host] == told(server)


@pytest.mark.parametrize("host", [openai_runner, openai_eager])
@pytest.mark.parametrize(
    ("call", "ran"),
    [(Call("fail", {}), 1), (Call("none", {}), 0), (Call("quick", '{"cut'), 0)],
    ids=["error", "unknown", "arguments"],
)
async def test_a_failing_call_ends_openais_runner(host: Host, call: Call, ran: int) -> None:
    """The results of its siblings are lost, and the calls behind it never start."""
    desk = Desk()
    with serve(script(Call("quick", {}), call, Call("quick", {}))) as server:
        with pytest.raises(runner.ToolRunnerError) as raised:
            await host(server.url, [desk.quick, desk.fail])
        assert 1 == len(server.requests)
    done = 1 if host is openai_eager else ran
    assert (done, done) == (len(desk.ran), len(raised.value.completed_call_ids))


async def test_an_unknown_tool() -> None:
    """Anthropic's runner and `dispatch` tell the model, Google's calling ends."""
    desk, calls = Desk(), [Call("quick", {}), Call("quik", {})]
    with serve(script(*calls)) as server:
        with pytest.warns(UserWarning, match="'quik' not found"):
            await anthropic_runner(server.url, [desk.quick])
        assert ["quick", "Error: Tool 'quik' not found"] == told(server)
    with serve(script(*calls)) as server:
        with pytest.raises(KeyError, match="quik"):
            await gemini_calling(server.url, [desk.quick])
        assert 1 == len(server.requests)
    with serve(script(*calls)) as server:
        await dispatched(server.url, [desk.quick])
        assert "Did you mean 'quick'?" in told(server)[1]


async def test_wrong_arguments() -> None:
    """Anthropic's runner does not say what is wrong with them; `dispatch` does."""
    desk, call = Desk(), Call("edit", {"new": "x"})
    with serve(script(call)) as server:
        await anthropic_runner(server.url, [desk.edit])
        assert ["ValueError('Invalid arguments for function edit')"] == told(server)
    with serve(script(call)) as server:
        await dispatched(server.url, [desk.edit])
        assert "old: Field required; new: Extra inputs are not permitted" in told(server)[0]


async def stopped(host: Host, server: Server, desk: Desk) -> BaseException:
    """What a loop ends with that is cancelled while its slow call runs."""
    task = asyncio.ensure_future(host(server.url, [desk.quick, desk.slow]))
    await desk.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    return raised.value


@pytest.mark.parametrize("host", [*HOSTS, dispatched])
async def test_cancelling_while_a_call_runs(host: Host) -> None:
    """H6: the running tool is stopped; only `dispatch` keeps the result of the finished one."""
    desk = Desk()
    with serve(script(Call("quick", {}), Call("slow", {}))) as server:
        error = await stopped(host, server, desk)
        assert 1 == len(server.requests)
    assert ["quick", "slow was cancelled"] == desk.ran
    turn = getattr(error, "turn", ())
    kept = ["ok", "cancelled"] if host is dispatched else []
    assert kept == [result.status for result in turn]


async def test_cancelling_openais_eager_mode_waits_for_its_tools() -> None:
    """They are not told to stop, so a cancelled run lasts as long as its slowest call."""
    desk = Desk()
    with serve(script(Call("quick", {}), Call("slow", {}))) as server:
        task = asyncio.ensure_future(openai_eager(server.url, [desk.quick, desk.slow]))
        await desk.began.wait()
        task.cancel()
        await asyncio.wait([task], timeout=0.05)
        still_ran = not task.done()
        desk.go_on.set()
        with suppress(asyncio.CancelledError):
            await task
    assert (True, ["quick", "slow"]) == (still_ran, desk.ran)


async def test_googles_calling_leaves_a_thread_behind() -> None:
    """A `def` tool of a cancelled run goes on, and nobody knows."""
    loop, desk = asyncio.get_running_loop(), Desk()
    done = asyncio.Event()

    def slow() -> str:
        """Wait in a thread."""
        loop.call_soon_threadsafe(desk.began.set)
        asyncio.run_coroutine_threadsafe(desk.go_on.wait(), loop).result()
        loop.call_soon_threadsafe(done.set)
        return "slow"

    with serve(script(Call("slow", {}))) as server:
        task = asyncio.ensure_future(gemini_calling(server.url, [slow]))
        await desk.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not done.is_set()
    desk.go_on.set()
    await done.wait()


async def test_googles_calling_drops_ids() -> None:
    """It answers by name and order alone, and a strict server refuses that."""
    desk = Desk()
    with serve(script(Call("quick", {}, id="a"))) as server:
        with pytest.raises(genai.errors.ClientError, match="id None"):
            await gemini_calling(server.url, [desk.quick])
        response = json.loads(server.requests[-1])["contents"][-1]["parts"][0]["functionResponse"]
    assert {"name": "quick", "response": {"result": "quick"}} == response


async def test_googles_calling_copies_the_object_of_a_method() -> None:
    """A method given as a tool fails if its object cannot be copied, as one with a lock cannot."""

    class Notes:
        def __init__(self) -> None:
            self.lock = Lock()

        async def add(self, line: str) -> str:
            """Add a line."""
            return line

    client = gemini_client("http://127.0.0.1:9")
    config: Any = {"tools": [Notes().add]}
    with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock'"):
        await client.aio.models.generate_content(model="any", contents="Go.", config=config)
    await client.aio.aclose()
    client.close()


def test_openais_chat_completions_have_no_loop() -> None:
    """Nothing there runs tools: the loop is the user's."""
    client = openai.OpenAI(api_key="any")
    names = [name for name in dir(client.chat.completions) if not name.startswith("_")]
    client.close()
    assert [] == [name for name in names if "run" in name or "tool" in name]
