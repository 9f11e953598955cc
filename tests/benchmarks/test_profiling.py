"""The profile of a call that does nothing covers all of its time, and counts exactly."""

from benchmarks.profiling import LOOP, PACKAGE, PARTS, REST, measure, part_of


def test_every_share_is_told_and_the_counts_are_the_same_in_every_run() -> None:
    """The shares make up the whole; a call passes as many functions of the package each time."""
    first, second = measure(), measure()
    for workload, parts in first.items():
        assert [*PARTS, LOOP, REST] == list(parts)
        assert 0.999 < sum(part["share"] for part in parts.values()) < 1.001
        assert all(part["share"] > 0 < part["functions"] for part in parts.values())
        again = second[workload]
        assert [parts[name]["functions"] for name in PARTS] == [
            again[name]["functions"] for name in PARTS
        ]


def test_every_function_has_its_part() -> None:
    """Files of the package by name or folder, the loop's by its packages; the rest is the rest."""

    def of(name: str) -> str:
        return part_of(compile("", name, "exec"))

    named = {file for names in PARTS.values() for file in names if file.endswith(".py")}
    assert [] == [file for file in named if not (PACKAGE / file).is_file()]
    assert {of(str(file)) for file in PACKAGE.rglob("*.py")} == set(PARTS)
    assert [LOOP, LOOP] == [of("/lib/asyncio/events.py"), of("/lib/selectors.py")]
    assert [REST, REST] == [of("/lib/heapq.py"), part_of("<built-in method len>")]
