import asyncio
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatch.toolkit.content import _give
from dispatch.toolkit.files import EDIT_LIMIT, READ_LIMIT
from tests.toolkit.bench import Bench, Interruption


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def _make_socket(folder: Path) -> None:
    """Leave a socket in the folder, named from within because its path has to be short."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
    finally:
        os.chdir(here)
        os.close(here)


def _read_so_far() -> int:
    """Bytes that this process has read from anything."""
    return int(Path("/proc/self/io").read_text().split()[1])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({}, "one\ntwo\r\nthree"),
        ({"start": 2}, "two\r\nthree"),
        ({"end": 1}, "one\n"),
        ({"start": 2, "end": 2}, "two\r\n"),
        ({"start": 3, "end": 99}, "three"),
    ],
    ids=["all", "from", "to", "one line", "beyond the end"],
)
def test_a_file_is_read_as_it_is(bench: Bench, lines: dict[str, int], expected: str) -> None:
    """The text is raw, line endings included; line numbers count from 1 and include both ends."""
    (bench.root / "a").write_bytes(b"one\ntwo\r\nthree")
    assert expected == bench.use("read_file", path="a", **lines)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({"start": 4}, "'a' ends before line 4; leave start out to see it"),
        ({"start": 0}, "start=0 and end=None name no lines"),
        ({"start": 3, "end": 2}, "start=3 and end=2 name no lines"),
        ({"end": 0}, "start=None and end=0 name no lines"),
    ],
    ids=["after the end", "zero", "backwards", "nothing"],
)
def test_lines_that_are_not_there_are_refused(
    bench: Bench, lines: dict[str, int], expected: str
) -> None:
    """A range without lines says what lines there are."""
    (bench.root / "a").write_text("1\n2\n3\n")
    assert bench.refusal("read_file", path="a", **lines).startswith(expected)


def test_an_empty_file_reads_as_nothing(bench: Bench) -> None:
    """An empty file is no error."""
    (bench.root / "a").touch()
    assert "" == bench.use("read_file", path="a")


def test_a_large_file_is_read_in_parts(bench: Bench) -> None:
    """Whole lines up to the limit, then how to go on; the parts put together are the file."""
    text = "".join(f"line {number} é\n" for number in range(60_000))
    (bench.root / "a").write_text(text)
    parts: list[str] = []
    start = 1
    while start:
        part = bench.use("read_file", path="a", start=start)
        assert len(part.encode()) <= READ_LIMIT + 100
        body, _, note = part.rpartition("[the lines before ")
        parts.append(body or note)
        start = int(note.partition("start=")[2].rstrip("]")) if body else 0
    assert text == "".join(parts)
    assert len(parts) == 1 + len(text.encode()) // READ_LIMIT


def test_a_line_above_the_limit_is_cut(bench: Bench) -> None:
    """A line that fits in no part is shown to the limit, in whole characters, and says so."""
    (bench.root / "a").write_text("short\n" + "x" + "é" * READ_LIMIT + "\nlast\n")
    part = bench.use("read_file", path="a", start=2)
    line, note = part.split("\n")
    assert "x" + "é" * (READ_LIMIT // 2 - 1) == line
    assert f"[line 2 is longer than {READ_LIMIT:,} bytes; the rest is left out]" == note
    assert "last\n" == bench.use("read_file", path="a", start=3)


def test_bytes_that_are_not_utf8_are_shown_with_a_note(bench: Bench) -> None:
    """Text in another encoding can be read, and is not passed off as exact."""
    (bench.root / "a").write_bytes(b"caf\xe9\n")
    expected = "caf\ufffd\n\n[some bytes are not UTF-8 and are shown as \ufffd]"
    assert expected == bench.use("read_file", path="a")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/aap.py", "no file 'src/aap.py'; list its folder to see what is there"),
        ("scr/app.py", "no file 'scr/app.py'; list its folder to see what is there"),
        ("src", "'src' is a folder, not a file"),
        (".", "'.' is a folder, not a file"),
        ("binary", "'binary' is a binary file, not text"),
        ("pipe", "'pipe' is not a regular file"),
        ("socket", "'socket' is not a regular file"),
        ("src/app.py/x", "cannot read 'src/app.py/x': Not a directory"),
    ],
)
@pytest.mark.parametrize("tool", ["read_file", "edit_file"])
def test_what_cannot_be_read_says_why(bench: Bench, tool: str, path: str, expected: str) -> None:
    """The refusal tells a missing file from a folder, a binary and the rest. It looks at nothing
    that the call has not claimed, such as the names beside it."""
    (bench.root / "src").mkdir()
    (bench.root / "src" / "app.py").write_text("app")
    (bench.root / "binary").write_bytes(b"PNG\0\1")
    os.mkfifo(bench.root / "pipe")
    _make_socket(bench.root)
    more = {"old": "a", "new": "b"} if tool == "edit_file" else {}
    refusal = bench.refusal(tool, path=path, **more)
    assert expected == refusal


def test_writing_makes_folders_and_tells_what_it_did(bench: Bench) -> None:
    """A new file gets its folders; the answer tells creating from replacing."""
    assert "created a/b/c (3 bytes)" == bench.use("write_file", path="a/b/c", content="é\n")
    assert "replaced a/b/c (1 bytes)" == bench.use("write_file", path="a/b/c", content="x")
    assert ["a", "a/b", "a/b/c"] == bench.names()
    assert b"x" == (bench.root / "a/b/c").read_bytes()


def test_content_is_written_byte_by_byte(bench: Bench) -> None:
    """No line ending and no final newline is added or changed."""
    bench.use("write_file", path="a", content="one\r\ntwo\nthree")
    assert b"one\r\ntwo\nthree" == (bench.root / "a").read_bytes()


def test_new_files_follow_the_umask_and_old_ones_keep_their_mode(bench: Bench, umask: int) -> None:
    """Replacing a file does not change who may read or run it."""
    bench.use("write_file", path="a", content="1")
    assert 0o666 & ~umask == mode(bench.root / "a")
    (bench.root / "a").chmod(0o751)
    bench.use("write_file", path="a", content="2")
    assert 0o751 == mode(bench.root / "a")
    bench.use("edit_file", path="a", old="2", new="3")
    assert 0o751 == mode(bench.root / "a")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("folder", "'folder' is a folder, not a file"),
        ("file/x", "cannot write 'file/x': Not a directory"),
        ("pipe", "'pipe' is not a regular file"),
        ("locked", "'locked' is read-only; change its mode first if that is meant"),
    ],
)
def test_what_cannot_be_written_says_why(bench: Bench, path: str, expected: str) -> None:
    """A refused write changes nothing and leaves nothing."""
    (bench.root / "folder").mkdir()
    (bench.root / "file").write_text("file")
    (bench.root / "locked").write_text("locked")
    (bench.root / "locked").chmod(0o444)
    os.mkfifo(bench.root / "pipe")
    before = bench.names()
    assert expected == bench.refusal("write_file", path=path, content="new")
    assert before == bench.names()
    assert "locked" == (bench.root / "locked").read_text()


def test_a_lone_surrogate_is_refused(bench: Bench) -> None:
    """Text that no encoding can hold is an error, not half a file."""
    assert bench.refusal("write_file", path="a", content="x\ud800").startswith("content has half")
    assert [] == bench.names()


def test_writing_through_a_link_inside_keeps_the_link(bench: Bench) -> None:
    """The file that a link leads to is replaced, not the link."""
    (bench.root / "real").write_text("old")
    (bench.root / "link").symlink_to("real")
    bench.use("write_file", path="link", content="new")
    assert (bench.root / "link").is_symlink()
    assert "new" == (bench.root / "real").read_text()


def test_a_cancelled_write_leaves_the_old_file_and_nothing_else(bench: Bench) -> None:
    """Cancelled before the last step, a write has not happened and left no temporary file."""
    (bench.root / "a").write_text("old")
    bench.token.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        bench.use("write_file", path="a", content="new")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        bench.use("write_file", path="new/b", content="new")
    assert ["a", "new"] == bench.names()
    assert "old" == (bench.root / "a").read_text()


def test_a_write_that_fails_in_its_last_step_leaves_nothing(bench: Bench) -> None:
    """A directory that takes the file's place at the last moment is an error and stays."""

    bench.token = Interruption((bench.root / "a").mkdir)
    refusal = bench.refusal("write_file", path="a", content="new")
    assert "cannot write 'a': Is a directory" == refusal
    assert ["a"] == bench.names()


