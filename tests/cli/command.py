"""The real command in a process of its own, as a user starts it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "dispatch.cli")
PLAIN = {**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "100", "NO_COLOR": "1"}


def dispatch(
    *arguments: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `dispatch` to its end and return its exit code and both outputs."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env={**PLAIN, **(env or {})},
        timeout=60,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start `dispatch` where Ctrl-C reaches it, and do not wait for it."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=options.pop("stderr", subprocess.PIPE),
        env={**PLAIN, **options.pop("env", {})},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,
    )


def turn_file(folder: Path, *calls: tuple[str, dict[str, Any]], name: str = "turn.json") -> Path:
    """A turn file with these (name, arguments) calls, outside of the root that they work in."""
    file = folder / name
    file.write_text(json.dumps([{"name": tool, "arguments": given} for tool, given in calls]))
    return file


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether `holds()` becomes true within the time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
