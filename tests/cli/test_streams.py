"""Streams that are closed, full or broken: results are not lost, and nothing is traced."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, PLAIN, dispatch, turn_file

SHOUTING = (
    "import os, subprocess, sys\n"
    "print('chatter at import')\n"
    "os.write(1, b'chatter of a descriptor\\n')\n"
    "sys.__stdout__.write('chatter of the original\\n')\n"
    "async def shout(text: str) -> str:\n"
    "    print('chatter of the tool')\n"
    "    subprocess.run(['echo', 'chatter of a child'], check=True)\n"
    "    return text.upper()\n"
    "def made(root):\n"
    "    print('chatter of the function')\n"
    "    return [shout]\n"
)


def in_shell(redirection: str, *arguments: str | Path, **env: str) -> tuple[int, str, str]:
    """Run the command with the shell's redirection: exit code, stdout, stderr."""
    done = subprocess.run(
        ["bash", "-c", f'"$@" {redirection}', "-", *COMMAND, *map(str, arguments)],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**PLAIN, **env},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(
    "redirection",
    ["2>&-", "2>/dev/full", "2> >(exec true)", "0<&- 2>&-"],
    ids=["closed", "full", "nobody-reads", "stdin-too"],
)
def test_a_broken_stderr_costs_no_results(
    tmp_path: Path, redirection: str, form: tuple[str, ...]
) -> None:
    """Progress, a tool's prints and the summary are dropped; results and exit code are as ever."""
    (tmp_path / "own.py").write_text(
        "import sys\nasync def shout(text: str) -> str:\n"
        "    print(text * 9000)\n    print(text, end='', file=sys.stderr)\n    return text\n"
        "tools = [shout]\n"
    )
    file = turn_file(tmp_path, *[("shout", {"text": "hey"})] * 3)
    arguments: list[str | Path] = [
        "run",
        file,
        "--root",
        tmp_path,
        "--tools",
        f"{tmp_path}/own.py:tools",
        *form,
    ]
    code, out, _ = in_shell(redirection, *arguments)
    assert (0, 3) == (code, out.count('"content": "hey"' if form else "   hey"))


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_broken_stderr_keeps_the_exit_codes(
    tmp_path: Path, redirection: str, encoding: str
) -> None:
    """1 for `--require-ok`, 2 for bad input and for a wrong command line."""
    file = turn_file(tmp_path, ("read_file", {"path": "none"}))
    command_lines: list[list[str | Path]] = [
        ["run", file, "--root", tmp_path, "--require-ok", "--json"],
        ["run", tmp_path / "none.json", "--root", tmp_path],
        ["frobnicate"],
    ]
    codes = [
        in_shell(redirection, *arguments, PYTHONIOENCODING=encoding)[:2]
        for arguments in command_lines
    ]
    assert [1, 2, 2] == [code for code, _ in codes]
    assert ["error"] == [r["status"] for r in json.loads(codes[0][1])["results"]]
    assert ["", ""] == [out for _, out in codes[1:]]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("redirection", "expected"),
    [("0<&- >&- 2>&-", (0, "")), (">/dev/full", (1, "No space left"))],
    ids=["all-closed", "full"],
)
def test_the_demo_needs_no_streams(
    tmp_path: Path, redirection: str, expected: tuple[int, str]
) -> None:
    """With all streams closed it succeeds; a full disk is its last line and exit 1."""
    code, out, err = in_shell(redirection, "demo", TMPDIR=str(tmp_path))
    assert (expected[0], "") == (code, out), err
    last = err.splitlines()[-1] if err else ""
    assert (True, False) == (expected[1] in last, "Traceback" in err), err
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("--help",), ("plan", "--help"), ("run", "--help"), ("plan", "{file}")],
    ids=" ".join,
)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_full_disk_is_one_line(tmp_path: Path, arguments: tuple[str, ...], encoding: str) -> None:
    """Output that cannot be written is said, not traced."""
    file = turn_file(tmp_path, ("read_file", {"path": "a"}))
    given = [argument.format(file=file) for argument in arguments]
    code, _, err = in_shell(">/dev/full", *given, PYTHONIOENCODING=encoding)
    assert (1, 1) == (code, len(err.splitlines())), err
    assert "dispatch: cannot write the output: No space left" in err


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("attribute", ["shout_list", "made"])
def test_whatever_tools_print_stdout_has_the_results_alone(
    tmp_path: Path, command: str, attribute: str
) -> None:
    """At import, when made, in a call, past `sys.stdout`, by a child: all of it is on stderr."""
    (tmp_path / "own.py").write_text(SHOUTING + "shout_list = [shout]\n")
    file = turn_file(tmp_path, ("shout", {"text": "hey"}))
    tools = f"{tmp_path / 'own.py'}:{attribute}"
    done = dispatch(command, file, "--root", tmp_path, "--tools", tools, "--json")
    assert 0 == done.returncode, done.stderr
    assert json.loads(done.stdout)
    sources = ["at import", "of a descriptor", "of the original"]
    sources += ["of the tool", "of a child"] if command == "run" else []
    sources += ["of the function"] if attribute == "made" else []
    assert [] == [source for source in sources if f"chatter {source}" not in done.stderr]


def test_a_deleted_working_folder_is_one_line(tmp_path: Path) -> None:
    """The default root is gone: said in one line. With a root that exists, nothing is missing."""
    file = turn_file(tmp_path, ("read_file", {"path": "a"}))
    gone, root = tmp_path / "gone", tmp_path / "root"
    root.mkdir()
    outcomes = []
    for arguments in (["plan", str(file)], ["plan", str(file), "--root", str(root)]):
        code = f"import os\nos.mkdir({str(gone)!r})\nos.chdir({str(gone)!r})\n"
        code += f"os.rmdir({str(gone)!r})\nimport sys\nfrom dispatch.cli import main\n"
        code += f"sys.exit(main({arguments!r}))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=PLAIN,
            check=False,
        )
        outcomes.append((done.returncode, len(done.stderr.splitlines()), done.stderr))
    assert (2, 1) == outcomes[0][:2], outcomes
    assert "--root: ." in outcomes[0][2]
    assert (0, 0) == outcomes[1][:2], outcomes


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter everything")
def test_a_root_that_may_not_be_reached_is_one_line(tmp_path: Path) -> None:
    """Below a folder that may not be entered: one line, exit 2."""
    closed = tmp_path / "closed"
    closed.mkdir()
    file = turn_file(tmp_path, ("read_file", {"path": "a"}))
    closed.chmod(0)
    try:
        done = dispatch("plan", file, "--root", closed / "below")
    finally:
        closed.chmod(0o700)
    assert (2, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert "may not be entered" in done.stderr


@pytest.mark.timeout(60)
def test_a_demo_without_room_is_one_line(tmp_path: Path) -> None:
    """No folder for temporary files, or no room in it: one line, no traceback."""
    file = tmp_path / "file"
    file.touch()
    code = (
        "import sys, tempfile\n"
        f"tempfile.tempdir = {str(file)!r}\n"
        "from dispatch.cli import main\n"
        "sys.exit(main(['demo']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=PLAIN, check=False
    )
    assert (1, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert "Not a directory" in done.stderr
