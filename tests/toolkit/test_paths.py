import re
import unicodedata
from pathlib import Path

import pytest

from dispatch.claims import FileKeys, read
from dispatch.errors import DeclarationError, ToolError
from dispatch.toolkit import Folder
from tests.toolkit.bench import Bench

LEAVING = [
    "..",
    "../secret",
    "a/../../secret",
    "a/b/../../../secret",
    "/etc/passwd",
    "/",
    "out/secret",
    "out",
    "inside/up/../../secret",
    "file-link",
    "dangling-out",
    "chain",
]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A root with links that lead out of it, in every place of a path, and some that do not."""
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "here").write_text("here")
    (root / "inside").symlink_to("a/b")
    (root / "out").symlink_to(tmp_path)
    (root / "file-link").symlink_to(tmp_path / "secret")
    (root / "dangling-out").symlink_to(tmp_path / "nothing" / "yet")
    (root / "chain").symlink_to("out/secret")
    (root / "a" / "b" / "up").symlink_to("../..")
    (root / "loop").symlink_to("loop")
    (root / "ping").symlink_to("pong")
    (root / "pong").symlink_to("ping")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "root-twin").mkdir()
    return Folder(root)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".", "."),
        ("a/b/here", "a/b/here"),
        ("./a//b/../b/here", "a/b/here"),
        ("inside/here", "a/b/here"),
        ("inside/up/a", "a"),
        ("not/there/yet", "not/there/yet"),
        ("~/x", "~/x"),
    ],
)
def test_a_path_inside_is_resolved(folder: Folder, path: str, expected: str) -> None:
    """Dots and links that stay inside are followed; the file need not exist."""
    assert expected == folder.shown(folder.resolve(path))
    assert expected == folder.shown(folder.resolve(str(folder.root / path)))


@pytest.mark.parametrize("path", [*LEAVING, "../root-twin/x"])
def test_a_path_that_leaves_is_refused(folder: Folder, path: str) -> None:
    """However a path leaves the root, the text names path and root and not where it leads."""
    with pytest.raises(ToolError) as caught:
        folder.resolve(path)
    assert f"{path!r} leads out of {folder.name!r}; only paths inside it can be used" == str(
        caught.value
    )


@pytest.mark.parametrize("path", LEAVING)
@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file", "grep"])
def test_no_tool_leaves(folder: Folder, tmp_path: Path, tool: str, path: str) -> None:
    """Every tool refuses the same paths, and nothing outside is changed or made."""
    more = {
        "write_file": {"content": "x"},
        "edit_file": {"old": "secret", "new": "x"},
        "grep": {"pattern": "s"},
    }
    refusal = Bench(folder.root).refusal(tool, path=path, **more.get(tool, {}))
    assert "leads out of" in refusal
    assert "secret" == (tmp_path / "secret").read_text()
    assert ["root", "root-twin", "secret"] == sorted(entry.name for entry in tmp_path.iterdir())


@pytest.mark.parametrize("path", ["loop", "ping", "loop/x", "ping/../loop/x"])
@pytest.mark.parametrize("tool", ["read_file", "write_file"])
def test_a_link_that_leads_to_itself_is_refused(folder: Folder, tool: str, path: str) -> None:
    """A loop of links is an error like any other, and stays a loop."""
    more = {"content": "x"} if tool == "write_file" else {}
    refusal = Bench(folder.root).refusal(tool, path=path, **more)
    assert refusal.startswith(("cannot ", f"no file {path!r}", f"{path!r} is not a regular file"))
    assert str(folder.root) not in refusal
    assert (folder.root / "loop").is_symlink()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a\0b", "'a\\x00b' is no path: it has characters no path has"),
        ("\ud800", "'\\ud800' is no path: it has characters no path has"),
        ("", "the path is empty; '.' is the folder itself"),
    ],
    ids=["null byte", "surrogate", "empty"],
)
@pytest.mark.parametrize("tool", ["read_file", "write_file"])
def test_what_is_no_path_is_refused(bench: Bench, tool: str, path: str, expected: str) -> None:
    """Text that can name no file is told from a file that is missing."""
    more = {"content": "x"} if tool == "write_file" else {}
    assert expected == bench.refusal(tool, path=path, **more)


@pytest.mark.parametrize("path", ["n" * 300, "d/" * 3000 + "x"], ids=["name", "path"])
@pytest.mark.parametrize("tool", ["read_file", "write_file"])
def test_a_very_long_path_is_refused_in_few_words(bench: Bench, tool: str, path: str) -> None:
    """A name the system cannot hold is an error with a bounded text."""
    more = {"content": "x"} if tool == "write_file" else {}
    assert re.fullmatch(
        r".{200,300}: File name too long|.{200,300} is longer than a path can be",
        bench.refusal(tool, path=path, **more),
    )
    assert [] == bench.names()


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    """A root given by a link is the folder it leads to; refusals name it as it was given."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    folder = Folder(tmp_path / "link")
    assert tmp_path / "real" / "x" == folder.resolve("x")
    assert tmp_path / "real" / "x" == folder.resolve(str(tmp_path / "link" / "x"))
    with pytest.raises(ToolError, match="link'"):
        folder.resolve("..")


