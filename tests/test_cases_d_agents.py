"""Case D5: events of subagents that run side by side, and the history that the model sees."""

from typing import Any

from dispatch import CallContext, Dispatcher, ToolCall, TurnEvent, tool
from dispatch.adapters import AnthropicMessages
from dispatch.events import CallEvent, Event
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import Stage


def test_events_of_subagents_say_whose_they_are() -> None:
    """D5: two subagents' events interleave while their batch is open; each is traced to its agent,
    and the reply answers the batch's calls, in order and alone."""
    events: list[Event] = []
    stage = Stage()

    @tool(safe_parallel=True)
    async def agent(name: str, ctx: CallContext) -> str:
        inner = [
            ToolCall(f"{name}-{number}", "free", {"mark": f"{name}-{number}", "seconds": number})
            for number in (1, 2, 3)
        ]
        return str(len(await ctx.run(inner)))

    dispatcher = Dispatcher([agent, *stage.tools], sinks=[events.append])
    names = ("p", "q")
    calls = [ToolCall(f"toolu_{name}", "agent", {"name": name}) for name in names]
    turn = run_in_virtual_time(dispatcher.run(calls, turn_id="batch"))

    parents = {e.turn_id: e.parent for e in events if isinstance(e, TurnEvent)}
    inner = [e for e in events if isinstance(e, CallEvent) and e.turn_id != "batch"]
    assert None is parents.pop("batch")
    owners = {turn_id: parent for turn_id, parent in parents.items() if parent is not None}
    assert {("batch", 0), ("batch", 1)} == set(owners.values())
    agents = [names[owners[e.turn_id][1]] for e in inner]
    assert all(e.call_id.startswith(name) for e, name in zip(inner, agents, strict=True))
    assert agents != sorted(agents)
    told: Any = AnthropicMessages().reply(turn)["content"]
    assert ["toolu_p", "toolu_q"] == [block["tool_use_id"] for block in told]
