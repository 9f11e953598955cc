import asyncio
import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dispatch import Dispatcher, Status, ToolCall, read, write
from dispatch.claims import conflict
from dispatch.runtime.process_tree import MARK
from dispatch.toolkit import Shell
from dispatch.toolkit.shell import COMMAND_LIMIT, OUTPUT_LIMIT
from tests.toolkit.bench import Bench, context_of

LONG = 30.0


@pytest.fixture(params=["bash", "sh"])
def session(request: pytest.FixtureRequest, bench: Bench) -> Bench:
    """The shell under bash, and under a plain sh for machines that have nothing else."""
    if request.param == "sh":
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", "/nowhere")  # where bash is not found
            shell = Shell(bench.root, env={**os.environ, "PATH": os.defpath})
        bench.tools["shell"] = shell.tool
    return bench


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for the private directories of shells."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


async def test_output_is_the_value(session: Bench) -> None:
    """A command that succeeds gives what it wrote, both streams."""
    assert "out\nerr\n" == await session.shell("echo out; echo err >&2")


async def test_a_command_runs_in_the_root_with_nothing_to_read(session: Bench) -> None:
    """The first command starts in the root and finds its input closed."""
    assert f"{session.root}\n" == await session.shell("pwd; cat")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("exit 3", "exit status 3"),
        ("echo some; false", "exit status 1\nsome"),
        ("set -e; false; echo never", "exit status 1"),
        ("kill -9 $$", "killed by SIGKILL"),
    ],
)
async def test_a_command_that_fails_tells_how(session: Bench, command: str, expected: str) -> None:
    """The refusal is the exit status, or the signal, with the output."""
    assert expected == await session.shell_refusal(command)


@pytest.mark.parametrize("command", ["if", "echo '", "no-such-command", ")"])
async def test_a_command_that_cannot_be_run_says_so(session: Bench, command: str) -> None:
    """Syntax errors and missing programs fail with the shell's words, and nothing of ours."""
    refusal = await session.shell_refusal(command)
    assert refusal.startswith(("exit status 2\n", "exit status 1\n", "exit status 127\n"))
    assert "__dispatch" not in refusal
    assert f"{session.root}\n" == await session.shell("pwd")


async def test_messages_count_the_lines_of_the_command(bench: Bench) -> None:
    """A complaint about the second line of a command says line 2."""
    assert "line 2: nope" in await bench.shell_refusal("echo\nnope\nexit 1")


@pytest.mark.parametrize(
    "ending",
    ["", "; exit 3", "; false", "; set -eufvxC; false", "; kill -0 nope", "; $(", "; trap : EXIT"],
)
async def test_state_lasts_whatever_the_status(session: Bench, ending: str) -> None:
    """C1: `cd` and `export` last into the next call, also when the command failed."""
    (session.root / "a b").mkdir()
    command = f"cd 'a b'; export WORD=kept{ending}"
    if ending == "; $(":  # nothing of a command with a syntax error runs
        await session.shell("cd 'a b'; export WORD=kept")
    if ending in {"", "; trap : EXIT"}:
        await session.shell(command)
    else:
        await session.shell_refusal(command)
    assert f"{session.root}/a b kept\n" == await session.shell('echo "$PWD $WORD"')


@pytest.mark.parametrize(
    "value",
    [
        "",
        "two words",
        "it's",
        'say "hi"',
        "a\nb",
        "$HOME `id` $(id)",
        "\\",
        "é漢",
        "-n",
        "a=b",
        "!",
    ],
    ids=repr,
)
async def test_values_last_exactly(session: Bench, value: str) -> None:
    """Whatever an exported variable holds, it holds it in the next call."""
    (session.root / "value").write_text(value)
    await session.shell('W=$(cat value; printf x); export W="${W%x}"')
    assert value == await session.shell('printf %s "$W"')


async def test_unset_lasts(session: Bench) -> None:
    """A variable that was unset stays so, also one that the shell started with."""
    await session.shell("export WORD=1; unset HOME")
    await session.shell("unset WORD")
    assert "-unset-unset\n" == await session.shell('echo "-${WORD-unset}-${HOME-unset}"')


async def test_only_exports_last(session: Bench) -> None:
    """Plain variables, options and arguments end with their command."""
    await session.shell("WORD=1; set -eu; set -- a b")
    assert "unset 0\n" == await session.shell('echo "${WORD-unset} $#"; false; true')