def test_a_reader_never_sees_part_of_a_file(bench: Bench) -> None:
    """A2: while a file is replaced again and again, every reader sees one whole version."""
    versions = [letter * 200_000 for letter in "ab"]
    target = bench.root / "a"
    target.write_text(versions[0])
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(target.read_text())

    readers = [threading.Thread(target=watch) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(60):
        bench.use("write_file", path="a", content=versions[turn % 2])
    done.set()
    for reader in readers:
        reader.join()
    assert set(versions) == seen
    assert ["a"] == bench.names()


def test_an_edit_tells_its_line(bench: Bench) -> None:
    """The answer of an edit says where it was made."""
    (bench.root / "a").write_text("1\n2\n3")
    assert "edited a at line 3" == bench.use("edit_file", path="a", old="3", new="x")
    assert "1\n2\nx" == (bench.root / "a").read_text()


def test_an_edit_keeps_line_endings(bench: Bench) -> None:
    """A file with CRLF and without a final newline stays such a file."""
    (bench.root / "a").write_bytes(b"1\r\n2\r\n3")
    bench.use("edit_file", path="a", old="1\n2", new="x\ny\nz")
    assert b"x\r\ny\r\nz\r\n3" == (bench.root / "a").read_bytes()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"caf\xe9", "'a' is not UTF-8 (byte 3 is 0xe9), so an edit could damage it"),
        (b"a" * (EDIT_LIMIT + 1), f"'a' is above {EDIT_LIMIT:,} bytes, too large to edit"),
        (b"a a", "old occurs 2 times in 'a' (lines 1, 1)"),
        (b"b", "old does not occur in 'a'"),
    ],
    ids=["not UTF-8", "too large", "twice", "never"],
)
def test_a_refused_edit_changes_nothing(bench: Bench, content: bytes, expected: str) -> None:
    """An edit that cannot be made exactly is not made."""
    (bench.root / "a").write_bytes(content)
    assert bench.refusal("edit_file", path="a", old="a", new="x").startswith(expected)
    assert content == (bench.root / "a").read_bytes()


