"""A server that answers 429 above a capacity that nobody is told and that moves, and its callers.

Owns the server, the callers and what is counted of them. An adaptive limit is measured against
every fixed one in virtual time, so that the same numbers come of every run on any machine, with all
processors at work. Over HTTP, in real time, it is only seen that a real client's exception is
understood.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

from benchmarks.options import Options
from benchmarks.progress import progress
from benchmarks.targets import THROUGHPUT
from dispatch import AdaptiveLimit, CallContext, Dispatcher, Limits, ToolCall, tool
from dispatch.runtime.middleware import Handler
from dispatch.testing import run_in_virtual_time

ADAPTIVE = AdaptiveLimit(1, 64)
FIXED = range(1, 33)
CALLERS = 34
SERVICE, SPREAD = 0.05, 0.2
"""Seconds that a request takes, and by which part of it at most more or less."""
REJECTION = 0.001
"""Seconds that a 429 takes."""
BACKOFF = 0.05
"""Seconds that a caller waits who is not told for how long, half of it more or less."""
EVERY = 0.1
"""Seconds between two points of a curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What happens at the server: the capacities follow each other, each for `seconds`."""

    capacities: tuple[int, ...]
    seconds: float
    retry_after: float | None = 0.05
    """Seconds that it asks those to wait whom it rejects; None if it does not say."""
    seed: int = 6

    @property
    def until(self) -> float:
        """When it is over."""
        return self.seconds * len(self.capacities)

    def capacity(self, now: float) -> int:
        """The most requests at once that are served now."""
        return self.capacities[min(int(now / self.seconds), len(self.capacities) - 1)]


MOVES = (12, 5, 20, 8)
SCENES: Mapping[str, Scene] = {
    "moving capacity": Scene(capacities=MOVES, seconds=3.0),
    "the same without Retry-After": Scene(capacities=MOVES, seconds=1.0, retry_after=None),
    **{f"constant capacity {most}": Scene(capacities=(most,), seconds=6.0) for most in (5, 12, 20)},
}
OVER_HTTP = Scene(capacities=(6, 2), seconds=1.0)


class Response(NamedTuple):
    """As much of a response as a caller looks at."""

    status_code: int
    headers: Mapping[str, str]


class HTTPStatusError(Exception):
    """What an HTTP client raises: the response is on it."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"status {response.status_code}")
        self.response = response


class Server:
    """Serves as many requests at once as its capacity, and rejects the others."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.running = 0
        self._random = random.Random(scene.seed)
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return self._loop.time() - self._began

    async def answer(self) -> Response:
        """The response to one request."""
        if self.running >= self.scene.capacity(self.now):
            await asyncio.sleep(REJECTION)
            after = self.scene.retry_after
            return Response(429, {} if after is None else {"Retry-After": f"{after:g}"})
        self.running += 1
        try:
            await asyncio.sleep(SERVICE * self._random.uniform(1 - SPREAD, 1 + SPREAD))
        finally:
            self.running -= 1
        return Response(200, {})


@dataclass(slots=True)
class Seen:
    """What the callers saw: the moments of successes and of 429s, and of each new limit."""

    served: list[float] = field(default_factory=list)
    rejected: list[float] = field(default_factory=list)
    limits: list[tuple[float, int]] = field(default_factory=list)

    def limit(self, now: float, limit: int) -> None:
        """The limit is this now."""
        if not self.limits or self.limits[-1][1] != limit:
            self.limits.append((now, limit))


class TryAgain:
    """Attempts until one is served. What it waits between them, it waits without slots."""

    def __init__(self, following: Handler, *, saw: Callable[[bool], None], seed: int) -> None:
        self._following = following
        self._saw = saw
        self._random = random.Random(seed)

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        """Serve the call."""
        while True:
            try:
                value = await self._following(call, context)
            except Exception as error:
                response = getattr(error, "response", None)
                if response is None or response.status_code != 429:
                    raise
                self._saw(False)
                after = response.headers.get("Retry-After")
                wait = float(after) if after else BACKOFF * self._random.uniform(0.5, 1.5)
            else:
                self._saw(True)
                return value
            async with context.suspended():
                await asyncio.sleep(wait)


Send = Callable[[], Awaitable[None]]


async def callers(server: Server, limit: int | AdaptiveLimit, send: Send) -> Seen:
    """What callers see under this limit who have another request until the scene is over."""
    seen, scene = Seen(), server.scene
    limits = Limits(total=CALLERS, per_tool={"ask": limit})
    seen.limit(0.0, limits.per_tool["ask"])

    def saw(is_served: bool) -> None:
        (seen.served if is_served else seen.rejected).append(server.now)
        seen.limit(server.now, limits.per_tool["ask"])

    async def ask() -> None:
        await send()

    async def caller() -> None:
        is_open = True
        while is_open:
            turn = await dispatcher.run([ToolCall("0", "ask", {})])
            turn.raise_for_failures()
            is_open = server.now < scene.until

    dispatcher = Dispatcher(
        [tool(safe_parallel=True)(ask)],
        limits=limits,
        middleware=[partial(TryAgain, saw=saw, seed=scene.seed)],
    )
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return seen


def play(scene: Scene, limit: int | AdaptiveLimit) -> Seen:
    """The scene in virtual time."""

    async def run() -> Seen:
        server = Server(scene)

        async def send() -> None:
            response = await server.answer()
            if response.status_code != 200:
                raise HTTPStatusError(response)

        return await callers(server, limit, send)

    return run_in_virtual_time(run())


def over_http(scene: Scene, limit: int | AdaptiveLimit) -> Seen:
    """The scene in real time, over a socket. Raises `ImportError` without httpx."""
    import httpx

    async def run() -> Seen:
        async with httpx.AsyncClient(trust_env=False) as client:
            server = Server(scene)
            async with listening(server) as url:

                async def send() -> None:
                    (await client.get(url)).raise_for_status()

                return await callers(server, limit, send)

    return asyncio.run(run())


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[str]:
    """The server at an address of this machine."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        status, given = await server.answer()
        headers = {**given, "Content-Length": "0", "Connection": "close"}
        lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as listener:
        host, port = listener.sockets[0].getsockname()
        yield f"http://{host}:{port}/"