async def test_allexport_brings_nothing_of_ours_along(session: Bench) -> None:
    """Even when a command exports all it assigns, only its own names last."""
    await session.shell("set -a; WORD=1")
    assert "1\n" == await session.shell("echo $WORD")
    assert "0" == (await session.shell("env | grep -c __dispatch || true")).strip()


@pytest.mark.parametrize("ending", ["exec true", "kill -9 $$", "kill $$"])
async def test_a_command_that_does_not_end_by_itself_changes_nothing(
    session: Bench, ending: str
) -> None:
    """A shell that was killed, or replaced by `exec`, leaves the state of before."""
    await session.shell("export WORD=before")
    command = f"cd /; export WORD=after; {ending}"
    if ending.startswith("exec"):
        await session.shell(command)
    else:
        await session.shell_refusal(command)
    assert f"{session.root} before\n" == await session.shell("echo $PWD $WORD")


async def test_cancelling_kills_the_command_and_changes_nothing(bench: Bench) -> None:
    """A cancelled command is gone with its children, and the state is that of before."""
    command = f"sleep {LONG} & echo $! >tmp; mv tmp pid; cd /; wait"
    running = asyncio.create_task(bench.shell(command))
    async with asyncio.timeout(10):
        while not (bench.root / "pid").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.005)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_running(int((bench.root / "pid").read_text()))
    assert f"{bench.root}\n" == await bench.shell("pwd")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def test_a_background_process_ends_with_its_call(bench: Bench) -> None:
    """A command that leaves a process behind returns at once, and the process is gone."""
    before = time.monotonic()
    pid, said = (await bench.shell(f"sleep {LONG} & echo $!; echo hi")).split()
    assert "hi" == said
    assert time.monotonic() - before < LONG / 6
    assert not is_running(int(pid))


async def test_a_flood_is_bounded(bench: Bench) -> None:
    """A megabyte of output comes back as its beginning, its end and the count between."""
    output = await bench.shell("printf start; head -c 1000000 /dev/zero | tr '\\0' x; printf end")
    assert len(output) < OUTPUT_LIMIT + 100
    assert (output[:5], output[-3:]) == ("start", "end")
    assert f"[{1_000_008 - OUTPUT_LIMIT:,} bytes left out here]" in output


async def test_a_working_directory_that_is_gone_falls_back_to_the_root(session: Bench) -> None:
    """The next command runs in the root, says so, and later ones go on from there."""
    await session.shell("mkdir a; cd a; rm -r ../a")
    lost = f"[the working directory {session.root}/a is gone; this ran in {session.root}]\n"
    assert f"{lost}{session.root} {session.root}\n" == await session.shell('echo "$PWD $(pwd)"')
    assert f"{session.root}\n" == await session.shell("pwd")


async def test_a_working_directory_reached_by_a_link_keeps_its_name(session: Bench) -> None:
    """`cd ..` leaves a link the way it was entered, also in a later call."""
    await session.shell("mkdir -p a/b; ln -s a/b link; cd link")
    assert f"{session.root}/link\n" == await session.shell("pwd")
    assert f"{session.root}\n" == await session.shell("cd ..; pwd")


async def test_the_environment_is_the_given_one(bench: Bench) -> None:
    """With `env` nothing of this process's environment is seen; names that a shell cannot assign
    are passed on all the same."""
    given = {"PATH": os.environ["PATH"], "WORD": "given", "odd.name": "x"}
    bench.tools["shell"] = Shell(bench.root, env=given).tool
    for _ in range(2):
        names = {line.partition("=")[0] for line in (await bench.shell("env")).splitlines()}
        names = {name for name in names if not name.startswith(MARK)}
        assert set(given) == names - {"PWD", "OLDPWD", "SHLVL", "_"}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo \0", "the command has a null byte"),
        ("#" * (COMMAND_LIMIT + 1), f"the command is above {COMMAND_LIMIT:,} bytes"),
    ],
    ids=["null byte", "too long"],
)
async def test_what_is_no_command_is_refused(bench: Bench, command: str, expected: str) -> None:
    """A command that no shell can be given says so."""
    assert (await bench.shell_refusal(command)).startswith(expected)


async def test_the_longest_command_runs(bench: Bench) -> None:
    """The limit is below the system's."""
    assert "ran\n" == await bench.shell("echo ran #" + "x" * (COMMAND_LIMIT - 10))


