import os
import sys
import unicodedata
from pathlib import Path

import pytest

from dispatch import Claim, commute, read, write
from dispatch.claims import FileKeys, clash, combine, overlap

APPEND, OTHER = commute("append", "log"), commute("count", "log")
SELF_A, PEER_A, WRITE_A = (Claim(("tool", "a"), mode) for mode in ("self", "peer", "write"))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (read("db", "orders"), read("db", "orders"), False),
        (read("db", "orders"), write("db", "orders"), True),
        (write("db", "orders", 42), write("db", "orders", 43), False),
        (write("db", "orders", 42), read("db", "orders"), True),
        (write("db"), read("db", "orders", 42), True),
        (write(), read("db"), True),
        (APPEND, APPEND, False),
        (APPEND, OTHER, True),
        (APPEND, read("log"), True),
        (SELF_A, SELF_A, False),
        (PEER_A, SELF_A, True),
        (PEER_A, PEER_A, False),
        (write(), SELF_A, False),
        (write("tool"), SELF_A, True),
        (WRITE_A, WRITE_A, True),
    ],
)
def test_claims_that_exclude_each_other(first: Claim, second: Claim, expected: bool) -> None:
    """Overlapping keys, unless both have the same mode and that is no write. Symmetric."""
    assert (expected, expected) == (clash(first, second), clash(second, first))


def test_a_key_is_no_prefix_by_characters() -> None:
    """`file a` does not cover `file ab`: keys are compared segment by segment."""
    assert not overlap(("file", "a"), ("file", "ab"))


def test_two_modes_of_one_call_on_one_key_are_a_write() -> None:
    """The call's claims name each key once, in order of first mention."""
    both = combine([read("k"), read("other"), commute("append", "k"), read("other")])
    assert (write("k"), read("other")) == both


def test_two_names_of_one_file_are_one_key(tmp_path: Path) -> None:
    """Dots, links to files and folders, absolute paths, names that do not exist yet."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    (tmp_path / "link").symlink_to("src")
    (tmp_path / "alias.py").symlink_to("src/a.py")
    files = FileKeys(tmp_path)
    names = ["src/a.py", "./src/../src/a.py", "link/a.py", "alias.py", str(tmp_path / "src/a.py")]
    assert 1 == len({files.key(name) for name in names})
    assert files.key("src/new/b.py") == files.key("link/new/./b.py")


def test_two_roots_agree_about_a_file_and_show_it_differently(tmp_path: Path) -> None:
    """Keys are absolute inside, so dispatchers with different roots can share a table."""
    (tmp_path / "pkg").mkdir()
    outer, inner = FileKeys(tmp_path), FileKeys(tmp_path / "pkg")
    (claim,) = outer.resolve([write("file", "pkg/a.py")])
    assert (claim,) == inner.resolve([write("file", "a.py")])
    assert "WRITE of file pkg/a.py" == outer.shown(claim)
    assert "WRITE of file a.py" == inner.shown(claim)
    (outside,) = inner.resolve([read("file", "../x")])
    assert f"READ of file {tmp_path.resolve() / 'x'}" == inner.shown(outside)


def test_a_folder_covers_what_is_below_it(tmp_path: Path) -> None:
    """Reading the root waits for every edit below it; all files are covered by `file` alone."""
    files = FileKeys(tmp_path)
    root, leaf, every = files.resolve([read("file", "."), write("file", "a/b"), read("file")])
    assert clash(root, leaf)
    assert clash(every, leaf)


def test_unicode_spellings_of_a_name_are_one_key(tmp_path: Path) -> None:
    """Composed and decomposed forms of one name are the same resource."""
    composed = unicodedata.normalize("NFC", "café")
    decomposed = unicodedata.normalize("NFD", "café")
    files = FileKeys(tmp_path)
    assert composed != decomposed
    assert files.key(composed) == files.key(decomposed)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems ignore case by default")
def test_case_makes_two_files_where_the_file_system_says_so(tmp_path: Path) -> None:
    """`A` and `a` are two files here."""
    files = FileKeys(tmp_path)
    assert files.key("A") != files.key("a")


def test_resolving_two_claims_on_one_file_leaves_one(tmp_path: Path) -> None:
    """A copy onto itself under another name is one write."""
    files = FileKeys(tmp_path)
    claims = files.resolve([read("file", "a"), write("file", "./a")])
    assert ["WRITE of file a"] == [files.shown(claim) for claim in claims]


def test_a_name_cannot_forge_a_line_of_a_plan(tmp_path: Path) -> None:
    """Line breaks and escapes in a path are shown as escapes, and a long one is cut."""
    files = FileKeys(tmp_path)
    (claim,) = files.resolve([write("file", "a\ngroup 2\n\x1b[31m \u202e\x9b" + "x" * 500)])
    shown = files.shown(claim)
    assert shown.isprintable()
    assert r"a\ngroup 2\n\x1b[31m \u202e\x9b" in shown
    assert len(shown) < 300


@pytest.mark.parametrize(
    "path",
    [
        *("a", "src/a", "./src//a", "link/a", "link/sub/new", "loop/x", "dead/x", "file/x"),
        *("src/../a", "../x", "/", "", ".", "..", "link", "link/..", "src/a/", "new/../a"),
    ],
)
@pytest.mark.parametrize("absolute", [False, True])
def test_keys_agree_with_the_system_about_what_a_path_is(
    path: str, absolute: bool, tmp_path: Path
) -> None:
    """Links in the middle, rings, dead ends, files as folders, dots: as `realpath` says."""
    root = tmp_path / "root"
    (root / "src" / "sub").mkdir(parents=True)
    (root / "file").touch()
    (root / "link").symlink_to("src")
    (root / "loop").symlink_to("loop")
    (root / "dead").symlink_to("nowhere")
    given = f"{root}/{path}" if absolute else path
    real = os.path.realpath(root / given)
    expected = ("file", *(part for part in real.split("/") if part))
    assert expected == FileKeys(root).key(given)
    outside = FileKeys(tmp_path / "other")
    assert expected == outside.key(given if given.startswith("/") else f"../root/{given}")
