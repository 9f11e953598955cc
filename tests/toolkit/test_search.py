import asyncio
import os
import time
from pathlib import Path

import pytest

from dispatch.toolkit.search import FILE_LIMIT, LINE_LIMIT, MATCH_LIMIT
from tests.toolkit.bench import Bench


@pytest.fixture
def tree(bench: Bench) -> Bench:
    """A small project with everything in it that a search must pass by."""
    for path, text in {
        "b.py": "import os\nTODO one\n",
        "a.py": "nothing\r\nTODO two\r\n",
        "src/z.ts": "todo three\n",
        "src/deep/a.tsx": "TODO four",
        "src-more/x.py": "TODO five\n",
        "src/[id].ts": "TODO six\n",
        ".git/config": "TODO hidden\n",
        ".hidden/c.py": "TODO seven\n",
    }.items():
        (bench.root / path).parent.mkdir(parents=True, exist_ok=True)
        (bench.root / path).write_bytes(text.encode())
    (bench.root / "image.py").write_bytes(b"TODO\0TODO\n")
    (bench.root.parent / "outside").mkdir()
    (bench.root.parent / "outside" / "o.py").write_text("TODO outside\n")
    (bench.root / "link").symlink_to(bench.root.parent / "outside")
    (bench.root / "link.py").symlink_to("b.py")
    os.mkfifo(bench.root / "pipe.py")
    return bench


ALL = [
    ".hidden/c.py:1:TODO seven",
    "a.py:2:TODO two",
    "b.py:2:TODO one",
    "src/[id].ts:1:TODO six",
    "src/deep/a.tsx:1:TODO four",
    "src-more/x.py:1:TODO five",
]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ALL),
        ({"path": "."}, ALL),
        ({"path": "src"}, ALL[3:5]),
        ({"path": "src/deep/a.tsx"}, ALL[4:5]),
        ({"path": "link.py"}, ALL[2:3]),
        ({"glob": "*.py"}, [ALL[0], ALL[1], ALL[2], ALL[5]]),
        ({"glob": "*.{ts,tsx}"}, ALL[3:5]),
        ({"glob": "src/**/*.ts*"}, ALL[3:5]),
        ({"glob": "src/*"}, ALL[3:4]),
        ({"glob": "**/?.py"}, [ALL[0], ALL[1], ALL[2], ALL[5]]),
        ({"glob": "[!a].py"}, [ALL[0], ALL[2], ALL[5]]),
        ({"glob": "[a-b].py"}, [ALL[1], ALL[2]]),
        ({"glob": "[[]id].ts"}, ALL[3:4]),
        ({"path": "src", "glob": "deep/*"}, ALL[4:5]),
        ({"path": "a.py", "glob": "*.ts"}, ["no match for 'TODO' in 'a.py'"]),
        ({"glob": "*.rs"}, ["no match for 'TODO' in '.'"]),
        ({"ignore_case": True, "path": "src"}, [*ALL[3:5], "src/z.ts:1:todo three"]),
    ],
    ids=str,
)
def test_matches_come_in_the_order_of_paths(
    tree: Bench, arguments: dict[str, str], expected: list[str]
) -> None:
    """Binary files, links, pipes and `.git` are passed by; the order is that of names."""
    found = tree.use("grep", pattern="TODO", **arguments).split("\n")
    assert sorted(expected, key=_by_parts) == found


