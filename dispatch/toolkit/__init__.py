"""Ready tools for working on the files of one folder. POSIX only.

`coding_tools(root)` is all of them; `file_tools`, `grep_tool` and `Shell` are the parts. The file
tools cannot leave the folder, links followed; a shell starts in it and is no sandbox.
"""

from __future__ import annotations

import os

from dispatch.tool import Tool
from dispatch.toolkit.files import file_tools
from dispatch.toolkit.paths import Folder
from dispatch.toolkit.search import grep_tool
from dispatch.toolkit.shell import Shell

__all__ = ["Folder", "Shell", "coding_tools", "file_tools", "grep_tool"]


def coding_tools(root: str | os.PathLike[str]) -> list[Tool]:
    """Return `read_file`, `write_file`, `edit_file`, `grep` and a new `shell` over one folder."""
    folder = Folder(root)
    return [*file_tools(folder), grep_tool(folder), Shell(folder).tool]
