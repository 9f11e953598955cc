"""pydantic-ai: a wrapper for one toolset, or a capability for all tools of an agent.

`DispatchToolset(toolset)` stands in place of the toolset; `DispatchCapability()` among the agent's
`capabilities` wraps whatever tools it has; `close_open_calls` mends a history. Needs pydantic-ai;
imported on demand only.
"""

from dispatch.adapters.pydantic_ai.capability import DispatchCapability
from dispatch.adapters.pydantic_ai.histories import close_open_calls
from dispatch.adapters.pydantic_ai.toolset import DispatchToolset

__all__ = ["DispatchCapability", "DispatchToolset", "close_open_calls"]
