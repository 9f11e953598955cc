"""Which tool call, or hold, this code runs in: a context variable, carried into worker threads too.

A turn that is started inside a tool is nested in its call: it stands below the call in the tree of
owners, the call is suspended while such a turn is open, and settles only after it. Once the call
has really ended, what left-over tasks start is nested in nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent import futures
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dispatch.errors import UsageError
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.futures import resolve, uncancelled

if TYPE_CHECKING:
    from dispatch.runtime.resources import ResourceTable
    from dispatch.runtime.rollback import Compensation

T = TypeVar("T")
LOOK = 1.0
"""Seconds after which a thread that waits for a loop looks whether that is still there."""
MAX_DEPTH = 16
"""How deep turns may be nested by default."""


class Keeper(Protocol):
    """A turn that keeps what is nested in it, claims and compensations, until it is decided."""

    owner: int

    def keep(
        self, table: ResourceTable, tickets: list[int], compensations: list[Compensation]
    ) -> bool:
        """Take these over; False if the turn is decided, or has its claims in another table."""
        ...


class Host(Protocol):
    """The turn that a running call belongs to. Every method may be called from any thread."""

    def keeper_of(self, position: int) -> Keeper | None:
        """Who keeps what is nested in the call, if the call may yet be undone."""
        ...

    def call_owner(self, position: int) -> int:
        """The owner of the call in the table."""
        ...

    def suspend(self, position: int) -> None:
        """The call waits for something else than slots."""
        ...

    def wake(self, position: int) -> None:
        """It waits for one thing less."""
        ...

    def again(self, position: int) -> None:
        """The call gives its slots back and takes those of another attempt, in one step."""
        ...

    def nested(self, position: int, change: int) -> None:
        """One nested turn more or less lives."""
        ...

    def held_up_below(self, position: int) -> None:
        """A call nested in this one was given up and may never end."""
        ...

    def when_going_on(self, position: int, tell: Callable[[], object]) -> None:
        """Tell once the call does not wait for its slots (any more)."""
        ...


class Scope:
    """What code runs in: a call, a compensation, or a hold inside or outside of one."""

    __slots__ = (
        "_keeper",
        "_outer",
        "_owner",
        "_token",
        "abandoned",
        "above",
        "alive",
        "depth",
        "host",
        "loop",
        "open_turns",
        "position",
        "table",
        "tool",
        "turn_id",
        "undoes",
    )

    def __init__(
        self,
        table: ResourceTable,
        *,
        tool: str = "",
        turn_id: str = "",
        position: int = -1,
        depth: int = 0,
        host: Host | None = None,
        owner: int = 0,
        keeper: Keeper | None = None,
        outer: Scope | None = None,
        above: Scope | None = None,
        undoes: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.table = table
        self.tool = tool
        self.turn_id = turn_id
        self.position = position
        self.depth = depth
        self.host = host
        self.loop: asyncio.AbstractEventLoop | None = loop or (outer.loop if outer else None)
        self.above = above
        self.undoes: bool = undoes or (outer is not None and outer.undoes)
        self.alive = True
        self.abandoned = False
        self.open_turns: list[Callable[[], object]] = []
        """What closes the turns that were opened in here."""
        self._owner = owner
        self._keeper = keeper
        self._outer = outer
        self._token: CancelToken | None = None

    @property
    def owner(self) -> int:
        """The owner that nested turns stand below, in `table`."""
        if not self._owner and self.host is not None:
            self._owner = self.host.call_owner(self.position)
        return self._owner

    @property
    def call(self) -> tuple[str, int]:
        """The call, as its turn and position."""
        return self.turn_id, self.position

    @property
    def keeper(self) -> Keeper | None:
        """Who keeps the claims of nested turns until it is decided."""
        if self._keeper is None and self.host is not None:
            return self.host.keeper_of(self.position)
        return self._keeper

    @property
    def token(self) -> CancelToken:
        """Cancelled when the call is stopped; nested turns listen to it."""
        if self._outer is not None:
            return self._outer.token
        if self._token is None:
            self._token = CancelToken()
        return self._token

    def stop(self, reason: str) -> None:
        """The call is stopped, and with it what is nested in it, now or later."""
        self.token.cancel(reason)

    def innermost_alive(self) -> Scope | None:
        """The scope itself, or the next one around it that has not ended."""
        scope: Scope | None = self
        while scope is not None and not scope.alive:
            scope = scope._outer
        return scope

    @property
    def own(self) -> Scope:
        """The call or compensation itself, whatever holds it is in."""
        return self if self._outer is None else self._outer.own

    def held_in(self, table: ResourceTable, owner: int) -> Scope:
        """The scope of a hold in here: of the same call, but below the hold's owner."""
        return Scope(
            table,
            tool=self.tool,
            turn_id=self.turn_id,
            position=self.position,
            depth=self.depth,
            host=self.host,
            owner=owner,
            keeper=self.keeper,
            above=self.above,
            outer=self,
        )

    def on(self, table: ResourceTable) -> Scope | None:
        """The nearest scope, from here outwards, that has its owner in this table."""
        scope: Scope | None = self
        while scope is not None and scope.table is not table:
            scope = scope._outer or scope.above
        return scope

    def end(self) -> None:
        """The tool has really returned: what it left open takes no more calls."""
        self.alive = False
        turns, self.open_turns = self.open_turns, []
        for close in turns:
            close()

    def is_of(self, other: Scope) -> bool:
        """Whether both belong to the same running call."""
        return self.host is other.host and self.position == other.position

    @property
    def is_given_up(self) -> bool:
        """Whether the call did not stop when it was told to, and has its result."""
        return self.abandoned or (self._outer is not None and self._outer.is_given_up)

    def check(self, max_depth: int) -> None:
        """Raise `UsageError` if no turn may be started here: too deep, or given up."""
        self.check_wanted()
        if self.depth >= max_depth:
            raise UsageError(
                f"turns are nested {max_depth} deep already; if the tool {self.tool!r} is meant to"
                " call itself so often, raise max_depth of the dispatcher"
            )

    def check_wanted(self) -> None:
        """Raise `UsageError` if the call was given up."""
        if self.is_given_up:
            raise UsageError(
                f"the call of {self.tool!r} was given up, so it starts nothing any more"
            )

    def suspend(self) -> None:
        """A nested turn opens, or a hold waits: the call gives its slots back."""
        if self.host is not None:
            self.host.suspend(self.position)

    def wake(self) -> None:
        """What it waited for is there."""
        if self.host is not None:
            self.host.wake(self.position)

    def again(self) -> None:
        """Another attempt begins: the call gives its slots back and takes them anew."""
        if self.host is not None:
            self.host.again(self.position)

    def held_up_below(self) -> None:
        """A call nested in this one was given up and may never end."""
        if self.host is not None:
            self.host.held_up_below(self.position)

    def nest(self, change: int) -> None:
        """A nested turn opens (1), or nothing of it is left (-1)."""
        if self.host is None:
            return
        self.host.nested(self.position, change)
        if change > 0:
            self.host.suspend(self.position)

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """The call waits in the body without its slots, and has them again after it.

        However the body ends; only a call that is asked to stop needs none.
        """
        self.suspend()
        try:
            yield
        finally:
            self.wake()
            await self.going_on()

    async def going_on(self) -> None:
        """Wait until the call has its slots again, also while being cancelled; then raise."""
        if self.host is None:
            return
        loop = asyncio.get_running_loop()
        there: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            loop.call_soon_threadsafe(resolve, there, None)

        self.host.when_going_on(self.position, tell)
        await uncancelled(there)


PARENT: ContextVar[Scope | None] = ContextVar("dispatch_parent_call", default=None)
"""What this code runs in. Tasks that outlive their call see it not alive."""


def current() -> Scope | None:
    """What a turn that is started now is nested in."""
    scope = PARENT.get()
    return None if scope is None else scope.innermost_alive()


def wait_in_thread(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run it on the loop and wait for it here, in another thread.

    Raises `UsageError` elsewhere, and if the loop is closed meanwhile.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        coroutine.close()
        raise UsageError(
            "run_sync was called on a running event loop, which it would block;"
            " write `await ….run(…)`"
        )
    if loop.is_closed():
        coroutine.close()
        raise UsageError("the event loop of the turn is closed, so nothing can be run on it")
    result: T
    future = asyncio.run_coroutine_threadsafe(_carried(coroutine), loop)
    while not futures.wait([future], LOOK).done:
        if loop.is_closed() and not future.done():
            raise UsageError("the event loop of the turn was closed in the middle of it")
    result, fatal = future.result()
    if fatal is not None:
        raise fatal
    return result


async def _carried(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """What it returned, or what must end the program: raised here, it would break off the loop."""
    try:
        return await coroutine, None
    except (KeyboardInterrupt, SystemExit) as error:
        return None, error
