"""What a tool can ask of its call: the token, progress, subprocesses."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence

from dispatch.call import ToolCall
from dispatch.runtime.activity import ACTIVITY
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.process import OUTPUT_LIMIT, ProcessResult, run_process

PARTIAL_LIMIT = 32 * 1024


class Partial:
    """What a call has produced so far: the last 32 Ki characters. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: list[str] = []
        self._size = 0
        self._dropped = False

    def append(self, text: str) -> None:
        """Add text; the oldest goes when there is too much."""
        with self._lock:
            self._parts.append(text)
            self._size += len(text)
            if self._size > 2 * PARTIAL_LIMIT:
                self._parts = [self._tail()]
                self._size = len(self._parts[0])

    def text(self) -> str:
        """The text, marked at its beginning if more came before."""
        with self._lock:
            tail = self._tail()
            return f"…{tail}" if self._dropped else tail

    def _tail(self) -> str:
        text = "".join(self._parts)
        if len(text) > PARTIAL_LIMIT:
            self._dropped = True
        return text[-PARTIAL_LIMIT:]


class CallContext:
    """Given to a tool that has a parameter annotated with this class; hidden from the model.

    `call` is the call as the model wrote it, `token` says when its result is no longer wanted, and
    `attempt` counts invocations from 1.
    """

    __dispatch_context__ = True

    def __init__(
        self, call: ToolCall, token: CancelToken, grace: float, tell: Callable[[str], None]
    ) -> None:
        self.call = call
        self.token = token
        self.attempt = 1
        self._grace = grace
        self._tell = tell
        self._partial = Partial()

    def progress(self, text: str) -> None:
        """Tell what happens, a line at a time. Usable from any thread.

        It goes to the sinks, and into the result of a call that is stopped before it returns.
        """
        self._partial.append(text if text.endswith("\n") else f"{text}\n")
        self._tell(text)

    @property
    def partial(self) -> str:
        """What progress and processes have produced so far, bounded."""
        return self._partial.text().rstrip("\n")

    async def run_process(
        self,
        argv: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> ProcessResult:
        """Run a program in a process group of its own and return its output, bounded in bytes.

        Cancelling the call ends the whole group: SIGTERM, then SIGKILL after the grace. Raises
        `ToolError` if the program cannot be started; any exit status is a result.
        """
        ACTIVITY.add(1)
        try:
            return await run_process(
                argv,
                cwd=cwd,
                env=env,
                stdin=stdin,
                output_limit=output_limit,
                grace=self._grace,
                on_output=self._partial.append,
                on_cancel=self.token.on_cancel,
            )
        finally:
            ACTIVITY.add(-1)
