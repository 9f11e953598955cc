"""From a provider's message to calls, and from results to the message that answers it.

One adapter a provider, each loaded when it is first asked for. An adapter has no state but its
settings and needs no SDK: it reads dictionaries and SDK objects alike and returns plain
dictionaries. Frameworks have modules of their own: `dispatch.adapters.langgraph`,
`dispatch.adapters.pydantic_ai`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatch.adapters.anthropic_messages import AnthropicMessages
    from dispatch.adapters.bedrock_converse import BedrockConverse
    from dispatch.adapters.budget import Budget
    from dispatch.adapters.gemini import Gemini
    from dispatch.adapters.openai_chat import OpenAIChat
    from dispatch.adapters.openai_responses import OpenAIResponses

__all__ = [
    "AnthropicMessages",
    "BedrockConverse",
    "Budget",
    "Gemini",
    "OpenAIChat",
    "OpenAIResponses",
]

_MODULES = {
    "AnthropicMessages": "anthropic_messages",
    "BedrockConverse": "bedrock_converse",
    "Budget": "budget",
    "Gemini": "gemini",
    "OpenAIChat": "openai_chat",
    "OpenAIResponses": "openai_responses",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
