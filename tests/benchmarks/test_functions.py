"""What the function-calling workload takes from the source of an API, on small classes."""

from __future__ import annotations

import pytest

from benchmarks.functions.effects import Declared, Effects, analysed
from benchmarks.functions.heap import NOTHING, Heap

CAR = """
import json
import random
from typing import Optional

LIMITS = {"speed": 130}


class Trip:
    def __init__(self, name, stops):
        self.name = name
        self.stops = stops

    def _add(self, stop):
        self.stops.append(stop)

    def _names(self):
        return [stop for stop in self.stops]


class Car:
    def __init__(self):
        self.driver: Optional[str]
        self.fuel: float
        self.doors = {}
        self.log = []
        self.trips = {}
        self.last = None
        self.cache = {}
        self.routes = []
        self.chance = random.Random(1)

    def show_doors(self):
        return {"doors": self.doors}

    def lock(self, name):
        doors = self.doors
        doors[name] = "locked"

    def lock_unpacked(self, name):
        near = {"doors": self.doors}
        far = {**near}
        far["doors"][name] = "locked"

    def lock_all(self):
        for name in self.doors:
            self._lock(name)

    def _lock(self, name):
        self.doors[name] = "locked"

    def report(self):
        found = {"doors": self.doors}
        found["log"] = self.log
        more = [line for line in self.log]
        more.append("end")
        found["more"] = more
        return json.dumps(found)

    def fill(self, litres: float):
        if self.fuel + litres > 50:
            return "full"
        self.fuel += litres
        self.log.append({"by": self.driver, "litres": litres})

    def sign_in(self, name: str):
        self.driver = name

    def temperature(self):
        return self.chance.uniform(0, 10)

    def start_trip(self, name, stops):
        trip = Trip(name, stops)
        self.trips[name] = trip
        self.last = trip

    def add_stop(self, name, stop):
        self.trips[name]._add(stop)

    def show_last(self):
        return self.last._names()

    def limit(self, speed):
        LIMITS["speed"] = speed

    def show_limit(self):
        return LIMITS["speed"]

    def plan(self, route, options=[]):
        options.append(route)
        self.routes.append(options)

    def count(self):
        def size(part):
            return sum(size(one) for one in part) if isinstance(part, list) else 1

        return size(self.routes)

    def clear_cache(self):
        del self.cache["all"]

    def hello(self):
        return "hello"
"""


def car() -> Declared:
    """The analysed class."""
    return analysed(CAR, "Car")


@pytest.mark.parametrize(
    ("method", "reads", "writes"),
    [
        pytest.param("show_doors", {"doors"}, set(), id="returning state reads it"),
        pytest.param("lock", set(), {"doors"}, id="a local name for state"),
        pytest.param("lock_unpacked", set(), {"doors"}, id="inside an object of its own"),
        pytest.param("lock_all", set(), {"doors"}, id="through a method of its own"),
        pytest.param("report", {"doors", "log"}, set(), id="filling an object of its own"),
        pytest.param("fill", {"driver"}, {"fuel", "log"}, id="a method that changes its object"),
        pytest.param("sign_in", set(), {"driver"}, id="assigning an attribute"),
        pytest.param("temperature", set(), {"chance"}, id="a foreign method may change its object"),
        pytest.param("start_trip", set(), {"last"}, id="attributes with one object are one group"),
        pytest.param("add_stop", set(), {"last"}, id="through a method of another class"),
        pytest.param("show_last", {"last"}, set(), id="reading through another class"),
        pytest.param("limit", set(), {":LIMITS"}, id="a global"),
        pytest.param("show_limit", {":LIMITS"}, set(), id="reading a global"),
        pytest.param("plan", set(), {"routes"}, id="a default that is kept"),
        pytest.param("count", {"routes"}, set(), id="a function inside that calls itself"),
        pytest.param("clear_cache", set(), {"cache"}, id="deleting"),
        pytest.param("hello", set(), set(), id="nothing"),
    ],
)
def test_effects(method: str, reads: set[str], writes: set[str]) -> None:
    """A method reads and writes the groups that its source reaches, and no others."""
    assert Effects(reads=frozenset(reads), writes=frozenset(writes)) == car().methods[method]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("eval(name)", id="eval"),
        pytest.param("save(self)", id="the object itself is passed on"),
        pytest.param("vars(self).clear()", id="vars"),
        pytest.param("with self.a:\n            pass", id="a statement that is not followed"),
        pytest.param("self.missing()", id="a method that is not there"),
        pytest.param("return map(self.other, [1])", id="a method that is passed on"),
        pytest.param("Thing.other(self)", id="a method called through its class"),
        pytest.param("Other.add(self.a, 1)", id="a method called through another class"),
        pytest.param("one = Thing()\n        one.other()", id="another object of the class"),
        pytest.param("global A\n        A = self.a", id="a global that is assigned"),
    ],
)
def test_fails_closed(body: str) -> None:
    """What is not followed may write everything, also what no method is seen to touch."""
    source = f"""
class Other:
    def add(self, one):
        self.append(one)


class Thing:
    def strange(self, name):
        {body}

    def other(self):
        return self.a + self.b
"""
    declared = analysed(source, "Thing")

    assert declared.group("a") in declared.methods["strange"].writes
    assert declared.group("never mentioned") in declared.methods["strange"].writes
    assert declared.methods["strange"].writes == declared.methods["other"].reads


