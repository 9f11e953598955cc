"""The workloads, each made by one small function.

Every workload draws from a generator that its own name seeds, so the same calls come out on every
machine, and adding a workload changes no other. How long a call takes depends on its tool, and on
chance. It is long beside what the timers of an event loop are off, and short enough for all peers
to run all workloads in minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from benchmarks.work import KINDS, Work, Workload

FOLDERS = ("docs", "src", "tests", "web")
MILLISECONDS = {
    "fetch": (40, 60),
    "read": (20, 30),
    "grep": (40, 60),
    "edit": (30, 50),
    "format": (40, 80),
    "move": (20, 40),
    "copy": (30, 50),
    "shell": (30, 60),
}
"""Between what a call of each tool takes."""


def independent_reads() -> Workload:
    """Nothing waits for anything."""
    name = "independent reads"
    random = Random(name)
    turn = [call(random, "read", f"src/{n}.py", times=6) for n in range(16)]
    return workload(name, "16 slow reads of 16 files", turn)


def reads_and_edits() -> Workload:
    """Chains of edits with readers between them, on few files."""
    name = "reads and edits"
    random = Random(name)
    turn = [
        call(random, random.choice(("read", "edit")), f"src/{random.randrange(6)}.py")
        for _ in range(48)
    ]
    return workload(name, "48 reads and edits over 6 files", turn)


def straggler() -> Workload:
    """One slow call that nobody waits for, unless there is a barrier."""
    name = "straggler"
    random = Random(name)
    turn = [call(random, "read", "data.csv", times=16)]
    turn += [call(random, "edit", f"src/{chain}.py") for _ in range(8) for chain in range(8)]
    return workload(name, "a read that takes 400 ms beside 8 chains of 8 edits", turn)


def write_barriers() -> Workload:
    """Formatting holds up what is read in its folder, and should hold up nothing else."""
    name = "write barriers"
    random = Random(name)
    turn: list[Work] = []
    for formatted in ("src", "docs", "", "tests", "src"):
        turn += [call(random, "read", leaf(random)) for _ in range(8)]
        turn.append(call(random, "format", formatted))
    turn += [call(random, "read", leaf(random)) for _ in range(8)]
    about = "48 reads in 4 folders, between them 5 formattings of a folder or of everything"
    return workload(name, about, turn)


def under_a_limit() -> Workload:
    """No slot may be idle, and no ninth call may run."""
    name = "64 calls, limit 8"
    random = Random(name)
    turn = [call(random, random.choice(("fetch", "read")), f"{n}") for n in range(64)]
    return workload(name, "64 independent calls, 8 at once", turn, limit=8)


def limited_tool_first() -> Workload:
    """Calls that wait for their tool's only slot should not keep others from running."""
    name = "limited tool first"
    random = Random(name)
    turn = [call(random, "fetch", f"{n}") for n in range(8)]
    turn += [call(random, "read", f"src/{n}.py") for n in range(40)]
    about = "8 calls of a tool with limit 1, behind them 40 reads, 4 at once"
    return workload(name, about, turn, limit=4, per_tool={"fetch": 1})


def shells_and_reads() -> Workload:
    """A shell keeps the order of its commands; the other shell and the reads do not care."""
    name = "shells and reads"
    random = Random(name)
    turn: list[Work] = []
    for n in range(12):
        turn.append(call(random, "shell", random.choice(("build", "server"))))
        turn.append(call(random, "read", f"src/{n}.py"))
    return workload(name, "12 commands in 2 shells, 12 reads", turn)


def random_calls() -> list[Work]:
    """All sorts of claims."""
    random = Random("200 random calls")
    turn: list[Work] = []
    for tool in random.choices(("read", "edit", "copy", "move"), (5, 3, 1, 1), k=200):
        files = random.sample(range(40), len(KINDS[tool].parameters))
        paths = (f"{FOLDERS[n % len(FOLDERS)]}/{n}.py" for n in files)
        turn.append(call(random, tool, *paths, times=0.5))
    return turn


def unlimited_random_calls() -> Workload:
    """Only conflicts."""
    about = "200 reads, edits, copies and moves over 40 files"
    return workload("200 random calls", about, random_calls())


def limited_random_calls() -> Workload:
    """The same calls: conflicts and a limit at once."""
    about = "the same 200 calls, 8 at once"
    return workload("200 random calls, limit 8", about, random_calls(), limit=8)


def moves_and_copies() -> Workload:
    """Two files a call, so chains join and part."""
    name = "moves and copies"
    random = Random(name)
    turn = [
        call(random, random.choice(("move", "copy")), f"{source}.py", f"{target}.py")
        for source, target in (random.sample(range(12), 2) for _ in range(36))
    ]
    return workload(name, "36 moves and copies over 12 files", turn)


