import asyncio
import os
from pathlib import Path

import pytest

from dispatch import Dispatcher, Tool, ToolCall, tool
from dispatch.claims import FileKeys, overlap


def touch(folder: str, name: str) -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("template", "folder", "name"),
    [
        ("file:{folder}/{name}", "src", "a.py"),
        ("file:{folder}/{name}", "", "a.py"),
        ("file:{folder}/{name}", "src", "{root}/b.py"),
        ("file:{folder}/{name}", "{root}/src", "../b.py"),
        ("file:{folder}/sub/{name}", "", "a.py"),
        ("file:src/{name}", "-", "{root}/b.py"),
        ("file:{root}/{name}", "-", "a.py"),
        ("file:./{name}", "-", "a.py"),
    ],
)
def test_a_template_claims_the_file_that_the_tool_means(
    template: str, folder: str, name: str, tmp_path: Path
) -> None:
    """Whether the tool writes the path as text or joins its parts, its file is claimed."""
    root = str(tmp_path)
    template, folder, name = (
        template.replace("{root}", root),
        folder.replace("{root}", root),
        name.replace("{root}", root),
    )
    declared, problem = Tool("touch", touch, writes=template).claims(
        {"folder": folder, "name": name}
    )
    assert problem is None
    files = FileKeys(tmp_path)
    keys = [claim.key for claim in files.resolve(declared) if claim.key[0] == "file"]
    path = template.removeprefix("file:")
    written = path.replace("{folder}", folder).replace("{name}", name)
    parts = [p.replace("{folder}", folder).replace("{name}", name) for p in path.split("/")]
    joined = os.path.join("/" if path.startswith("/") else "", *parts)  # noqa: PTH118
    for meant in (written, joined):
        assert any(overlap(files.key(meant), key) for key in keys)


def test_other_kinds_keep_a_value_in_its_segment() -> None:
    """A slash in a value makes no new segment, so it cannot reach another resource."""
    made = Tool("touch", touch, writes="db:{folder}/{name}")
    claims, _ = made.claims({"folder": "orders/42", "name": "x"})
    assert ("db", "orders/42", "x") == claims[0].key


def test_a_link_made_earlier_in_the_turn_does_not_hide_the_file(tmp_path: Path) -> None:
    """[link b to a, edit a, edit b]: the edits are of one file by then, and none is lost."""
    (tmp_path / "a").write_text("")

    @tool(resource_keys=lambda _: [("file",)])
    def link() -> None:
        (tmp_path / "b").symlink_to("a")

    running: list[str] = []
    overlaps: list[str] = []

    @tool(writes="file:{path}")
    async def append(path: str, text: str) -> None:
        overlaps.extend(running)
        running.append(path)
        old = (tmp_path / path).read_text()
        await asyncio.sleep(0.01)
        (tmp_path / path).write_text(old + text)
        running.remove(path)

    calls = [
        ToolCall("", "link", {}),
        ToolCall("", "append", {"path": "a", "text": "1"}),
        ToolCall("", "append", {"path": "b", "text": "2"}),
    ]
    turn = Dispatcher([link, append], root=tmp_path).run_sync(calls)
    turn.raise_for_failures()
    assert ([], "12") == (overlaps, (tmp_path / "a").read_text())