@pytest.mark.parametrize(
    "keeping",
    [
        pytest.param("self.b = self.a", id="assigned"),
        pytest.param("self.b.append(self.a)", id="appended"),
        pytest.param("self.b = [{'x': self.a}]", id="inside a new object"),
        pytest.param(
            "new = []\n        self.b = new\n        new.append(self.a)", id="put in later"
        ),
        pytest.param(
            "new = []\n        self.a = new\n        self.b = new", id="one object in both"
        ),
        pytest.param("self.b = {**self.a}", id="unpacked"),
        pytest.param("self.b, rest = self.a, 1", id="taken apart"),
        pytest.param("save(self.a, self.b)", id="given to foreign code"),
        pytest.param("name.append(self.a)\n        self.b = name", id="by way of an argument"),
        pytest.param("self.b += self.a", id="added"),
        pytest.param("new = self.b\n        new += self.a", id="added under another name"),
        pytest.param("self.b = self.c = quoted\n        self.a = quoted", id="a quoted annotation"),
        pytest.param("self.b = self._same(self.a)", id="through a method"),
        pytest.param("self.b = max(self.a, key=len)", id="a part of it"),
        pytest.param("self.b = [one for one in self.a]", id="its parts"),
        pytest.param("self.a = self._own()\n        self.b = self._own()", id="one default"),
    ],
)
def test_sharing(keeping: str) -> None:
    """Attributes that may come to share an object are one group for all methods."""
    source = f"""
class Thing:
    def mix(self, name, quoted: Optional['list'] = None):
        {keeping}

    def _same(self, value):
        return value

    def _own(self, value=[]):
        return value

    def change(self):
        self.b[0].append(1)

    def look(self):
        return self.a
"""
    methods = analysed(source, "Thing").methods

    assert methods["change"].writes == methods["look"].reads


def test_what_is_put_into_state_is_state() -> None:
    """An object that was made and put into an attribute is a part of it from then on."""
    heap = Heap()
    made = heap.make("here", NOTHING)

    assert NOTHING == heap.store(made, NOTHING)
    heap.store(frozenset({"a"}), made)
    assert {"a"} == heap.store(made, NOTHING)


def test_sharing_from_the_start() -> None:
    """Attributes that share an object before anything is called are one group."""
    source = """
class Thing:
    def change(self):
        self.b.append(1)

    def look(self):
        return self.a
"""
    apart, together = analysed(source, "Thing"), analysed(source, "Thing", [("a", "b")])

    assert Effects() == apart.methods["look"]
    assert together.methods["change"].writes == together.methods["look"].reads
