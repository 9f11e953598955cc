"""The demo's own tools, beside the ready ones: each says what it reads and writes.

`python -m` runs in a process of its own, so calls that do not conflict use more than one core.
Use them with `dispatch run FILE --root DIR --tools examples/demo/tools.py:demo_tools`.
"""

import ast
import re
import sys
from pathlib import Path

from dispatch import CallContext, ProcessResult, Tool, ToolError, tool
from dispatch.toolkit import coding_tools


def demo_tools(root: Path) -> list[Tool]:
    """The coding tools and the demo's own, for the project in `root`."""

    @tool(reads=["file:minimark", "file:tests"], timeout=60)
    async def run_tests(module: str, context: CallContext) -> str:
        """Run one test module, such as tests.test_slug."""
        result = await _python(context, root, "unittest", "-q", module)
        failed = re.findall(r"^(?:FAIL|ERROR): (\w+)", result.output, re.MULTILINE)
        if result.returncode != 0:
            names = ", ".join(failed) or "it could not be run"
            raise ToolError(f"{module} fails: {names}\n\n{result.output.strip()}")
        ran = re.search(r"^Ran (\d+)", result.output, re.MULTILINE)
        return f"{module}: {ran[1] if ran else 'no'} tests pass"

    @tool(reads=["file:minimark", "file:{page}"], writes="file:{output}", timeout=60)
    async def render_page(page: str, output: str, context: CallContext) -> str:
        """Render a page of Markdown into a file of HTML, with a table of contents."""
        arguments = (_inside(root, page), "--contents", "-o", _inside(root, output))
        result = await _python(context, root, "minimark", *arguments)
        if result.returncode != 0:
            raise ToolError(f"{page} could not be rendered:\n{result.output.strip()}")
        return result.output.strip()

    @tool(reads="file:{path}")
    def check_file(path: str) -> str:
        """Check that a Python file compiles, and name what it imports and never uses."""
        source = Path(root, _inside(root, path)).read_text(encoding="utf-8")
        try:
            tree = ast.parse(source)
        except SyntaxError as error:
            raise ToolError(f"{path}:{error.lineno}: {error.msg}") from error
        unused = sorted(_imported(tree) - _used(tree))
        return f"{path}: unused imports: {', '.join(unused)}" if unused else f"{path}: fine"

    return [*coding_tools(root), run_tests, render_page, check_file]


async def _python(context: CallContext, root: Path, *arguments: str) -> ProcessResult:
    return await context.run_process([sys.executable, "-B", "-m", *arguments], cwd=root)


def _inside(root: Path, path: str) -> str:
    real = root.resolve()
    if not (real / path).resolve().is_relative_to(real):
        raise ToolError(f"{path} is outside the project; name a path below its folder")
    return path


def _imported(tree: ast.AST) -> set[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {(name.asname or name.name).partition(".")[0] for node in imports for name in node.names}


def _used(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
