"""`python -m tests.frameworks`: test each framework's adapter in an environment of its own.

Prints one line a framework, `NAME VERSION passed=N skipped=0`; exit 1 if one is absent, fails, or
skips anything. Names as arguments choose some. What is run there: the types of the adapter and its
tests, the tests, and the framework's page of the documentation.
"""

import hashlib
import subprocess
import sys
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / ".venv" / "frameworks"
TOOLS = (
    *("mypy", "types-psutil", "hypothesis", "sybil"),
    *("pytest", "pytest-asyncio", "pytest-randomly", "pytest-timeout", "pytest-xdist"),
)


@dataclass(frozen=True)
class Framework:
    """One framework: the distribution whose version counts, and what else its tests need."""

    name: str
    distribution: str
    needs: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where its tests are."""
        return ROOT / "tests" / "frameworks" / self.name

    @property
    def python(self) -> Path:
        """Its environment's interpreter."""
        return ENVIRONMENTS / self.name / "bin" / "python"


FRAMEWORKS = (
    Framework("langgraph", "langgraph", ("langchain", "langchain-anthropic", "langchain-openai")),
    Framework("pydantic_ai", "pydantic-ai-slim", ("pydantic-ai-slim[anthropic,openai]",)),
)


def main(names: list[str]) -> int:
    """Test all of these, or all there are; the status to exit with."""
    unknown = set(names) - {framework.name for framework in FRAMEWORKS}
    if unknown:
        known = ", ".join(framework.name for framework in FRAMEWORKS)
        print(f"no framework is named {', '.join(sorted(unknown))}; there are: {known}")
        return 2
    chosen = [one for one in FRAMEWORKS if not names or one.name in names]
    with ThreadPoolExecutor() as threads:  # each waits for processes of one processor's work
        faults = list(threads.map(make, chosen))
    return max(test(framework, fault) for framework, fault in zip(chosen, faults, strict=True))


def make(framework: Framework) -> subprocess.CalledProcessError | None:
    """Make its environment if need be and check the types there; what failed, if it did."""
    try:
        prepare(framework)
        check_types(framework)
    except subprocess.CalledProcessError as fault:
        return fault
    return None


def test(framework: Framework, fault: subprocess.CalledProcessError | None) -> int:
    """Test it in its environment, unless that could not be made, and print its line."""
    if fault is not None:
        print(fault.stdout)
        print(f"{framework.name} failed: {' '.join(map(str, fault.cmd))}", flush=True)
        return 1
    passed, skipped, failed = run_tests(framework)
    asked = f"import importlib.metadata as m; print(m.version({framework.distribution!r}))"
    version = run(framework, "-c", asked).strip()
    print(f"{framework.name} {version} passed={passed} skipped={skipped}", flush=True)
    return 0 if passed and not skipped and not failed else 1


def prepare(framework: Framework) -> None:
    """Install the framework, its tests' tools and this project, unless that was done."""
    constraints = framework.folder / "constraints.txt"
    wanted = [framework.distribution, *framework.needs, *TOOLS]
    known = (repr(wanted), constraints.read_text(), (ROOT / "pyproject.toml").read_text())
    mark = hashlib.sha256("\n".join(known).encode()).hexdigest()
    ready = ENVIRONMENTS / framework.name / ".ready"
    if ready.exists() and ready.read_text() == mark:
        return
    print(f"{framework.name}: making its environment …", file=sys.stderr, flush=True)
    environment = ENVIRONMENTS / framework.name
    _run(sys.executable, "-m", "venv", "--clear", environment)
    project = f"{ROOT}[cli,http,processes]"
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(framework, *install, "-c", constraints, *wanted, "-e", project)
    ready.write_text(mark)


def check_types(framework: Framework) -> None:
    """Check the adapter and its tests, which the project's own environment cannot."""
    print(f"{framework.name}: checking types …", file=sys.stderr, flush=True)
    adapter = ROOT / "dispatch" / "adapters" / framework.name
    settings = ("--config-file", ROOT / "tests" / "frameworks" / "mypy.ini")
    cache = ("--cache-dir", ENVIRONMENTS / framework.name / "mypy")
    run(framework, "-m", "mypy", *settings, *cache, adapter, framework.folder)


def run_tests(framework: Framework) -> tuple[int, int, int]:
    """How many tests passed, were skipped, and failed."""
    print(f"{framework.name}: testing …", file=sys.stderr, flush=True)
    report = ENVIRONMENTS / framework.name / "report.xml"
    report.unlink(missing_ok=True)
    page = ROOT / "docs" / f"{framework.name.replace('_', '-')}.md"
    tests = ("-m", "pytest", "-n", "auto", "--junitxml", report, framework.folder, page)
    done = _done(framework.python, *tests)
    if not report.exists():
        print(done.stdout)
        return 0, 0, 1
    suite = ET.parse(report).getroot().find("testsuite")  # noqa: S314 - written just now
    assert suite is not None
    count, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    if failed or skipped or done.returncode:
        print(done.stdout)
    return count - skipped - failed, skipped, failed or done.returncode


def run(framework: Framework, *arguments: str | Path) -> str:
    """What its interpreter prints. Raises `CalledProcessError`."""
    return _run(framework.python, *arguments)


def _run(*command: str | Path) -> str:
    done = _done(*command)
    done.check_returncode()
    return done.stdout


def _done(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(command),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
