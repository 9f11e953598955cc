"""`dispatch run`: exit codes, what stands on which stream, and nothing left behind."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dispatch.cli import main
from tests.cli.command import COMMAND, PLAIN, dispatch, is_running, start, turn_file

THREE = (
    ("write_file", {"path": "a.txt", "content": "one\n"}),
    ("edit_file", {"path": "a.txt", "old": "one", "new": "two"}),
    ("read_file", {"path": "a.txt"}),
)
FAILING = ("read_file", {"path": "none.txt"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("schedule", ["dataflow", "groups", "clusters", "serial"])
def test_a_turn_works_on_real_files_in_every_schedule(
    tmp_path: Path, root: Path, schedule: str
) -> None:
    """Write, edit and read of one file happen in the model's order; the exit code is 0."""
    file = turn_file(tmp_path, *THREE)
    done = dispatch("run", file, "--root", root, "--schedule", schedule)
    assert (0, "two\n") == (done.returncode, (root / "a.txt").read_text())
    assert ["#0 ", "#1 ", "#2 "] == [
        line[:3] for line in done.stdout.splitlines() if line[0] == "#"
    ]
    assert "two" in done.stdout.split("#2 ")[1]


def test_results_are_on_stdout_and_progress_is_on_stderr(tmp_path: Path, root: Path) -> None:
    """Progress tells start and end of each call, and never mixes with the results."""
    done = dispatch("run", turn_file(tmp_path, *THREE), "--root", root)
    assert 3 == done.stderr.count(" started ")
    assert "3 calls (3 ok)" in done.stderr
    assert "started" not in done.stdout


def test_json_has_results_in_order_and_all_times_under_timing(tmp_path: Path, root: Path) -> None:
    """The same turn twice gives the same JSON but for what stands under `timing` (D7)."""
    failing = ("edit_file", {"path": "a.txt", "old": "absent", "new": ""})
    file = turn_file(tmp_path, *THREE, failing, ("serch", {"pattern": "x"}))
    documents = []
    for _ in range(2):
        (root / "a.txt").unlink(missing_ok=True)
        done = dispatch("run", file, "--root", root, "--json")
        document = json.loads(done.stdout)
        timing = document.pop("timing")
        documents.append(document)
    assert documents[0] == documents[1]
    assert (0, True, False) == (done.returncode, document["satisfied"], document["interrupted"])
    assert [0, 1, 2, 3, 4] == [result["index"] for result in document["results"]]
    assert ["ok", "ok", "ok", "error", "error"] == [r["status"] for r in document["results"]]
    assert ["tool_error", "unknown_tool"] == [
        result["failure"]["kind"] for result in document["results"][3:]
    ]
    assert 3 == document["conflicting"]
    assert 5 == len(timing["calls"])
    assert {"makespan", "run_time", "parallelism_factor", "conflict_serialized"} < timing.keys()


def test_a_failed_call_is_no_failed_turn_unless_asked_for(tmp_path: Path, root: Path) -> None:
    """Best effort is satisfied whatever its calls do (G1); `--require-ok` exits 1."""
    file = turn_file(tmp_path, FAILING, ("write_file", {"path": "b", "content": ""}))
    codes = [
        dispatch("run", file, "--root", root, *extra).returncode
        for extra in ((), ("--require-ok",))
    ]
    assert [0, 1] == codes
    good = turn_file(tmp_path, *THREE, name="good.json")
    assert 0 == dispatch("run", good, "--root", root, "--require-ok").returncode


