import asyncio
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dispatch.toolkit.patterns import PATTERN_LIMIT, TEXT_LIMIT, WEIGHT_LIMIT
from dispatch.toolkit.search import FILE_LIMIT, LINE_LIMIT, MATCH_LIMIT
from tests.toolkit.bench import Bench, Interruption


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
        (r"\w{300}", "Compiled regex exceeds size limit"),
    ],
    ids=str,
)
def test_a_bad_pattern_is_refused_with_its_fault(bench: Bench, pattern: str, expected: str) -> None:
    """The refusal quotes the pattern and says what is wrong in it."""
    refusal = bench.refusal("grep", pattern=pattern)
    assert refusal.startswith(f"the pattern {pattern!r} is no regular expression: {expected}")


def test_a_bad_glob_is_refused(bench: Bench) -> None:
    """A glob that cannot be used is shown as it was written, with advice that is right for it."""
    expected = "the glob '*.{ts' cannot be used: unclosed group; in brackets a special character"
    assert bench.refusal("grep", pattern="a", glob="*.{ts").startswith(expected)
    (bench.root / "a.{ts").write_text("a")
    assert "a.{ts:1:a" == bench.use("grep", pattern="a", glob="*.[{]ts")


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
    (bench.root / "a").write_text("x" * LINE_LIMIT + "\n" + "x" * 3_000)
    found = bench.use("grep", pattern="x").split("\n")
    assert ["a:1:" + "x" * LINE_LIMIT, "a:2:" + "x" * LINE_LIMIT + "… (3,000 characters)"] == found


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


@pytest.mark.parametrize(
    ("pattern", "weight"),
    [
        ("[ab]*a[ab]{3000}c", 3_017),
        ("[ab]{3,}[ab]{0,9000}c", 9_024),
        ("(?:[ab]*a){300}c", 4_800),
        ("a{90}{90}", 8_910),
        ("(a{40}){40}?{40}", 89_600),
        ("(?:a{ 400 }){9}", 3_735),
        ("a*{3000}", 24_000),
    ],
    ids=str,
)
def test_a_pattern_that_repeats_too_much_is_refused(
    bench: Bench, pattern: str, weight: int
) -> None:
    """The weight of a pattern counts what its repetitions amount to, however they are nested."""
    refusal = bench.refusal("grep", pattern=pattern)
    expected = f"the pattern {pattern!r} repeats too much: written out it is about {weight:,} long"
    assert refusal.startswith(expected)
    assert refusal.endswith("use smaller counts, or * and +")


@pytest.mark.parametrize(
    "pattern",
    [
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        r"(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?",
        r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?:\.\d{1,9})?",
        r"^.{120,}$",
        r"\bdef\b.{0,1200}\breturn\b",
        r"interface\{\}",
        "x" * PATTERN_LIMIT,
    ],
)
def test_a_usual_pattern_is_not_refused(bench: Bench, pattern: str) -> None:
    """Patterns that people write are far below the bounds."""
    assert bench.use("grep", pattern=pattern).startswith("no match")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"pattern": "x" * (PATTERN_LIMIT + 1)}, "the pattern has 1,001 characters; at most 1,000"),
        ({"pattern": "(?x)a {3000}"}, "the pattern '(?x)a {3000}' sets the flag x"),
        ({"pattern": "(?i-x:a)"}, "the pattern '(?i-x:a)' sets the flag x"),
        (
            {"pattern": "x", "glob": "*" * (PATTERN_LIMIT + 1)},
            "the glob has 1,001 characters; at most 1,000",
        ),
    ],
    ids=["long pattern", "flag x", "flag x among others", "long glob"],
)
def test_what_cannot_be_bounded_is_refused(
    bench: Bench, arguments: dict[str, str], expected: str
) -> None:
    """Length is bounded too, and the syntax in which a repetition could hide is not taken."""
    assert bench.refusal("grep", **arguments).startswith(expected)


def test_a_weight_at_the_limit_is_taken(bench: Bench) -> None:
    """The limit itself is allowed, and one more is not."""
    (bench.root / "a").write_text("a")
    pattern = "a{0,%d}"
    most = WEIGHT_LIMIT - len(pattern % 1000)
    assert "a:1:a" == bench.use("grep", pattern=pattern % most)
    bench.refusal("grep", pattern=pattern % (most + 1))


def test_lines_beyond_the_bound_are_searched_at_their_beginning_and_told(bench: Bench) -> None:
    """A line is searched up to the bound; what is behind it is not found, and the output says so,
    with and without a match. A bound inside a character does not break it."""
    note = f"[2 lines are longer than {TEXT_LIMIT:,} bytes; only their beginning was searched]"
    beginning = "begin" + "é" * TEXT_LIMIT
    (bench.root / "a").write_text(f"{beginning}behind\nlast\n" + "x" * (TEXT_LIMIT + 1))
    shown = f"a:1:{beginning[:LINE_LIMIT]}… ({len(beginning.encode()) + 6:,} bytes)"
    assert f"{shown}\n{note}" == bench.use("grep", pattern="begin")
    assert f"a:2:last\n{note}" == bench.use("grep", pattern="last")
    for absent in ("behind", "\ufffd", "é$", "^[^ ]*é$"):
        expected = f"no match for {absent!r} in '.'\n{note}"
        assert expected == bench.use("grep", pattern=absent)


