"""What the function-calling workload makes of turns: the ways to run them, and their states."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.functions import bfcl, measure
from benchmarks.functions.bfcl import Request
from benchmarks.functions.effects import Declared, Effects
from benchmarks.functions.state import attributes, picture, shared
from benchmarks.functions.turns import Ran, Turns, answer
from dispatch.testing import run_in_virtual_time


class Files:
    """An API with state; `peek` and `note` are declared wrongly in one of the tests."""

    def __init__(self) -> None:
        self.place = "/"
        self.texts: dict[str, list[str]] = {}
        self.peeks = 0

    def go(self, place: str) -> str:
        """Change the place."""
        self.place = place
        return place

    def put(self, text: str) -> dict[str, int]:
        """Add a text at the place."""
        self.texts.setdefault(self.place, []).append(text)
        return {"texts": len(self.texts[self.place])}

    def peek(self) -> int:
        """Count how often this is called."""
        self.peeks += 1
        return self.peeks

    def fail(self, tags: list[str] = [], *, more: list[str] = []) -> None:  # noqa: B006 - tested
        """Change the defaults, and raise."""
        tags.append("x")
        more.append("x")
        raise ValueError(f"{len(tags)} and {len(more)}")


TEXT = {"type": "string"}
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "go": {"type": "object", "properties": {"place": TEXT}, "required": ["place"]},
    "put": {"type": "object", "properties": {"text": TEXT}, "required": ["text"]},
    "peek": {"type": "object", "properties": {}},
}
TURN = [("go", {"place": "/a"}), ("put", {"text": "1"}), ("go", {"place": "/b"})]
TURN += [("put", {"text": str(number)}) for number in range(8)]


def turns(**methods: Effects) -> Turns:
    """Turns over the files, with these declarations."""
    return Turns({"Files": Declared(methods=methods, groups={})}, {"Files": SCHEMAS})


def requests(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Request]:
    """The calls of a turn."""
    return [Request(api="Files", method=name, arguments=given) for name, given in calls]


async def in_all_ways(over: Turns, turn: list[Request]) -> dict[str, Ran]:
    """Run a turn from the same state in every way."""
    ran = {}
    ways = {"serial": over.serial, "dispatch": over.dispatched, "gather": over.gathered}
    async with over.dispatcher:
        for way, run in ways.items():
            over.begin({"Files": Files()}, "one", turn)
            ran[way] = await run(turn)
    return ran


def test_ways() -> None:
    """Through the dispatcher a turn leaves the serial run's state and results; gather does not."""
    honest = turns(
        go=Effects(writes=frozenset({"place"})),
        put=Effects(reads=frozenset({"place"}), writes=frozenset({"texts"})),
    )

    ran = run_in_virtual_time(in_all_ways(honest, requests(TURN)))

    assert ran["serial"].state == ran["dispatch"].state
    assert ran["serial"].texts == ran["dispatch"].texts
    assert ran["serial"].state != ran["gather"].state
    assert ran["serial"].seconds > ran["gather"].seconds
    assert not honest.undeclared


def test_ways_if_nothing_is_declared_to_conflict() -> None:
    """A wrong declaration shows in the state: the comparison does not depend on the dispatcher."""
    wrong = turns(go=Effects(), put=Effects())

    ran = run_in_virtual_time(in_all_ways(wrong, requests(TURN)))

    assert ran["serial"].state != ran["dispatch"].state
    assert {"Files.go", "Files.put"} == wrong.read_only_wrote


def test_undeclared_writes() -> None:
    """A method that changes what it does not declare is found out; one that may write is apart."""
    wrong = turns(
        go=Effects(writes=frozenset({"texts"})),
        peek=Effects(reads=frozenset({"peeks"})),
    )

    run_in_virtual_time(in_all_ways(wrong, requests([("go", {"place": "/a"}), ("peek", {})])))

    assert {"Files.go", "Files.peek"} == wrong.undeclared
    assert {"Files.peek"} == wrong.read_only_wrote


def test_lower_bound() -> None:
    """The bound is the longest chain of calls that conflict."""
    over = turns(go=Effects(writes=frozenset({"place"})), peek=Effects())
    turn = requests([("go", {"place": "/a"}), ("peek", {}), ("go", {"place": "/b"})])

    over.begin({}, "one", turn)

    assert over.seconds[0] + over.seconds[2] == pytest.approx(over.lower_bound(turn))


def test_accepted() -> None:
    """A call that its tool's schema refuses is left out, and no other."""
    turn = requests([("go", {"place": 1}), ("peek", {})])

    assert (turn[1],) == turns(go=Effects(), peek=Effects()).accepted(turn)


def test_answer() -> None:
    """What a method raises is its text, and its default is a new object for every call."""
    failing = Request(api="Files", method="fail", arguments={})
    putting = Request(api="Files", method="put", arguments={"text": "1"})

    assert ["Error during execution: 1 and 1"] * 2 == [answer(Files(), failing) for _ in range(2)]
    assert '{"texts": 1}' == answer(Files(), putting)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, id="order of a dict"),
        pytest.param([1], [True], id="types"),
        pytest.param([[1], [1]], [[1]] * 2, id="one object twice"),
        pytest.param(random.Random(1), random.Random(2), id="what chance comes next"),
        pytest.param(SimpleNamespace(a=[1]), SimpleNamespace(a=[2]), id="attributes"),
    ],
)
def test_pictures_that_differ(one: object, other: object) -> None:
    """Any difference in a state is one of its picture, though the values may be equal."""
    assert picture(one) != picture(other)


def test_pictures_that_are_equal() -> None:
    """Times do not count, and an object may be inside itself."""

    def loop(when: int) -> object:
        made = SimpleNamespace(names={"a", "b"}, _last_modified=when)
        made.itself = made
        return made

    assert picture(loop(1)) == picture(loop(2))
    assert {"names", "_last_modified", "itself"} == attributes(loop(1)).keys()


def test_shared() -> None:
    """Attributes are shared by the objects in them that can change, and by nothing else."""
    common = ["x"]
    instance = SimpleNamespace(a={"in": common}, b=(common,), c="x", d=["x"])

    assert {("a", "b")} == shared(instance)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what the set needs is not installed, the error says how to install all of it."""
    monkeypatch.setitem(sys.modules, "mpmath", None)  # also where it is
    with pytest.raises(RuntimeError, match=r"pip install --no-deps bfcl-eval"):
        measure(cast("Any", SimpleNamespace(quick=True)))
    assert "bfcl-eval" in bfcl.INSTALL