def test_both_providers_messages_and_stdin_are_turns(tmp_path: Path, root: Path) -> None:
    """Messages are read as the APIs return them, from a file or from standard input."""
    (root / "a.txt").write_text("hello\n")
    anthropic = {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Reading."},
            {"type": "tool_use", "id": "t1", "name": "read_file", "input": {"path": "a.txt"}},
        ],
    }
    function = {"name": "read_file", "arguments": '{"path": "a.txt"}'}
    call = {"id": "c1", "type": "function", "function": function}
    openai = {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}
    for message in (anthropic, openai):
        done = dispatch("run", "-", "--root", root, stdin=json.dumps(message).encode())
        assert (0, True) == (done.returncode, "hello" in done.stdout), done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            ["run", "{none}", "--root", "{root}"], "none.json: no such file", id="missing"
        ),
        pytest.param(["run", "{root}", "--root", "{root}"], "is a directory", id="directory"),
        pytest.param(["run", "{bad}", "--root", "{root}"], "bad.json:1:3: not valid", id="json"),
        pytest.param(["plan", "{bad}"], "bad.json:1:3: not valid JSON", id="plan"),
        pytest.param(["run", "{good}", "--root", "{none}"], "no such folder", id="no-root"),
        pytest.param(["run", "{good}", "--root", "{good}"], "is not a folder", id="root-is-file"),
        pytest.param(["run", "{good}", "--root", ""], "'' is no folder; write .", id="root-empty"),
        pytest.param(["plan", "{good}", "--root", ""], "'' is no folder", id="plan-root-empty"),
        pytest.param(
            ["run", "{good}", "--root", "n" * 300], "(File name too long)", id="root-long"
        ),
        pytest.param(
            ["run", "{good}", "--root", "{good}/a"], "a: no such folder", id="root-below-file"
        ),
        pytest.param(["plan", "{good}", "--root", "{ring}"], "ring: no such", id="root-ring"),
        pytest.param(["plan", "{good}", "--root", "a\0b"], "no such folder", id="root-null"),
        pytest.param(
            ["run", "{good}", "--root", "{root}", "--timeout", "0"], "above 0 seconds", id="timeout"
        ),
        pytest.param(
            ["run", "{good}", "--root", "{root}", "--timeout", "nan"], "above 0", id="timeout-nan"
        ),
        pytest.param(
            ["run", "{good}", "--root", "{root}", "--turn", "2"], "there is no turn 2", id="turn"
        ),
        pytest.param(["plan", "{good}", "--json", "--dot"], "choose one of --json and", id="forms"),
        pytest.param(
            ["plan", "{good}", "--tools", "nonsense"], "write module:attribute", id="tools-form"
        ),
        pytest.param(
            ["plan", "{good}", "--tools", "no_such:tools"], "No module named", id="tools-module"
        ),
        pytest.param(
            ["plan", "{good}", "--tools", "math:tools"], "has no 'tools'", id="tools-attribute"
        ),
        pytest.param(
            ["plan", "{good}", "--tools", "math:pi"], "of type float; a toolbox", id="tools-type"
        ),
        pytest.param(
            ["plan", "{good}", "--tools", "sys:path"], "in the list is no tool", id="tools-items"
        ),
        pytest.param(
            ["plan", "{good}", "--tools", "{none}:tools"], "cannot import", id="tools-file"
        ),
        pytest.param(
            ["plan", "{good}", "--tools", "math:sqrt"], "sqrt(root) failed", id="tools-function"
        ),
        pytest.param(
            ["run", "{good}", "--root", "{root}", "--tools", "{script}:tools"],
            "cannot import '{script}': SystemExit: 0",
            id="tools-are-a-script",
        ),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_exit_2(
    tmp_path: Path,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    """No traceback, nothing on stdout, one line that says where and what."""
    places = {"root": root, "none": tmp_path / "none.json", "bad": tmp_path / "bad.json"}
    places["bad"].write_text("[ }")
    places["ring"] = tmp_path / "ring"
    places["ring"].symlink_to(places["ring"])
    places["script"] = tmp_path / "script.py"
    places["script"].write_text("raise SystemExit(0)")
    places["good"] = turn_file(tmp_path, *THREE)
    code = main([argument.format(**places) for argument in arguments])
    out, err = capsys.readouterr()
    assert (2, "", 1) == (code, out, len(err.splitlines())), err
    assert expected.format(**places) in err if "{" in expected else expected in err


def test_the_real_command_exits_2_too(tmp_path: Path, root: Path) -> None:
    """What the table above checks in this process holds for the process that users start."""
    done = dispatch("run", tmp_path / "none.json", "--root", root)
    assert (2, "", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines()))


@pytest.mark.parametrize(
    "arguments",
    [["frobnicate"], ["run"], ["run", "x.json"], ["plan", "x.json", "--schedule", "fast"]],
    ids=["unknown-command", "no-file", "no-root", "unknown-schedule"],
)
def test_a_wrong_command_line_is_exit_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Misuse of the command line says so on stderr, without a traceback."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (2, "", True, False) == (code, out, bool(err), "Traceback" in err)


def test_a_timeout_ends_the_turn_and_says_so(tmp_path: Path, root: Path) -> None:
    """`--timeout` bounds the turn; the call that ran is `timed_out` and its process is gone."""
    file = turn_file(tmp_path, ("shell", {"command": "echo $$ > pid; sleep 600"}))
    done = dispatch("run", file, "--root", root, "--timeout", "1", "--json", "--require-ok")
    assert 1 == done.returncode
    assert ["timed_out"] == [result["status"] for result in json.loads(done.stdout)["results"]]
    assert not is_running(int((root / "pid").read_text()))


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_reader_who_leaves_is_no_error(tmp_path: Path, root: Path, command: str) -> None:
    """`dispatch … | head -1` says nothing about a broken pipe and keeps its exit code."""
    (root / "big.txt").write_text("word " * 20 + "\n")
    file = turn_file(tmp_path, *[("read_file", {"path": "big.txt"})] * 2000)
    script = '"$@" | head -1; exit "${PIPESTATUS[0]}"'
    done = subprocess.run(
        ["bash", "-c", script, "-", *COMMAND, command, str(file), "--root", str(root)],
        capture_output=True,
        env=PLAIN,
        check=False,
    )
    assert 1 == len(done.stdout.splitlines())
    assert (0, False) == (done.returncode, b"roken" in done.stderr or b"Traceback" in done.stderr)


