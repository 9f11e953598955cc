"""What a tool can ask of its call: the token, progress, nested turns, states, subprocesses."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from dispatch.call import ToolCall
from dispatch.errors import UsageError
from dispatch.runtime.activity import ACTIVITY
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.futures import resolve, uncancelled
from dispatch.runtime.nesting import Scope, current, wait_in_thread
from dispatch.runtime.options import TurnOptions
from dispatch.runtime.process import OUTPUT_LIMIT, ProcessResult, run_process

if TYPE_CHECKING:
    from dispatch.runtime.result import TurnResult
    from dispatch.runtime.turn import Turn

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


class Ground(Protocol):
    """What stands behind a running call: its turn, and the dispatcher that runs it."""

    def make_turn(self, options: TurnOptions, scope: Scope) -> Turn:
        """A turn nested in the call."""
        ...

    def set_state(self, position: int, state: str | None, tell: Callable[[], object]) -> None:
        """Move the call to another state, and tell when it goes on."""
        ...

    def time_out(self, position: int, reason: str) -> None:
        """Stop the call as its time limit would."""
        ...

    def compensate(
        self, position: int, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        """Keep this until the turn is decided."""
        ...


class CallContext:
    """Given to a tool that has a parameter annotated with this class; hidden from the model.

    `call` is the call as the model wrote it, `token` says when its result is no longer wanted,
    `attempt` counts invocations from 1, and `grace` is in seconds.
    """

    __dispatch_context__ = True

    def __init__(
        self,
        call: ToolCall,
        token: CancelToken,
        grace: float,
        tell: Callable[[str], None],
        *,
        scope: Scope | None = None,
        ground: Ground | None = None,
    ) -> None:
        self.call = call
        self.token = token
        self.attempt = 1
        self.raised: BaseException | None = None
        self.at_fault = ""
        self.invoke: Callable[[], Awaitable[Any]]
        self.prepare: Callable[[], Awaitable[None]] | None = None
        self._of_turn = None if scope is None or ground is None else (scope, ground)
        self.grace = grace
        self._tell = tell
        self._partial = Partial()
        self._state: str | None = None

    def turn(self, **options: Unpack[TurnOptions]) -> Turn:
        """A turn nested in this call; takes the options of `Dispatcher.turn`.

        This call gives all its slots back while such a turn is open, and takes them again before it
        goes on; its claims stay held, and do not stand in the way of the nested calls.
        """
        scope, ground = self._turn_of_call
        inside = current()  # a hold of this call, perhaps
        if inside is not None and inside.is_of(scope):
            scope = inside
        return ground.make_turn(options, scope)

    async def run(self, calls: Iterable[ToolCall], **options: Unpack[TurnOptions]) -> TurnResult:
        """Run calls in a turn nested in this call. See `turn` and `Dispatcher.run`.

        Raises `UsageError` where turns are nested too deep, or the call was given up.
        """
        return await self.turn(**options).run(list(calls))

    def run_sync(self, calls: Iterable[ToolCall], **options: Unpack[TurnOptions]) -> TurnResult:
        """`run` for a `def` tool: waits in its worker thread, while the calls run on the loop.

        Raises `UsageError` on the loop's own thread, which it would block.
        """
        loop = self._turn_of_call[0].loop
        assert loop is not None  # noqa: S101 - a call's scope has the loop of its turn
        return wait_in_thread(self.run(calls, **options), loop)

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Give all slots back while the body waits for something; take them again after it.

        For back-offs and long waits for others. The claims stay held. A body that is
        cancelled waits for its slots all the same, unless the call is asked to stop.
        """
        scope, _ = self._turn_of_call
        async with scope.suspended():
            yield

    async def set_state(self, state: str) -> None:
        """Enter a state: a tag whose limit this call counts against until it enters another.

        The call gives all its slots back and takes those of the new state in one step, so calls
        that swap full states cannot block each other; if there is room it goes on at once.
        """
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            loop.call_soon_threadsafe(resolve, entered, None)

        scope, ground = self._turn_of_call
        ground.set_state(scope.position, state, tell)
        before, self._state = self._state, state
        try:
            await asyncio.shield(entered)
        except asyncio.CancelledError:
            self._state = before
            back: asyncio.Future[None] = loop.create_future()
            ground.set_state(
                scope.position, before, lambda: loop.call_soon_threadsafe(resolve, back, None)
            )
            await uncancelled(back)
            raise

    def on_rollback(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Undo what this call just did by calling this, if its all-or-nothing group fails.

        Compensations run newest first, once each, `async def` on the loop and `def` in a thread,
        after every call of the turn has ended. Under other policies it is never called. Usable
        from any thread.
        """
        if not callable(function):
            raise TypeError(f"on_rollback takes a function and its arguments, not {function!r}")
        scope, ground = self._turn_of_call
        ground.compensate(scope.position, function, args, kwargs)

    async def has_slots(self) -> None:
        """Wait until the next attempt has its slots and rates. For middleware."""
        if self.prepare is not None:
            await self.prepare()

    def time_out(self, reason: str) -> None:
        """Stop this call as its time limit would. For middleware that limits attempts."""
        scope, ground = self._turn_of_call
        ground.time_out(scope.position, reason)

    @property
    def _turn_of_call(self) -> tuple[Scope, Ground]:
        if self._of_turn is None:
            raise UsageError("this context was made by hand: its call belongs to no turn")
        return self._of_turn

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
        inside = current()
        undoes = inside is not None and inside.undoes
        token = inside.token if inside is not None and undoes else self.token
        ACTIVITY.add(1)
        try:
            return await run_process(
                argv,
                cwd=cwd,
                env=env,
                stdin=stdin,
                output_limit=output_limit,
                grace=self.grace,
                on_output=self._partial.append,
                on_cancel=token.on_cancel,
            )
        finally:
            ACTIVITY.add(-1)