def _by_parts(line: str) -> list[str]:
    return line.partition(":")[0].split("/")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^two$", "a:2:two"),
        (r"\Atwo", "a:2:two"),
        (r"two\z", "a:2:two"),
        ("(?-m)^two$", "a:2:two"),
        ("(?i)^ONE$", "a:1:one"),
        ("one|three", "a:1:one\na:3:three"),
        ("^$", "a:4:"),
        (r"\bt\w+", "a:2:two\na:3:three"),
        ("one\ntwo", "no match for 'one\\ntwo' in '.'"),
        (r"e\s", "no match for 'e\\\\s' in '.'"),
    ],
    ids=str,
)
def test_a_pattern_sees_one_line_at_a_time(bench: Bench, pattern: str, expected: str) -> None:
    """Anchors mean the line, whatever its ending; nothing matches across lines."""
    (bench.root / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n\r\n")
    assert expected == bench.use("grep", pattern=pattern)


def test_an_empty_file_has_no_lines(bench: Bench) -> None:
    """A pattern that matches nothing at all does not match in a file without lines."""
    (bench.root / "a").touch()
    assert "no match for '^$' in '.'" == bench.use("grep", pattern="^$")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("(", "unclosed group"),
        ("[a", "unclosed character class"),
        ("*", "repetition operator missing expression"),
        ("interface{}", "repetition quantifier expects a valid decimal"),
        ("(?=a)b", "look-around, including look-ahead and look-behind, is not supported"),
        (r"(a)\1", "backreferences are not supported"),
        ("a{1000000}", "Compiled regex exceeds size limit"),
    ],
    ids=str,
)
def test_a_bad_pattern_is_refused_with_its_fault(bench: Bench, pattern: str, expected: str) -> None:
    """The refusal quotes the pattern and says what is wrong in it."""
    refusal = bench.refusal("grep", pattern=pattern)
    assert refusal.startswith(f"the pattern {pattern!r} is no regular expression: {expected}")


def test_a_bad_glob_is_refused(bench: Bench) -> None:
    """A glob that does not close is named as such."""
    assert bench.refusal("grep", pattern="a", glob="*.{ts").startswith("the glob '")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*c", "a*a*a*a*a*a*c", "(.*)(.*)(.*)(.*)x$"])
def test_no_pattern_is_catastrophic(bench: Bench, pattern: str) -> None:
    """Patterns that take a backtracking engine for ever are done at once."""
    (bench.root / "a").write_text("a" * 20_000 + "b\n")
    before = time.process_time()
    assert bench.use("grep", pattern=pattern).startswith("no match")
    assert time.process_time() - before < 5


def test_matches_are_bounded(bench: Bench) -> None:
    """Above the limit the search stops and says so; exactly the limit is no reason to."""
    (bench.root / "a").write_text("x\n" * MATCH_LIMIT)
    assert MATCH_LIMIT == len(bench.use("grep", pattern="x").split("\n"))
    (bench.root / "b").write_text("x\n")
    found = bench.use("grep", pattern="x").split("\n")
    assert MATCH_LIMIT + 1 == len(found)
    assert f"[more than {MATCH_LIMIT} matches; narrow the search]" == found[-1]


def test_long_lines_are_cut(bench: Bench) -> None:
    """A match in a very long line does not bring all of it."""
    (bench.root / "a").write_text("x" * LINE_LIMIT + "\n" + "x" * 10_000)
    found = bench.use("grep", pattern="x").split("\n")
    assert ["a:1:" + "x" * LINE_LIMIT, "a:2:" + "x" * LINE_LIMIT + "… (10,000 characters)"] == found


def test_large_files_are_told(bench: Bench) -> None:
    """A file that is too large to search is not silently passed by."""
    with (bench.root / "a").open("wb") as file:
        file.write(b"text\n" * 2000)
        file.truncate(FILE_LIMIT + 1)
    expected = f"no match for 'x' in '.'\n[1 files above {FILE_LIMIT:,} bytes were not searched]"
    assert expected == bench.use("grep", pattern="x")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("nope", "cannot search 'nope': No such file or directory"),
        ("nope/x", "cannot search 'nope/x': No such file or directory"),
        ("link", "'link' leads out of"),
    ],
)
def test_a_path_that_cannot_be_searched_is_refused(tree: Bench, path: str, expected: str) -> None:
    """A search of nothing is told from a search without a match."""
    assert tree.refusal("grep", pattern="x", path=path).startswith(expected)


def test_a_cancelled_search_stops_between_files(tree: Bench) -> None:
    """The token is looked at before every file."""
    tree.token.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        tree.use("grep", pattern="TODO")


def test_a_search_leaves_no_descriptor_open(tree: Bench) -> None:
    """Neither a full search nor one that stopped early keeps a file or folder open."""

    def count() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = count()
    (tree.root / "src" / "deep" / "many").write_text("TODO\n" * 1000)
    tree.use("grep", pattern="TODO")
    tree.use("grep", pattern="nothing at all")
    assert before == count()