def rate(moments: Iterable[float], since: float, until: float) -> float:
    """How many of them there are in a second of this time."""
    return sum(since <= moment < until for moment in moments) / (until - since)


def seconds_to_follow(scene: Scene, seen: Seen) -> dict[str, float | None]:
    """By move of the capacity, until the limit is first within one or a tenth of it.

    None if it is not before the next move.
    """
    found: dict[str, float | None] = {}
    for number, (before, most) in enumerate(itertools.pairwise((0, *scene.capacities))):
        moved = number * scene.seconds
        limits = [(moved, limit_at(seen, moved)), *seen.limits]
        moments = [
            moment - moved
            for moment, limit in limits
            if moved <= moment < moved + scene.seconds and abs(limit - most) <= max(1, most / 10)
        ]
        found[f"from {before} to {most}"] = min(moments, default=None)
    return found


def limit_at(seen: Seen, now: float) -> int:
    """What the limit was then."""
    return [limit for moment, limit in seen.limits if moment <= now][-1]


def curves(scene: Scene, seen: Seen) -> dict[str, list[list[float]]]:
    """The limit and the capacity over time, each point where it is another."""
    moments = [step * EVERY for step in range(round(scene.until / EVERY))]
    known = {
        "adaptive limit": [limit_at(seen, moment) for moment in moments],
        "hidden capacity": [scene.capacity(moment) for moment in moments],
    }
    return {
        name: [
            [round(moment, 3), value]
            for moment, value, before in zip(moments, values, (None, *values), strict=False)
            if value != before or moment == moments[-1]
        ]
        for name, values in known.items()
    }


def compared(scene: Scene, seen: Seen, fixed: Mapping[int, Seen]) -> dict[str, Any]:
    """The adaptive limit beside the best of the fixed ones; of equal ones the lowest is best."""
    throughputs = {most: rate(each.served, 0, scene.until) for most, each in fixed.items()}
    best = max(throughputs, key=lambda most: throughputs[most])
    ours = rate(seen.served, 0, scene.until)
    described = {
        THROUGHPUT: ours / throughputs[best],
        "best fixed limit": best,
        "successes/s": {"adaptive": ours, "fixed": throughputs[best]},
        "429s/s": {
            "adaptive": rate(seen.rejected, 0, scene.until),
            "fixed": rate(fixed[best].rejected, 0, scene.until),
        },
        "seconds to follow": seconds_to_follow(scene, seen),
    }
    if len(scene.capacities) > 1:
        phases = [(most, at * scene.seconds) for at, most in enumerate(scene.capacities)]
        described["successes/s by capacity"] = {
            name: {str(most): rate(who.served, at, at + scene.seconds) for most, at in phases}
            for name, who in (("adaptive", seen), ("fixed", fixed[best]))
        }
    return described


def measure(options: Options) -> dict[str, Any]:
    """By scene how both limits did, the worst ratio of all, curves of the first, and over HTTP."""
    names = list(SCENES)[:1] if options.quick else list(SCENES)
    found: dict[str, Any] = {}
    seen = {name: play(SCENES[name], ADAPTIVE) for name in names}
    fixed = FIXED[3::8] if options.quick else FIXED
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for name in names:
            with progress(f"adaptive: {name}") as told:
                others: dict[int, Seen] = {}
                runs = pool.map(partial(play, SCENES[name]), fixed)
                try:
                    for most, each in zip(fixed, runs, strict=True):
                        others[most] = each
                        told()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
                found[name] = compared(SCENES[name], seen[name], others)
    worst = min(each[THROUGHPUT] for each in found.values())
    first = curves(SCENES[names[0]], seen[names[0]])
    return {THROUGHPUT: worst, **found, "over HTTP": real(OVER_HTTP), **first}


def real(scene: Scene) -> dict[str, Any] | str:
    """What comes of it over HTTP."""
    try:
        seen = over_http(scene, ADAPTIVE)
    except ImportError:
        return "not measured: httpx is not installed"
    return {
        "successes": len(seen.served),
        "429s": len(seen.rejected),
        "highest limit": max(limit for _, limit in seen.limits),
        "limit at the end": limit_at(seen, scene.until),
    }
