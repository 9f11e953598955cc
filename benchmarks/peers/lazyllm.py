"""LazyLLM: its `ToolManager`, which takes the keys that each call reads and writes.

A call that conflicts with one before it waits until all before it have ended; between two such
barriers five calls run at a time, a number that cannot be set. A limit of one call of a tool is
told as a key that the tool writes. Its tools are plain functions in threads, so each turn is run in
a thread as well, in a session of its own. No model takes part. The threads of a turn share a stack
of what is being called, and now and then one takes off what another has put there: the call, or the
whole turn, then ends in an error, which is counted as lost results.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

os.environ.setdefault("LAZYLLM_TRACE_ENABLED", "false")  # else it sends what the tools did
os.environ.setdefault("LAZYLLM_LOG_FILE_MODE", "split")  # else exit needs a thread for the log

from lazyllm.common import new_session
from lazyllm.module.module import ModuleExecutionError
from lazyllm.tools import ToolManager, fc_register

from benchmarks.peers.declaring import missing, openai_calls, signed, used
from benchmarks.recording import Answers, Recording
from benchmarks.work import KINDS, Kind, Workload


class LazyLLM:
    """Runs each turn as one message through one tool manager."""

    name = "LazyLLM"
    distribution = "lazyllm"
    recording: Recording
    """The run at hand; the tools outlive it."""

    def __init__(self) -> None:
        self._tools = {
            (name, alone): _tool(self, name, kind, alone=alone)
            for name, kind in KINDS.items()
            for alone in (False, True)
        }

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """Limits other than one for a tool, everything between turns or before the last call."""
        above_one = any(limit > 1 for limit in workload.per_tool.values())
        limits = bool(workload.limit or workload.per_tag or above_one)
        return missing(workload, ("limits", "turns", "arrivals"), limits=limits)

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Declare the tools and write the model's messages."""
        self.recording = recording
        workload = recording.workload
        manager = ToolManager(
            [self._tools[name, workload.per_tool.get(name) == 1] for name in used(workload)]
        )
        turns = range(len(workload.turns))
        messages = [openai_calls(workload, index) for index in turns]

        async def turn(index: int, pool: ThreadPoolExecutor) -> list[str | None]:
            await recording.message(index)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool, _results, manager, messages[index])

        with ThreadPoolExecutor(max_workers=len(turns)) as pool:

            async def run() -> Answers:
                recording.start()
                return await asyncio.gather(*(turn(index, pool) for index in turns))

            yield run


def _results(manager: ToolManager, calls: list[dict[str, Any]]) -> list[str | None]:
    with new_session():
        try:
            return [str(result["value"]) for result in manager(calls)]
        except ModuleExecutionError:
            return [None] * len(calls)


def _tool(peer: LazyLLM, name: str, kind: Kind, *, alone: bool) -> Callable[..., str]:
    def reads(arguments: dict[str, str]) -> list[tuple[str, str]]:
        return [("file", f"/{arguments[parameter]}") for parameter in kind.reads]

    def writes(arguments: dict[str, str]) -> list[tuple[str, str]]:
        keys = [("file", f"/{arguments[parameter]}") for parameter in kind.writes]
        keys += [("session", arguments[kind.session])] if kind.session else []
        return [*keys, ("tool", name)] if alone else keys

    declared: dict[str, Any] = {}
    if kind.reads:
        declared["read_keys"] = reads
    if kind.writes or kind.session or alone:
        declared["write_keys"] = writes
    function = _function(peer, name, kind)
    return fc_register(**declared)(function) if declared else function


def _function(peer: LazyLLM, name: str, kind: Kind) -> Callable[..., str]:
    def perform(**arguments: str) -> str:
        return peer.recording.perform_sync(arguments["job"])

    return signed(perform, name, kind)
