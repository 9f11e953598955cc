"""Every schedule leaves what running the turn serially leaves: in memory, and on real files."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch import Claim, Dispatcher, Schedule, Tool, ToolCall, commute, read, write
from dispatch.testing import run_in_virtual_time

pytestmark = pytest.mark.timeout(120)
OPERATIONS = ("get", "set", "add", "move", "sum", "put in")
KEYS = ("a", "b", "c")

Operation = tuple[str, str, str, int]
"""What to do, to which key, with which other key, taking how long."""

operations = st.lists(
    st.tuples(
        st.sampled_from(OPERATIONS),
        st.sampled_from(KEYS),
        st.sampled_from(KEYS),
        st.integers(0, 3),
    ),
    max_size=12,
)


class Store:
    """A dictionary whose every operation lets others in between its read and its write."""

    def __init__(self) -> None:
        self.values: dict[str, str] = dict.fromkeys(KEYS, "-")
        self.bag: list[str] = []

    async def apply(self, do: str, key: str, other: str, pause: int) -> str:
        seen = dict(self.values)
        await asyncio.sleep(pause)
        if do == "set":
            self.values[key] = f"{key}{pause}"
        elif do == "add":
            self.values[key] = f"{seen[key]}+{pause}"
        elif do == "move":
            self.values[other] = f"{seen[other]}<{seen[key]}"
            if other != key:
                self.values[key] = ""
        elif do == "put in":
            self.bag.append(f"{pause}")
        return seen[key] if do == "get" else "".join(seen.values()) if do == "sum" else ""

    def final(self) -> tuple[dict[str, str], list[str]]:
        return self.values, sorted(self.bag)


def declared(arguments: object) -> list[Claim]:
    assert isinstance(arguments, object)
    a = dict(arguments)  # type: ignore[call-overload]
    key, other = a["key"], a["other"]
    return {
        "get": [read("store", key)],
        "sum": [read("store")],
        "set": [write("store", key)],
        "add": [write("store", key)],
        "move": [write("store", key), write("store", other)],
        "put in": [commute("put", "bag")],
    }[a["do"]]


@given(operations, st.sampled_from(list(Schedule)), st.integers(1, 4))
def test_a_shared_store_ends_as_after_a_serial_run(
    turn: list[Operation], schedule: Schedule, limit: int
) -> None:
    """State and results are those of the serial run; only commuting puts may change places."""

    def run(schedule: Schedule, limit: int) -> tuple[object, list[str]]:
        store = Store()
        tool = Tool("apply", store.apply, resource_keys=declared)
        calls = [
            ToolCall(str(n), "apply", {"do": do, "key": key, "other": other, "pause": pause})
            for n, (do, key, other, pause) in enumerate(turn)
        ]
        dispatcher = Dispatcher([tool], max_concurrent=limit)
        results = run_in_virtual_time(dispatcher.run(calls, schedule=schedule))
        return store.final(), [result.content() for result in results]

    assert run(Schedule.SERIAL, 1) == run(schedule, limit)


FileStep = tuple[str, str, str]
file_steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "append", "copy", "delete", "list"]),
        st.sampled_from(["a.txt", "d/b.txt", "d/../a.txt", "d"]),
        st.sampled_from(["a.txt", "d/b.txt", "d/e/c.txt"]),
    ),
    max_size=8,
)


def _change(root: Path, do: str, path: str, target: str) -> str:
    file, to = root / path, root / target
    if do == "list":
        return ",".join(sorted(str(p.relative_to(root)) for p in (root / "d").rglob("*")))
    if do == "delete":
        file.unlink()
    else:
        old = file.read_text() if do in ("append", "copy") else ""
        to.parent.mkdir(parents=True, exist_ok=True)
        (to if do == "copy" else file).write_text(f"{old}{do} {path};")
    return "done"


def _touched(arguments: object) -> list[Claim]:
    a = dict(arguments)  # type: ignore[call-overload]
    do, path, target = a["do"], a["path"], a["target"]
    if do == "list":
        return [read("file", "d")]
    if do == "copy":
        return [read("file", path), write("file", target)]
    return [write("file", path), write("file", str(Path(target).parent))]


@settings(max_examples=40)
@given(steps=file_steps, schedule=st.sampled_from(list(Schedule)))
def test_real_files_end_as_after_a_serial_run(
    steps: list[FileStep], schedule: Schedule, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Worker threads, a real folder, two names of one file, directories: byte for byte the same."""

    def run(schedule: Schedule) -> tuple[dict[str, str], list[str]]:
        root = tmp_path_factory.mktemp("root")
        (root / "d").mkdir()
        (root / "a.txt").write_text("first;")

        def change(do: str, path: str, target: str) -> str:
            return _change(root, do, path, target)

        dispatcher = Dispatcher([Tool("change", change, resource_keys=_touched)], root=root)
        calls = [
            ToolCall(str(n), "change", {"do": do, "path": path, "target": target})
            for n, (do, path, target) in enumerate(steps)
        ]
        results = dispatcher.run_sync(calls, schedule=schedule)
        files = {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file()}
        return files, [r.content().replace(str(root), "") for r in results]

    assert run(Schedule.SERIAL) == run(schedule)
