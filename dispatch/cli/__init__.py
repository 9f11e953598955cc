"""The command `dispatch`. Nothing else imports it, and it needs the extra `cli`."""

from __future__ import annotations

import sys
from importlib import import_module

__all__ = ["main"]

NEEDED = frozenset({"typer", "rich", "click"})


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code (see `dispatch.cli.exits`)."""
    try:
        for module in ("typer", "rich"):
            import_module(module)
        from dispatch.cli.app import run_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        print(
            f"dispatch: the command needs {error.name}: pip install 'tool-dispatch[cli]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130
    return run_app(arguments)
