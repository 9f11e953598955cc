import asyncio
import os
import socket
from pathlib import Path

import pytest

from dispatch import Dispatcher, ToolCall, plan
from dispatch.runtime.cancel import CancelToken
from dispatch.toolkit import browse, coding_tools, glob_tool, list_directory_tool
from dispatch.toolkit.browse import ENTRY_LIMIT, PATH_COUNT_LIMIT
from tests.toolkit.bench import Bench, Interruption


@pytest.fixture
def tree(bench: Bench) -> Bench:
    """A small project with everything in it that is no file."""
    for path in ["b.py", "a.py", "src/z.ts", "src/deep/a.tsx", "src-more/x.py", ".git/config"]:
        (bench.root / path).parent.mkdir(parents=True, exist_ok=True)
        (bench.root / path).write_text(path)
    (bench.root / ".hidden").mkdir()
    (bench.root / ".hidden" / "c.py").touch()
    (bench.root.parent / "outside").mkdir()
    (bench.root.parent / "outside" / "o.py").touch()
    (bench.root / "link").symlink_to(bench.root.parent / "outside")
    (bench.root / "link.py").symlink_to("b.py")
    (bench.root / "inside").symlink_to("src")
    os.mkfifo(bench.root / "pipe.py")
    return bench


def test_a_folder_is_listed_by_name_with_kinds_and_sizes(
    tree: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything in the folder is there, hidden entries and links too, and nothing below."""
    monkeypatch.chdir(tree.root)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    expected = [
        ".git/",
        ".hidden/",
        "a.py (4 bytes)",
        "b.py (4 bytes)",
        "inside (link)",
        "link (link)",
        "link.py (link)",
        "pipe.py (pipe)",
        "socket (socket)",
        "src/",
        "src-more/",
    ]
    assert expected == tree.use("list_directory").split("\n")


@pytest.mark.parametrize("path", ["src", "inside", "src/../src/."])
def test_a_folder_can_be_named_in_any_way(tree: Bench, path: str) -> None:
    """A link inside the root leads where it leads."""
    assert "deep/\nz.ts (8 bytes)" == tree.use("list_directory", path=path)


@pytest.mark.parametrize("name", ["list_directory", "glob"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.py", "'a.py' is a file, not a folder"),
        ("a.py/x", "no folder 'a.py/x'; list the one above"),
        ("nothing", "no folder 'nothing'; list the one above"),
        ("link", "'link' leads out of"),
        ("..", "'..' leads out of"),
        ("/", "'/' leads out of"),
        ("", "the path is empty"),
        ("a\0", "'a\\x00' is no path"),
    ],
)
def test_what_is_no_folder_inside_the_root_is_refused(
    tree: Bench, name: str, path: str, expected: str
) -> None:
    """The refusal says which path was meant and what is wrong with it."""
    arguments = {"pattern": "*"} if name == "glob" else {}
    assert tree.refusal(name, path=path, **arguments).startswith(expected)


def test_an_empty_folder_is_said_to_be_empty(bench: Bench) -> None:
    """No entries are an answer in words, also behind a name."""
    assert "no entries in '.'" == bench.use("list_directory")
    (bench.root / "a").touch()
    assert "no entries in '.' behind 'b'" == bench.use("list_directory", after="b")


def test_a_large_folder_is_listed_in_parts(bench: Bench) -> None:
    """Each part says how many entries are left and where to go on; together they are all."""
    names = [f"{n:05}" for n in range(2 * ENTRY_LIMIT + 5)]
    for name in names:
        (bench.root / name).touch()
    seen: list[str] = []
    for more in (ENTRY_LIMIT + 5, 5, 0):
        lines = bench.use("list_directory", after=seen[-1] if seen else "").split("\n")
        seen += [line.removesuffix(" (0 bytes)") for line in lines if line[0] != "["]
        note = f"[{more:,} more entries; go on with after={seen[-1]!r}]"
        assert (note == lines[-1]) == (more > 0)
    assert names == seen


def test_odd_names_stay_on_their_line(bench: Bench) -> None:
    """A line end or a byte that is no text in a name is escaped, in both tools."""
    (bench.root / "a\nb").touch()
    Path(os.fsdecode(os.fsencode(bench.root) + b"/c\xff")).touch()
    assert "a\\nb (0 bytes)\nc\\udcff (0 bytes)" == bench.use("list_directory")
    assert "a\\nb" == bench.use("glob", pattern="a?b")


def test_an_entry_that_goes_meanwhile_is_not_listed(bench: Bench) -> None:
    """What is gone when its size is asked for was never there."""
    (bench.root / "a").touch()
    (bench.root / "b").touch()
    bench.token = Interruption(lambda: (bench.root / "a").unlink(missing_ok=True))
    assert "b (0 bytes)" == bench.use("list_directory")


@pytest.mark.parametrize("name", ["list_directory", "glob"])
def test_a_cancelled_call_stops_at_the_next_entry(tree: Bench, name: str) -> None:
    """The token is looked at before every entry."""
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise asyncio.CancelledError

    tree.token = Interruption(look)
    with pytest.raises(asyncio.CancelledError):
        tree.use(name, **({"pattern": "**"} if name == "glob" else {}))
    assert 3 == len(looks)


ALL = [".hidden/c.py", "a.py", "b.py", "src/deep/a.tsx", "src/z.ts", "src-more/x.py"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "**"}, ALL),
        ({"pattern": "**/*"}, ALL),
        ({"pattern": "*.py"}, ALL[1:3]),
        ({"pattern": "./*.py"}, ALL[1:3]),
        ({"pattern": "**/*.py"}, [*ALL[:3], ALL[5]]),
        ({"pattern": "**/*.{ts,tsx}"}, ALL[3:5]),
        ({"pattern": "src/**/a.tsx"}, ALL[3:4]),
        ({"pattern": "src/*"}, ALL[4:5]),
        ({"pattern": "s*/**/[ax].*"}, [ALL[3], ALL[5]]),
        ({"pattern": "{src,.hidden}/*.*"}, [ALL[0], ALL[4]]),
        ({"pattern": "src/deep/a.tsx"}, ALL[3:4]),
        ({"pattern": "*", "path": "src"}, ALL[4:5]),
        ({"pattern": "deep/*", "path": "src"}, ALL[3:4]),
        ({"pattern": "deep/*", "path": "inside"}, ALL[3:4]),
        ({"pattern": "inside/*"}, ["no file matches 'inside/*' in '.'"]),
        ({"pattern": "link/**"}, ["no file matches 'link/**' in '.'"]),
        ({"pattern": ".git/*"}, ["no file matches '.git/*' in '.'"]),
        ({"pattern": "pipe.*"}, ["no file matches 'pipe.*' in '.'"]),
    ],
    ids=str,
)
def test_files_come_in_the_order_of_paths(
    tree: Bench, arguments: dict[str, str], expected: list[str]
) -> None:
    """`*` stays in one folder and `**` does not; links, pipes and `.git` are passed by."""
    found = tree.use("glob", **arguments).split("\n")
    assert expected == [line for line in found if line[0] != "["]


def test_a_pattern_for_names_that_finds_nothing_tells_how_to_look_below(tree: Bench) -> None:
    """Whoever is used to patterns that match at any depth is told that this one does not."""
    assert tree.use("glob", pattern="*.ts").endswith("; begin with **/ for all below]")


@pytest.mark.parametrize("pattern", ["", "./", "/etc/*", "../*", "src/../*"])
def test_a_pattern_that_leads_elsewhere_is_refused(tree: Bench, pattern: str) -> None:
    """A pattern says what is below the path and nothing else."""
    assert "must name paths below `path`" in tree.refusal("glob", pattern=pattern)


def test_a_bad_pattern_is_refused_with_its_fault(tree: Bench) -> None:
    """The refusal quotes the pattern as it was written."""
    assert tree.refusal("glob", pattern="*.{ts").startswith("the glob '*.{ts' cannot be used")


def test_more_files_than_can_be_shown_are_said_to_be_more(bench: Bench) -> None:
    """The first ones are shown; exactly as many as can be are no more than that."""
    for n in range(PATH_COUNT_LIMIT):
        (bench.root / f"{n:05}").touch()
    assert PATH_COUNT_LIMIT == len(bench.use("glob", pattern="*").split("\n"))
    (bench.root / "last").touch()
    lines = bench.use("glob", pattern="*").split("\n")
    assert [f"{n:05}" for n in range(PATH_COUNT_LIMIT)] == lines[:-1]
    assert f"[more than {PATH_COUNT_LIMIT:,} files; narrow the pattern or path]" == lines[-1]


def test_a_search_without_end_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many files and folders none is entered any more, and that is said."""
    monkeypatch.setattr(browse, "VISIT_LIMIT", 10)
    for n in range(10):
        (bench.root / f"{n}").mkdir()
        for m in range(5):
            (bench.root / f"{n}" / f"{m}").touch()
    lines = bench.use("glob", pattern="**").split("\n")
    assert ["0/0", "0/1", "0/2", "0/3", "0/4", "1/0"] == lines[:6]
    assert lines[-1].startswith("[stopped after 10 files and folders; narrow")
    assert len(lines) < 15


def test_only_folders_that_can_match_are_entered(bench: Bench) -> None:
    """What stands before the first wildcard is walked to and everything else is left alone."""
    for folder in ("src/a", "src/other", "src-more", "node_modules"):
        (bench.root / folder).mkdir(parents=True)
        for n in range(50):
            (bench.root / folder / f"{n}.py").touch()
    looks: list[int] = []
    bench.token = Interruption(lambda: looks.append(1))
    assert 50 == len(bench.use("glob", pattern="src/a/*.py").split("\n"))
    assert len(looks) < 70


def test_a_folder_that_cannot_be_opened_is_said(bench: Bench) -> None:
    """A path that is too long to be opened is named, and does not stop the search."""
    here = bench.root
    (here / "z").touch()
    folder = os.open(here, os.O_RDONLY)
    for _ in range(20):  # deeper than a path can be, step by step
        os.mkdir("d" * 250, dir_fd=folder)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    found, note = bench.use("glob", pattern="**").split("\n")
    assert "z" == found
    assert note.startswith("[1 folders could not be opened and were not searched: 'dddd")


@pytest.mark.parametrize("name", ["list_directory", "glob"])
def test_a_folder_is_read_with_all_below_it(tree: Bench, name: str) -> None:
    """A search waits for writes below its folder, not for those beside it; reads do not wait."""
    arguments = {"pattern": "*"} if name == "glob" else {}
    calls = [
        ToolCall("1", "write_file", {"path": "src/deep/new", "content": ""}),
        ToolCall("2", "write_file", {"path": "src-more/new", "content": ""}),
        ToolCall("3", name, {"path": "inside", **arguments}),
        ToolCall("4", "read_file", {"path": "src/z.ts"}),
    ]
    planned = plan(calls, coding_tools(tree.root), root=tree.root)
    assert ((0, 1, 3), (2,)) == planned.groups


async def test_a_file_made_in_a_turn_is_found_by_the_search_behind_it(tmp_path: Path) -> None:
    """A turn that writes and then looks sees what it wrote, without a shell."""
    calls = [
        ToolCall("1", "write_file", {"path": "a/b", "content": "text"}),
        ToolCall("2", "list_directory", {"path": "a"}),
        ToolCall("3", "glob", {"pattern": "**/b"}),
        ToolCall("4", "write_file", {"path": "a/c/b", "content": ""}),
    ]
    async with Dispatcher(coding_tools(tmp_path), root=tmp_path) as dispatcher:
        turn = await dispatcher.run(calls)
    assert ["b (4 bytes)", "a/b"] == [each.content() for each in turn][1:3]


def test_the_tools_take_a_path_as_root(tmp_path: Path) -> None:
    """They can be had one by one, with the same folder given as a path."""
    bench = Bench(tmp_path)
    bench.tools = {tool.name: tool for tool in (list_directory_tool(tmp_path), glob_tool(tmp_path))}
    bench.token = CancelToken()
    (tmp_path / "a").touch()
    assert ("a (0 bytes)", "a") == (bench.use("list_directory"), bench.use("glob", pattern="*"))
