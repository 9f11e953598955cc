"""The command `dispatch`. Nothing else imports it, and it needs the extra `cli`."""

from __future__ import annotations

from importlib import import_module

from dispatch.cli.exits import BAD_INPUT, INTERRUPTED, code_after_output, complain
from dispatch.cli.streams import standard_streams

__all__ = ["main"]

NEEDED = frozenset({"typer", "rich", "click"})


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code (see `dispatch.cli.exits`).

    Without arguments it is the process's own command, and nothing is expected to run after it.
    """
    from dispatch.cli.signals import end_with, interrupt_once

    own = arguments is None
    with standard_streams() as out:
        try:
            if own:
                interrupt_once()
            code = code_after_output(_run(arguments), out)
            if own:
                end_with(code)
        except KeyboardInterrupt:
            code = INTERRUPTED
            if own:
                end_with(code)
    return code


def _run(arguments: list[str] | None) -> int:
    try:
        for module in ("typer", "rich"):
            import_module(module)
        from dispatch.cli.app import run_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        complain(f"the command needs {error.name}: pip install 'tool-dispatch[cli]'")
        return BAD_INPUT
    return run_app(arguments)
