"""Ready tools: the files of one folder, its databases, and the web. POSIX only.

`coding_tools(root)` is all that work on the files of a folder; `file_tools`, `list_directory_tool`,
`glob_tool`, `grep_tool` and `Shell` are the parts. `sqlite_tool` queries databases in a folder and
`http_tool` fetches URLs. The file tools cannot leave the folder, links followed; a shell starts
in it and is no sandbox.
"""

from __future__ import annotations

import os

from dispatch.tool import Tool
from dispatch.toolkit.browse import glob_tool, list_directory_tool
from dispatch.toolkit.fetch import http_tool
from dispatch.toolkit.files import file_tools
from dispatch.toolkit.paths import Folder
from dispatch.toolkit.search import grep_tool
from dispatch.toolkit.shell import Shell
from dispatch.toolkit.sqlite import sqlite_tool

__all__ = [
    "Folder",
    "Shell",
    "coding_tools",
    "file_tools",
    "glob_tool",
    "grep_tool",
    "http_tool",
    "list_directory_tool",
    "sqlite_tool",
]


def coding_tools(root: str | os.PathLike[str]) -> list[Tool]:
    """Return all tools that work on the files of one folder, with a new `shell`."""
    folder = Folder(root)
    return [
        *file_tools(folder),
        list_directory_tool(folder),
        glob_tool(folder),
        grep_tool(folder),
        Shell(folder).tool,
    ]