def test_the_whole_file_system_can_be_a_root() -> None:
    """With `/` as the root there is no outside."""
    assert Path("/etc/passwd") == Folder("/").resolve("../etc/passwd")


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_root_that_is_no_folder_is_refused(tmp_path: Path, kind: str) -> None:
    """A root must be there and be a folder when the tools are made."""
    (tmp_path / "file").touch()
    with pytest.raises(DeclarationError, match="is not a folder; make it first"):
        Folder(tmp_path / kind)


@pytest.mark.parametrize("tool", ["read_file", "write_file", "edit_file", "grep"])
def test_claims_are_right_whatever_the_dispatchers_root_is(
    bench: Bench, tmp_path: Path, tool: str
) -> None:
    """The key of a relative path is below the tools' root, not below the dispatcher's."""
    other = FileKeys(tmp_path)
    claims, warning = bench.tools[tool].claims({"path": "a/../b.py"})
    resolved = {claim.key: claim.mode for claim in other.resolve(claims)}
    expected = "write" if tool in {"write_file", "edit_file"} else "read"
    assert (expected, None) == (resolved[FileKeys(bench.root).key("b.py")], warning)


def test_claims_through_a_link_are_those_of_the_file(folder: Folder, tmp_path: Path) -> None:
    """Two names of one file claim one key."""
    keys = FileKeys(tmp_path)
    direct, linked = (
        keys.resolve([read("file", folder.key_path(path))]) for path in ("a/b/here", "inside/here")
    )
    assert direct == linked


@pytest.mark.parametrize("path", [*LEAVING, "a\0b", "\ud800", "", "loop/x", "n" * 300, "d/" * 3000])
def test_a_path_that_will_be_refused_still_has_claims(folder: Folder, path: str) -> None:
    """No path makes the descriptor fail, so no refused call has to run alone."""
    tool = Bench(folder.root).tools["write_file"]
    claims, warning = tool.claims({"path": path, "content": ""})
    assert warning is None
    assert FileKeys(folder.root).resolve(claims)


def test_a_link_put_in_place_after_the_check_is_not_followed(
    folder: Folder, tmp_path: Path
) -> None:
    """A directory that becomes a link between the check and the write stops the write."""
    real = folder.resolve("a/b/new")
    (folder.root / "a").rename(folder.root / "moved")
    (folder.root / "a").symlink_to(tmp_path)
    with (
        pytest.raises(OSError, match=r"Not a directory|symbolic links"),
        folder.directory(real.parent),
    ):
        pass


def test_no_descriptor_is_left_open(folder: Folder) -> None:
    """Opening directories, also in vain, leaves no descriptor behind."""
    before = open_files()
    with folder.directory(folder.root / "a" / "b"):
        pass
    with pytest.raises(FileNotFoundError), folder.directory(folder.root / "a" / "none" / "x"):
        pass
    assert before == open_files()


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_unicode_names_are_taken_as_written(bench: Bench, form: str) -> None:
    """A name in either normal form is written, read, edited and found."""
    name = unicodedata.normalize("NFC" if form == "NFC" else "NFD", "Grüße 漢字 🙂.txt")
    bench.use("write_file", path=name, content="old ü\n")
    bench.use("edit_file", path=name, old="old", new="new")
    assert "new ü\n" == bench.use("read_file", path=name)
    assert f"{name}:1:new ü" == bench.use("grep", pattern="ü")
