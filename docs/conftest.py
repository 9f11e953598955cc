"""Runs the documentation: each page of this folder, and the README, is one test.

A page's blocks run in the order they are read, in one namespace and one empty folder:

- `python` blocks are executed;
- blocks with a title (```json title="turn.json") are written to the file of that name;
- `console` blocks have their `$` commands run, and what these print is compared. Numbers with two
  decimals (times) may differ, and a line of three dots stands for any number of lines.

`sh`, `json` and `text` blocks are only read by people. No other language is allowed, so that no
block escapes by a slip of its name.

On the pages of providers, the SDKs find keys in the environment, and the address of a scripted
model on loopback.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest._code import Traceback
from _pytest._code.code import TerminalRepr
from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer, RawFencedCodeBlockLexer

from tests.providers import Call, Step, serve

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
FRAMEWORKS = {"langgraph.md": "langgraph", "pydantic-ai.md": "pydantic_ai"}
"""Pages that run where a framework is, which `make test-frameworks` sees to."""
EDITS = (
    Call("edit", {"path": "notes.txt", "old": "alpha", "new": "ALPHA"}, signature=b"opaque"),
    Call("edit", {"path": "notes.txt", "old": "beta", "new": "BETA"}),
    Call("read", {"path": "notes.txt"}),
)
PATCHES = (Call("patch", "alpha -> ALPHA", custom=True), *EDITS[1:])
LAST = Step("Both words are capital now.")
MODELS = {
    "anthropic.md": [Step("I edit.", EDITS), LAST],
    "openai-chat.md": [Step("", EDITS), LAST],
    "openai-responses.md": [Step("", PATCHES), LAST],
    "gemini.md": [Step("", EDITS), LAST],
    "bedrock.md": [Step("I edit.", EDITS), LAST],
}
"""What the model says on which page, to each conversation anew."""
LANGUAGES = {"python", "console", "sh", "json", "text"}
TITLED = re.compile(r'\w+ title="(?P<title>[^"]+)"$\n', re.MULTILINE)
DECIMALS = re.compile(r" *\d+\.\d\d\b")
ANY_LINES = "..."


def pytest_configure(config: pytest.Config) -> None:
    """Collect pages outside this folder too: a conftest alone would never see the README."""
    config.pluginmanager.register(Pages(), "pages of the documentation")


class Pages:
    """Takes every page as one test file."""

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> "Page | None":
        is_page = file_path.parent == HERE and file_path.suffix == ".md"
        framework = FRAMEWORKS.get(file_path.name) if is_page else None
        if framework is not None and find_spec(framework) is None:
            return None
        if file_path == README or is_page:
            return Page.from_parent(parent, path=file_path)
        return None


class Page(pytest.File):
    """One page; its blocks build on each other, so they are one test."""

    def collect(self) -> Iterator["Blocks"]:
        yield Blocks.from_parent(self, name="blocks")


class Blocks(pytest.Item):
    """All blocks of a page, in order."""

    def runtest(self) -> None:
        document = SYBIL.parse(self.path)
        check_languages(document)
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.chdir(folder),
            model_of(self.path.name),
        ):
            for example in document.examples():
                example.evaluate()

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str | TerminalRepr:
        """Show the line that failed; the default is the whole page."""
        return super().repr_failure(excinfo, style="short")

    def _traceback_filter(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Traceback:
        return excinfo.traceback.cut(path=__file__)  # from `runtest` on, without pytest's own part

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.path.name


@contextlib.contextmanager
def model_of(page: str) -> Iterator[None]:
    """The page's model, where the SDKs look for it."""
    if page not in MODELS:
        yield
        return
    with serve(MODELS[page]) as server, pytest.MonkeyPatch.context() as environment:
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
            environment.setenv(name, "any")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, "any")
        environment.delenv("GOOGLE_API_KEY", raising=False)
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        environment.setenv("ANTHROPIC_BASE_URL", server.url)
        environment.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        environment.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        environment.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", server.url)
        yield


def check_languages(document: Document) -> None:
    """Refuse a block in a language that nothing here knows."""
    for region in FencedCodeBlockLexer(language=".*")(document):
        language = region.lexemes["language"].partition(" ")[0]
        line = document.text.count("\n", 0, region.start) + 1
        assert language in LANGUAGES, f"{document.path}:{line}: no block can be {language!r}"


def titled_blocks(document: Document) -> Iterable[Region]:
    """Find the blocks that are files."""
    for region in RawFencedCodeBlockLexer(TITLED)(document):
        region.parsed = (region.lexemes["title"], region.lexemes["source"])
        region.evaluator = write_file
        yield region


def write_file(example: Example) -> None:
    """Write a titled block to its file."""
    name, content = example.parsed
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(content, encoding="utf-8")


def run_console(example: Example) -> None:
    """Run the commands of a block and compare what they print, errors included."""
    for entry in re.split(r"^\$ ", example.parsed, flags=re.MULTILINE)[1:]:
        command, _, expected = entry.partition("\n")
        printed = output_of(command)
        where = f"{example.path}:{example.line}: $ {command}"
        assert fits(expected, printed), f"{where}\nprinted:\n{printed}\nexpected:\n{expected}"


def output_of(command: str) -> str:
    """What a command prints, on both streams, where `dispatch` is this environment's."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(  # noqa: S602 - the documentation's own commands
        command,
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1"},
        check=False,
    )
    return done.stdout.decode()


def fits(expected: str, printed: str) -> bool:
    """Whether the output is the expected one, times and left-out lines aside."""
    lines = [
        "(?:.*\n)*?" if line == ANY_LINES else re.escape(DECIMALS.sub(" 0.00", line)) + "\n"
        for line in expected.rstrip().splitlines()
    ]
    shown = DECIMALS.sub(" 0.00", printed)
    shown = "".join(f"{line.rstrip()}\n" for line in shown.rstrip().splitlines())
    return re.fullmatch("".join(lines), shown) is not None


SYBIL = Sybil(
    parsers=[
        PythonCodeBlockParser(),
        CodeBlockParser(language="console", evaluator=run_console),
        titled_blocks,
    ]
)