def test_an_edit_does_not_undo_a_change_made_meanwhile(bench: Bench) -> None:
    """A file that something else changes between an edit's read and its write is left alone."""
    target = bench.root / "a"
    target.write_text("one two")
    bench.token = Interruption(lambda: target.write_text("one two three"))
    expected = "'a' was changed by something else meanwhile; read it again"
    assert expected == bench.refusal("edit_file", path="a", old="one", new="1")
    assert "one two three" == target.read_text()
    assert ["a"] == bench.names()


@pytest.mark.parametrize("bits", [0o4755, 0o2755, 0o1777, 0o7777], ids=oct)
@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_what_a_model_wrote_gets_no_special_bits(bench: Bench, tool: str, bits: int) -> None:
    """New content does not run as the owner or group of the old one."""
    target = bench.root / "a"
    target.write_text("old")
    target.chmod(bits)
    more = {"content": "new"} if tool == "write_file" else {"old": "old", "new": "new"}
    bench.use(tool, path="a", **more)
    assert ("new", bits & 0o777) == (target.read_text(), mode(target))


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_a_replaced_file_keeps_its_owner_and_group(bench: Bench, tool: str) -> None:
    """The file stays whose it was, as far as this process may give files away."""
    target = bench.root / "a"
    target.write_text("old")
    is_root = os.geteuid() == 0
    owner, group = (1234, 4321) if is_root else (os.geteuid(), max(os.getgroups()))
    os.chown(target, owner, group)
    target.chmod(0o664)
    more = {"content": "new"} if tool == "write_file" else {"old": "old", "new": "new"}
    bench.use(tool, path="a", **more)
    found = target.stat()
    assert ("new", owner, group, 0o664) == (
        target.read_text(),
        found.st_uid,
        found.st_gid,
        mode(target),
    )


def test_a_group_that_cannot_be_kept_gives_its_rights_to_no_other(tmp_path: Path) -> None:
    """Where the group cannot be given, the new one gets no more than everybody has."""
    target = tmp_path / "a"
    target.write_text("x")
    target.chmod(0o674)
    fields = list(target.stat())
    fields[5] = 2**32 - 1  # which no file can be given: it stands for "as it is"
    with target.open() as file:
        assert 0o644 == _give(file.fileno(), os.stat_result(fields))


@pytest.mark.parametrize("lines", [{"start": 2}, {"start": 100_000}], ids=["one line", "many"])
def test_reading_a_huge_file_can_be_cancelled(bench: Bench, lines: dict[str, int]) -> None:
    """The token is looked at by the bytes that were read, also inside a line and before what is
    to be shown; not much is read after it was cancelled."""
    with (bench.root / "a").open("wb") as file:
        file.write(b"x" * 10_000)
        file.truncate(50_000_000)
    bench.token.cancel("enough")
    before = _read_so_far()
    with pytest.raises(asyncio.CancelledError, match="enough"):
        bench.use("read_file", path="a", **lines)
    assert _read_so_far() - before < 3_000_000


def test_a_file_too_large_to_edit_is_not_read(bench: Bench) -> None:
    """The size is looked at before the content."""
    with (bench.root / "a").open("wb") as file:
        file.write(b"x" * 10_000)
        file.truncate(EDIT_LIMIT + 1)
    before = _read_so_far()
    refusal = bench.refusal("edit_file", path="a", old="x", new="y")
    assert f"'a' is above {EDIT_LIMIT:,} bytes, too large to edit" == refusal
    assert _read_so_far() - before < EDIT_LIMIT / 4


def test_reading_does_not_wake_who_writes_to_a_pipe(bench: Bench) -> None:
    """A pipe is recognised without being opened: a writer that waits for a reader goes on
    waiting."""
    os.mkfifo(bench.root / "pipe")
    opened = threading.Event()

    def write() -> None:
        with (bench.root / "pipe").open("wb"):
            opened.set()

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(200):
        bench.refusal("read_file", path="pipe")
        bench.use("grep", pattern="x")
    was_woken = opened.is_set()
    with (bench.root / "pipe").open("rb"):
        writer.join()
    assert not was_woken