def test_whatever_a_model_wrote_can_be_printed(tmp_path: Path, root: Path) -> None:
    """Lone surrogates and escape sequences neither fail nor reach the terminal (E6, F1)."""
    file = tmp_path / "turn.json"
    name = "\\u001b[2J\\u009b\\u202e\\ud800"
    file.write_text(f'[{{"id": "\\ud800", "name": "{name}", "arguments": "{{\\u001b"}}]')
    for extra in ((), ("--json",)):
        for encoding in ("utf-8", "ascii"):
            done = dispatch("run", file, "--root", root, *extra, env={"PYTHONIOENCODING": encoding})
            assert 0 == done.returncode, done.stderr
            for steering in "\x1b\x9b\u202e":
                assert (False, False) == (steering in done.stdout, steering in done.stderr)
            if extra:
                assert done.stdout.isascii()
                assert "unknown_tool" == json.loads(done.stdout)["results"][0]["failure"]["kind"]


def test_a_terminal_gets_a_live_display_that_vanishes(tmp_path: Path, root: Path) -> None:
    """On a terminal the running call is shown and its lines are erased; stdout is as ever."""
    file = turn_file(tmp_path, ("shell", {"command": "seq 3000000 | sort -n | tail -1"}))
    ours, theirs = os.openpty()
    command = start("run", file, "--root", root, stderr=theirs, env={"TERM": "xterm"})
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # what a terminal says when its other end is closed
        while piece := os.read(ours, 65536):
            shown += piece
    out, _ = command.communicate(timeout=10)
    os.close(ours)
    assert (0, True) == (command.returncode, b"3000000" in out)
    assert b"#0 shell" in shown
    assert b"\x1b[2K" in shown
    assert b"1 call (1 ok)" in shown


def test_tools_of_ones_own_replace_the_ready_ones(tmp_path: Path, root: Path) -> None:
    """A list of tools, or a function of the root, in a module or a file; prints go to stderr."""
    (tmp_path / "own.py").write_text(
        "from dispatch import tool\n\n"
        "@tool(safe_parallel=True)\n"
        "async def shout(text: str) -> str:\n"
        "    print('chatter')\n"
        "    return text.upper()\n\n"
        "TOOLS = [shout]\n\n"
        "def made(root):\n"
        "    return [shout]\n"
    )
    file = turn_file(tmp_path, ("shout", {"text": "hey"}))
    for spec in ("own.py:TOOLS", "own.py:made", "own.py:shout"):
        done = dispatch("run", file, "--root", root, "--tools", tmp_path / spec)
        assert (0, True) == (done.returncode, "HEY" in done.stdout), done.stderr
        assert ("chatter" in done.stdout, "chatter" in done.stderr) == (False, True)
    module = dispatch(
        "run", file, "--root", root, "--tools", "own:TOOLS", env={"PYTHONPATH": str(tmp_path)}
    )
    assert 0 == module.returncode, module.stderr


def test_a_guess_is_told_with_the_results(tmp_path: Path, root: Path) -> None:
    """What the plan warns of is on stderr beside text results, and in the JSON."""
    (tmp_path / "own.py").write_text(
        "from dispatch import tool\n\n"
        "def failing(arguments):\n"
        "    raise ValueError('no idea')\n\n"
        "@tool(resource_keys=failing)\n"
        "async def odd() -> str:\n"
        "    return 'done'\n"
    )
    file, tools = turn_file(tmp_path, ("odd", {})), tmp_path / "own.py:odd"
    done = dispatch("run", file, "--root", root, "--tools", tools)
    told = [line for line in done.stderr.splitlines() if line.startswith("dispatch: warning: ")]
    assert (0, 1, True) == (done.returncode, len(told), "no idea" in told[0]), done.stderr


@pytest.mark.parametrize(
    ("argument", "code", "told"),
    [("7", 7, ""), ("", 0, ""), ("'enough'", 1, "dispatch: enough")],
    ids=["number", "nothing", "text"],
)
def test_a_tool_that_exits_ends_the_command(
    tmp_path: Path, root: Path, argument: str, code: int, told: str
) -> None:
    """`sys.exit` in a tool means what it means in any program."""
    (tmp_path / "own.py").write_text(
        f"import sys\n\nasync def leave() -> str:\n    sys.exit({argument})\n\ntools = [leave]\n"
    )
    file = turn_file(tmp_path, ("leave", {}))
    done = dispatch("run", file, "--root", root, "--tools", tmp_path / "own.py:tools")
    assert (code, "") == (done.returncode, done.stdout), done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_says_what_to_install_when_its_extra_is_missing() -> None:
    """Without typer or rich: one line, exit 2."""
    for missing in ("typer", "rich"):
        code = (
            f"import sys; sys.modules[{missing!r}] = None\n"
            "from dispatch.cli import main\n"
            "sys.exit(main(['--version']))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert (2, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
        assert "pip install 'tool-dispatch[cli]'" in done.stderr


def test_the_version_is_that_of_the_package() -> None:
    """`dispatch --version` prints one line on stdout."""
    done = dispatch("--version")
    assert (0, 1) == (done.returncode, len(done.stdout.splitlines()))