async def test_two_shells_share_nothing(bench: Bench) -> None:
    """C4: each shell object has its own directory, environment and session."""
    other = Shell(bench.root, name="other")
    await bench.shell("cd /; export WORD=1")
    context = context_of("other")
    assert f"{bench.root} \n" == await other.tool(command='echo "$PWD $WORD"', ctx=context)
    sessions = [
        {claim.key for claim in tool.claims({"command": ""})[0] if claim.key[:1] == ("session",)}
        for tool in (bench.tools["shell"], other.tool)
    ]
    assert (1, 1, set()) == (len(sessions[0]), len(sessions[1]), sessions[0] & sessions[1])


@pytest.mark.parametrize(
    "claim", [read("file", "/x"), write("file", "/x"), read("db", "t"), read()], ids=str
)
def test_a_shell_is_exclusive_and_says_so(bench: Bench, claim: tuple[tuple[str, ...], str]) -> None:
    """A command conflicts with every claim of anybody; that is declared, not a fall-back."""
    tool = bench.tools["shell"]
    claims, warning = tool.claims({"command": "ls"})
    assert conflict(claims, [claim])  # type: ignore[list-item]
    assert (None, False) == (warning, tool.concurrency.undeclared)


def test_the_state_is_private_and_outside_the_root(bench: Bench, temporary: Path) -> None:
    """Only the owner can look into the private directory."""
    shell = Shell(bench.root)
    private = next(temporary.iterdir())
    assert 0o700 == private.stat().st_mode & 0o777
    assert [] == bench.names()
    shell.close()


async def test_a_call_leaves_one_file_of_state(bench: Bench, temporary: Path) -> None:
    """However a call ends, nothing but the state is left in the private directory."""
    bench.tools["shell"] = Shell(bench.root).tool
    await bench.shell("true")
    await bench.shell_refusal("exit 1")
    await bench.shell("exec true")
    await bench.shell_refusal("kill $$")
    assert ["environment"] == [file.name for file in next(temporary.iterdir()).iterdir()]


async def test_a_closed_shell_is_gone(bench: Bench, temporary: Path) -> None:
    """Closing removes the state at once; the tool then refuses, and closing again is fine."""
    shell = Shell(bench.root)
    bench.tools["shell"] = shell.tool
    shell.close()
    shell.close()
    assert [] == list(temporary.iterdir())
    assert "this shell has been closed" == await bench.shell_refusal("true")


async def test_a_collected_shell_is_gone(bench: Bench, temporary: Path) -> None:
    """The state lives as long as the tool does, though the `Shell` is not kept, and no longer."""
    tool = Shell(bench.root).tool
    gc.collect()
    bench.tools["shell"] = tool
    assert "here\n" == await bench.shell("echo here")
    del tool, bench.tools["shell"]
    gc.collect()
    assert [] == list(temporary.iterdir())


def test_nothing_is_left_when_the_interpreter_ends(tmp_path: Path) -> None:
    """A program that never closes its shells leaves no private directory."""
    code = f"from dispatch.toolkit import Shell; kept = Shell({str(tmp_path)!r})"
    place = tmp_path / "temporary"
    place.mkdir()
    environment = {**os.environ, "TMPDIR": str(place)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert [] == list(place.iterdir())


async def test_a_timeout_stops_the_command_and_shows_what_it_said(bench: Bench) -> None:
    """A command above its shell's time limit is stopped; its output so far is in the result."""
    shell = Shell(bench.root, timeout=1.5)
    call = ToolCall("1", "shell", {"command": f"echo $$; exec sleep {LONG}"})
    async with Dispatcher([shell.tool], grace=0.2) as dispatcher:
        result = (await dispatcher.run([call]))[0]
    assert Status.TIMED_OUT == result.status
    assert not is_running(int(result.partial))


async def test_the_mark_of_a_command_is_not_handed_to_the_next_one(session: Bench) -> None:
    """Each command has the mark of its own processes, and none of those that ended."""
    counts = [await session.shell(f"export KEPT=1; env | grep -c {MARK}") for _ in range(3)]
    assert ["1\n"] * 3 == counts


async def test_the_mark_that_this_process_runs_under_is_kept(tmp_path: Path) -> None:
    """Whoever started us finds what our commands start, also in their later ones."""
    bench = Bench(tmp_path)
    bench.tools["shell"] = Shell(tmp_path, env={**os.environ, f"{MARK}outer": "1"}).tool
    counts = [await bench.shell(f"env | grep -c {MARK}") for _ in range(3)]
    assert ["2\n"] * 3 == counts