def long_chain_last() -> Workload:
    """Whoever takes the calls as they come begins the chain when all else is done."""
    name = "long chain last"
    random = Random(name)
    turn = [call(random, "read", f"src/{n}.py") for n in range(60)]
    turn += [call(random, "edit", "CHANGELOG.md") for _ in range(9)]
    return workload(name, "60 reads, then a chain of 9 edits, 4 at once", turn, limit=4)


def streamed() -> Workload:
    """The first call could be over when the model writes the last."""
    name = "streamed"
    random = Random(name)
    turn = [call(random, "fetch", f"{n}", times=2, arrives=0.03 * n) for n in range(12)]
    return workload(name, "12 fetches that arrive one by one in 330 ms", turn)


def streamed_with_conflicts() -> Workload:
    """The same where calls must wait for each other, for slots and for the web."""
    name = "streamed with conflicts"
    random = Random(name)
    turn: list[Work] = []
    for n in range(24):
        tool = random.choice(("read", "edit", "fetch"))
        what = f"{n}" if tool == "fetch" else f"src/{random.randrange(5)}.py"
        tags = ("web",) if tool == "fetch" else ()
        turn.append(call(random, tool, what, times=1.25, arrives=0.016 * n, tags=tags))
    about = "24 calls that arrive one by one in 368 ms, 4 at once, 2 of them on the web"
    return workload(name, about, turn, limit=4, per_tag={"web": 2})


def greps_over_edits() -> Workload:
    """A folder stands for all that is below it."""
    name = "greps over edits"
    random = Random(name)
    turn: list[Work] = []
    for _ in range(3):
        turn += [call(random, "edit", leaf(random)) for _ in range(12)]
        turn += [call(random, "grep", folder) for folder in FOLDERS]
    turn.append(call(random, "grep", ""))
    about = "36 edits in 4 folders, between them searches of each folder, last one of everything"
    return workload(name, about, turn)


def agents() -> list[list[Work]]:
    """Four turns: each works on files of its own, and every fourth call on files of all."""
    random = Random("several turns")
    turns: list[list[Work]] = [[], [], [], []]
    for folder, turn in zip(FOLDERS, turns, strict=True):
        for _ in range(16):
            shared = random.random() < 0.25
            path = f"{'shared' if shared else folder}/{random.randrange(4)}.py"
            turn.append(call(random, random.choice(("read", "edit")), path))
    return turns


def several_turns() -> Workload:
    """Calls of different turns may come in any order, but never at once on one file."""
    about = "4 turns at once, each 16 reads and edits, a quarter of them on the same 4 files"
    return workload("several turns", about, *agents())


def several_turns_under_a_limit() -> Workload:
    """The same calls: all turns share the slots."""
    about = "the same 4 turns, 8 calls at once"
    return workload("several turns, limit 8", about, *agents(), limit=8)


def noops(name: str, count: int) -> Workload:
    """Nothing but the cost of whoever runs them."""
    random = Random(name)
    turn = [call(random, "fetch", f"{n}", times=0) for n in range(count)]
    return workload(name, "calls that do nothing, 8 at once", turn, limit=8)


def call(
    random: Random,
    tool: str,
    *arguments: str,
    times: float = 1.0,
    arrives: float = 0.0,
    tags: Iterable[str] = (),
) -> Work:
    """One call that takes so many times what its tool's calls take."""
    return Work(
        tool=tool,
        arguments=dict(zip(KINDS[tool].parameters, arguments, strict=True)),
        seconds=times * random.uniform(*MILLISECONDS[tool]) / 1000,
        tags=frozenset(tags),
        arrives=arrives,
    )


def leaf(random: Random) -> str:
    """One of 40 files in 4 folders."""
    return f"{random.choice(FOLDERS)}/{random.randrange(10)}.py"


def workload(
    name: str,
    about: str,
    *turns: Iterable[Work],
    limit: int | None = None,
    per_tool: dict[str, int] | None = None,
    per_tag: dict[str, int] | None = None,
) -> Workload:
    """A workload of these turns."""
    return Workload(
        name=name,
        about=about,
        turns=tuple(tuple(turn) for turn in turns),
        limit=limit,
        per_tool=per_tool or {},
        per_tag=per_tag or {},
    )


WORKLOADS: tuple[Workload, ...] = (
    independent_reads(),
    reads_and_edits(),
    straggler(),
    write_barriers(),
    under_a_limit(),
    limited_tool_first(),
    shells_and_reads(),
    unlimited_random_calls(),
    limited_random_calls(),
    moves_and_copies(),
    long_chain_last(),
    streamed(),
    streamed_with_conflicts(),
    greps_over_edits(),
    several_turns(),
    several_turns_under_a_limit(),
)
"""All whose makespan is measured."""

NOOPS = noops("1,000 no-op calls", 1_000)
ONE_NOOP = noops("one no-op call", 1)