def test_a_line_as_long_as_the_bound_is_searched_whole(bench: Bench) -> None:
    """Only what is longer than the bound is cut; the lines around it keep their numbers."""
    line = "x" * (TEXT_LIMIT - 3) + "end"
    (bench.root / "a").write_text(f"1\n{line}\n{line}\n4 end\n{line}")
    shown = f"{line[:LINE_LIMIT]}… ({TEXT_LIMIT:,} characters)"
    expected = [f"a:2:{shown}", f"a:3:{shown}", "a:4:4 end", f"a:5:{shown}"]
    assert expected == bench.use("grep", pattern="end$").split("\n")


@pytest.mark.parametrize("width", [7, 70])
def test_every_line_of_a_large_file_is_looked_at(bench: Bench, width: int) -> None:
    """Matches at the seams of what is matched at once are neither lost nor counted twice."""
    lines = [f"{number:0{width}}" for number in range(1, 18_000)]
    (bench.root / "a").write_bytes("\r\n".join(lines).encode())
    expected = [f"a:{line.lstrip('0')}:{line}" for line in lines if line.endswith("77")]
    assert expected == bench.use("grep", pattern="^0*[0-9]*77$").split("\n")


def test_a_search_of_one_huge_file_can_be_cancelled(bench: Bench) -> None:
    """The token is looked at between the parts of a file, not only between files."""
    (bench.root / "a").write_text("x" * 500_000 + "\n" + "y\n" * 500_000)
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 100:
            raise asyncio.CancelledError("enough")

    bench.token = Interruption(look)
    with pytest.raises(asyncio.CancelledError, match="enough"):
        bench.use("grep", pattern="nothing")


def test_a_search_that_picks_nothing_can_be_cancelled(bench: Bench) -> None:
    """The token is looked at for folders and for files that the glob leaves out as well."""
    (bench.root / "a" / "b").mkdir(parents=True)
    bench.token.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        bench.use("grep", pattern="x", glob="*.py")


def test_a_deep_tree_is_searched_in_order(bench: Bench) -> None:
    """Hundreds of folders in each other are walked, each with what comes before and after the
    next one."""
    depth = 600
    place = bench.root
    for _ in range(depth):
        for name in ("a", "z"):
            (place / name).write_text("x")
        place = place / "d"
        place.mkdir()
    bench.use("write_file", path="d/" * depth + "x", content="x")
    up = ["d/" * n for n in range(depth)]
    order = [f"{p}a:1:x" for p in up] + ["d/" * depth + "x:1:x"] + [f"{p}z:1:x" for p in up[::-1]]
    found = bench.use("grep", pattern="x").split("\n")
    assert order[:MATCH_LIMIT] == found[:MATCH_LIMIT]
    found = bench.use("grep", pattern="x", glob="[xz]").split("\n")
    assert order[depth : depth + MATCH_LIMIT] == found[:MATCH_LIMIT]


def test_a_deep_tree_needs_few_descriptors(bench: Bench) -> None:
    """A search of 150 levels finds what is at the bottom with 100 descriptors at most."""
    (bench.root / ("d/" * 150)).mkdir(parents=True)
    (bench.root / ("d/" * 150) / "x").write_text("needle")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "from pathlib import Path; from tests.toolkit.bench import Bench\n"
        "print(Bench(Path(sys.argv[1])).use('grep', pattern='needle'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(bench.root)], capture_output=True, text=True, check=True
    )
    assert "d/" * 150 + "x:1:needle\n" == found.stdout


def test_a_folder_that_cannot_be_opened_is_told(bench: Bench) -> None:
    """What is there but could not be opened is named; the rest is searched."""
    for name in ("a/1", "b/c/2", "z"):
        bench.use("write_file", path=name, content="x")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        # In the step after `a` was left, nothing more can be opened.
        limit = lowest if len(looks) == 5 else before[0]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))

    bench.token = Interruption(look)
    try:
        found = bench.use("grep", pattern="x")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    note = "[1 folders could not be opened and were not searched: 'b']"
    assert f"a/1:1:x\nz:1:x\n{note}" == found


def test_a_folder_whose_path_is_too_long_is_told(bench: Bench) -> None:
    """A folder that no path can name was made step by step: it is not searched, and that is
    said."""
    name = "n" * 250
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(bench.root)
        for _ in range(20):
            Path(name).mkdir()
            os.chdir(name)
    finally:
        os.chdir(here)
        os.close(here)
    found = bench.use("grep", pattern="x")
    assert found.startswith("no match for 'x' in '.'\n[1 folders could not be opened and were not")


@pytest.mark.parametrize("name", ["pipe.py", "socket"])
def test_what_is_no_file_is_refused_by_name(tree: Bench, name: str) -> None:
    """Asked to search a pipe or socket itself, it says that this is none to search."""
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(".", os.O_RDONLY)
        os.chdir(tree.root)  # a socket's path has to be short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
            os.close(here)
        expected = f"'{name}' is not a regular file, so it cannot be searched"
        assert expected == tree.refusal("grep", pattern="x", path=name)
