"""What the pages promise beyond their code blocks, which run as tests of their own."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`((?:examples|tests)/[\w./-]+)`")
LINK = re.compile(r"\]\((?P<file>[^)#:]*)(?:#(?P<heading>[^)]*))?\)")


def test_the_readme_shows_the_example_as_it_is() -> None:
    """The README's block is the example file, byte for byte."""
    code = (ROOT / "examples" / "agent_loop.py").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "This is `examples/agent_loop.py`." in readme
    assert f"```python\n{code}```\n" in readme


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    """A page names no example and no test that was moved or deleted."""
    named = FILE.findall(page.read_text(encoding="utf-8"))
    assert [] == [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    """A link between pages names a file that is there, and a heading in it."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    dead = [match[0] for match in LINK.finditer(text) if not leads(page, match)]
    assert [] == dead


def test_the_index_names_every_page() -> None:
    """No page is out of reach from the table of contents."""
    linked = {match["file"] for match in LINK.finditer((DOCS / "index.md").read_text())}
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} == linked


def leads(page: Path, match: re.Match[str]) -> bool:
    """Whether the link's file exists and has its heading."""
    target = page.parent / match["file"] if match["file"] else page
    if not target.is_file():
        return False
    return match["heading"] is None or match["heading"] in headings(target)


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}
