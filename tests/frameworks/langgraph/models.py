"""LangChain's own models, which ask our server."""

from __future__ import annotations

from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

WIRES = ("anthropic", "chat", "responses")
KEY = SecretStr("any")


def chat_model(wire: str, url: str, *, streaming: bool = False) -> Any:
    """LangChain's model for this wire. `streaming`: it reads streams, also where it is invoked."""
    shared: dict[str, Any] = {"api_key": KEY, "max_retries": 0, "streaming": streaming}
    if wire == "anthropic":
        return ChatAnthropic(model_name="claude-sonnet-5-5", base_url=url, **shared)
    return ChatOpenAI(
        model="gpt-6-sol", base_url=f"{url}/v1", use_responses_api=wire == "responses", **shared
    )
