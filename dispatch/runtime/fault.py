"""Reporting what foreign code (a sink, a callback, a policy) did wrong. Never raises."""

from __future__ import annotations

import contextlib

from dispatch.render import safe_str


def report(what: str, error: BaseException, **fields: object) -> None:
    """Log it as a warning: the exception's type and text, and no argument or value of a call."""
    import structlog  # only here: it brings rich along, and hardly anything goes wrong

    with contextlib.suppress(Exception):
        log = structlog.get_logger("dispatch")
        log.warning(what, error=f"{type(error).__name__}: {safe_str(error)}", **fields)
