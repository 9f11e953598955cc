"""All peers by name, in the order of the tables; a peer's package is imported when it is made."""

from __future__ import annotations

import importlib
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import cast

from benchmarks.peers import Peer


class NotInstalled(Exception):
    """The package of a peer is not in this environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where a peer is defined, so that its name is known without its package."""

    name: str
    module: str
    make: str
    """What in the module makes it; a tuple of peers is asked for the one of this name."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    distribution: str | None = None

    def peer(self) -> Peer:
        """Make it anew. Raises `NotInstalled`, or what its package raises."""
        if self.distribution is not None and version(self.distribution) is None:
            where = f"in this environment (Python {platform.python_version()})"
            raise NotInstalled(f"{self.distribution} is not installed {where}")
        found = getattr(importlib.import_module(self.module), self.make)
        if isinstance(found, tuple):
            return cast("Peer", next(one for one in found if one.name == self.name))
        return cast("Peer", found(**self.arguments))


def _entry(name: str, path: str, distribution: str | None = None, **arguments: object) -> Entry:
    module, _, make = path.partition(".")
    return Entry(
        name=name,
        module=f"benchmarks.peers.{module}",
        make=make,
        arguments=arguments,
        distribution=distribution,
    )


DISPATCH = _entry("dispatch", "dispatcher.Dispatch", "tool-dispatch")
ROSTER: tuple[Entry, ...] = (
    DISPATCH,
    _entry("serial loop", "baselines.BASELINES"),
    _entry("gather", "baselines.BASELINES"),
    _entry("gather, semaphore", "baselines.BASELINES"),
    _entry("gather, lock per key", "baselines.BASELINES"),
    _entry("waves", "baselines.BASELINES"),
    _entry("dataflow by hand", "baselines.BASELINES"),
    _entry("toollane", "toollane.Toollane", "toollane"),
    _entry("LangGraph ToolNode", "langgraph.LangGraph", "langgraph"),
    _entry("pydantic-ai", "pydantic_ai.PydanticAI", "pydantic-ai-slim"),
    _entry("pydantic-ai sequential", "pydantic_ai.PydanticAI", "pydantic-ai-slim", sequential=True),
    _entry("openai-agents", "openai_agents.OpenAIAgents", "openai-agents"),
    _entry("Strands", "strands.Strands", "strands-agents"),
    _entry("Strands sequential", "strands.Strands", "strands-agents", sequential=True),
    _entry("Google ADK", "google_adk.GoogleADK", "google-adk"),
    _entry("Agno", "agno.Agno", "agno"),
    _entry("LazyLLM", "lazyllm.LazyLLM", "lazyllm"),
    _entry("OpenHands", "openhands.OpenHands", "openhands-sdk"),
)
BESIDE = ("anyio", "pydantic", "uvloop", "bfcl-eval")
"""What else has a version that counts."""


def versions() -> dict[str, str | None]:
    """The version of every package that takes part; None if it is not installed."""
    names = dict.fromkeys(entry.distribution for entry in ROSTER if entry.distribution)
    return {name: version(name) for name in (*names, *BESIDE)}


def version(distribution: str) -> str | None:
    """A package's version, None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def option(name: str) -> str:
    """A name as it is written on the command line: lower case, hyphens for all that is no word."""
    return "-".join(re.findall(r"\w+", name.lower()))
