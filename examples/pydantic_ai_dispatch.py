"""The agent of `pydantic_ai_plain.py`, its tools unchanged, with dispatch as a capability.

No key is needed: python examples/pydantic_ai_dispatch.py
"""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_plain import edit, model, publish, read, search, show

from dispatch import ToolConcurrency
from dispatch.adapters.pydantic_ai import DispatchCapability

dispatching = DispatchCapability[None](
    descriptors={
        "edit": ToolConcurrency(writes="file:{path}"),
        "read": ToolConcurrency(reads="file:{path}"),
        "publish": ToolConcurrency(reads="file:{path}"),
        "search": ToolConcurrency(safe_parallel=True),
    }
)

if __name__ == "__main__":
    agent = Agent(
        FunctionModel(model), tools=[edit, read, search, publish], capabilities=[dispatching]
    )
    asyncio.run(show(agent))
