"""A host with three tools, for the tests of hosted turns."""

from typing import Any

from dispatch import ToolCall, ToolConcurrency
from dispatch.adapters.hosted import HostedTools, HostedTurns

WRITES = ToolConcurrency(writes="key:{key}")
FREE = ToolConcurrency(safe_parallel=True)
Arguments = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}}}


def hosted(**options: Any) -> HostedTurns:
    tools = HostedTools()
    tools.see("change", WRITES, schema=SCHEMA)
    tools.see("free", FREE)
    tools.see("blocks", FREE, sync=True)
    return HostedTurns(tools, **options)


def change(call_id: str, key: str = "k") -> ToolCall:
    return ToolCall(call_id, "change", {"key": key})
