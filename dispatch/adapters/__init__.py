"""From a provider's message to calls, and from results to the message that answers it.

One adapter a provider, each loaded when it is first asked for. An adapter has no state and needs
no SDK: it reads dictionaries and SDK objects alike and returns plain dictionaries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatch.adapters.anthropic_messages import AnthropicMessages
    from dispatch.adapters.openai_chat import OpenAIChat

__all__ = ["AnthropicMessages", "OpenAIChat"]

_MODULES = {"AnthropicMessages": "anthropic_messages", "OpenAIChat": "openai_chat"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
