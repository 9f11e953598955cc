"""`dispatch plan`: what would wait for what and why, without running anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from dispatch import plan
from dispatch.call import ToolCall
from dispatch.cli.exits import SATISFIED, write_out
from dispatch.cli.wording import visible
from dispatch.core.schedules import Schedule
from dispatch.tool import Toolbox


def show_plan(
    calls: Sequence[ToolCall],
    tools: Toolbox,
    root: Path,
    schedule: Schedule,
    form: str,
    out: TextIO,
) -> int:
    """Print the plan as text, json, mermaid or dot to `out`, and return the exit code."""
    made = plan(calls, tools, root=root, schedule=schedule)
    if form == "json":
        text = made.to_json()
        if not text.isascii():  # a terminal obeys more than the control characters of ASCII
            text = json.dumps(json.loads(text), indent=2)
    elif form == "mermaid":
        text = made.to_mermaid()
    else:
        text = made.to_dot() if form == "dot" else made.to_text()
    write_out([text if form == "json" else visible(text)], out)
    return SATISFIED
