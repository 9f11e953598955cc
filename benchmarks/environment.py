"""`python -m benchmarks.environment`: make the environment in which the peers are installed.

It is `.venv/bench`, apart from the project's own, so that tests never need a peer. It is made once
for these packages, these exact versions and this interpreter. Some peers need Python 3.12: where
there is none, what cannot be installed is left out, and the table says so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv" / "bench"
PYTHON = ENVIRONMENT / "bin" / "python"
CONSTRAINTS = ROOT / "benchmarks" / "constraints.txt"
PEERS = (
    *("toollane", "langgraph", "langchain-core", "pydantic-ai-slim", "openai-agents"),
    *("strands-agents", "google-adk", "agno", "lazyllm", "openhands-sdk"),
)
TOOLS = ("uvloop", "matplotlib", "mpmath")
ALONE = ("bfcl-eval",)
"""Installed without what it depends on: only its data and its plain tools are used."""
PREFERRED = ("python3.12", "python3.13")
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def main() -> int:
    """Make the environment, unless that was done; the status to exit with."""
    python = interpreter()
    mark = marked(python)
    ready = ENVIRONMENT / ".ready"
    if ready.exists() and ready.read_text() == mark:
        return 0
    say(f"making {ENVIRONMENT.relative_to(ROOT)} with {python}; once, some minutes, about 1 GB")
    try:
        make(python)
    except subprocess.CalledProcessError as fault:
        say(f"{fault.stdout}\nfailed: {' '.join(map(str, fault.cmd))}")
        return 1
    ready.write_text(mark)
    return 0


def interpreter() -> str:
    """The best Python for the peers: 3.12 or 3.13 if one starts, else the one running now."""
    for name in PREFERRED:
        for path in candidates(name):
            if starts(path):
                return path
    return sys.executable


def candidates(name: str) -> Iterator[str]:
    """Where an interpreter may be: on the PATH, or among pyenv's, which PATH need not reach."""
    found = shutil.which(name)
    if found is not None:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob(f"versions/*/bin/{name}")))


def starts(path: str) -> bool:
    """Whether it runs and can make environments; a shim may stand for no interpreter at all."""
    asked = [path, "-c", "import ensurepip, venv"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def marked(python: str) -> str:
    """What the environment was made of."""
    texts = (CONSTRAINTS.read_text(), (ROOT / "pyproject.toml").read_text())
    known = "\n".join([python, repr((PEERS, TOOLS, ALONE)), *texts])
    return hashlib.sha256(known.encode()).hexdigest()


def make(python: str) -> None:
    """Make the environment anew and install everything. Raises `CalledProcessError`."""
    run([python, "-m", "venv", "--clear", ENVIRONMENT], "making the environment")
    install(["-e", str(ROOT)], "installing this project")
    wanted = (*TOOLS, *PEERS)
    try:
        install(wanted, f"installing {len(PEERS)} peers and {len(TOOLS)} tools")
    except subprocess.CalledProcessError:
        say("not all of them together; one by one")
        for name in wanted:
            install_if_possible(name)
    for name in ALONE:
        install_if_possible("--no-deps", name)


def install_if_possible(*arguments: str) -> None:
    """Install it, or say why it is left out."""
    try:
        install(arguments, f"installing {arguments[-1]}")
    except subprocess.CalledProcessError as fault:
        say(f"{arguments[-1]} is left out: {fault.stdout.strip().splitlines()[-1]}")


def install(arguments: Sequence[str], doing: str) -> None:
    """Install these at the versions that the constraints say."""
    run([PYTHON, *PIP, "install", "-c", CONSTRAINTS, *arguments], doing)


def run(command: list[str | Path], doing: str) -> None:
    """Run it and show that it goes on; its output counts only if it fails."""
    with shown(doing):
        subprocess.run(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )


@contextmanager
def shown(doing: str) -> Iterator[None]:
    """Print what is being done, a dot every two seconds, and how long it took."""
    began, ended = time.monotonic(), threading.Event()

    def dots() -> None:
        while not ended.wait(2.0):
            print(".", end="", file=sys.stderr, flush=True)

    print(f"bench: {doing} ", end="", file=sys.stderr, flush=True)
    thread = threading.Thread(target=dots, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        print(f" {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Tell the person who waits."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
