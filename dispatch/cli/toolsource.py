"""`--tools module:attribute`: the tools to run calls with, and clear words when there are none.

The attribute is a toolbox, a list of tools, one tool, or a function from the root folder to
these. The module is one that can be imported from the current folder, or a path to a `.py` file.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from dispatch.errors import InputError
from dispatch.render import safe_str
from dispatch.tool import Tool, Toolbox

DEFAULT = "dispatch.toolkit:coding_tools"


def load_tools(spec: str, root: Path) -> Toolbox:
    """The tools that `spec` names, for calls in `root`. Raises `InputError`."""
    module_name, colon, attribute = spec.rpartition(":")
    if not colon or not module_name or not attribute:
        raise InputError(f"--tools {spec}: write module:attribute, as in {DEFAULT}")
    found = _attribute(_module(module_name), attribute, spec)
    if callable(found) and not isinstance(found, Tool):
        try:
            found = found(root)
        except (Exception, SystemExit) as error:  # the function is foreign code
            raise InputError(f"--tools {spec}: {attribute}(root) failed: {_told(error)}") from error
    return _toolbox(found, spec)


def _module(name: str) -> ModuleType:
    try:
        if name.endswith(".py"):
            return _module_in_file(Path(name))
        _search_current_folder()
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # importing runs foreign code
        raise InputError(f"--tools: cannot import {name!r}: {_told(error)}") from error


def _search_current_folder() -> None:
    """Find modules as `python -m` does; a console script does not by itself."""
    with contextlib.suppress(FileNotFoundError):  # the current folder was deleted
        here = str(Path.cwd())
        if "" not in sys.path and here not in sys.path:
            sys.path.insert(0, here)


def _module_in_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"dispatch_tools_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations of its functions are looked up there
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, name: str, spec: str) -> Any:
    if not hasattr(module, name):
        names = [public for public in vars(module) if not public.startswith("_")]
        has = ", ".join(names[:10]) or "nothing public"
        raise InputError(f"--tools {spec}: the module has no {name!r}; it has {has}")
    return getattr(module, name)


def _toolbox(found: object, spec: str) -> Toolbox:
    if isinstance(found, Toolbox):
        return found
    given = [found] if isinstance(found, Tool) else found
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InputError(
            f"--tools {spec}: is of type {type(found).__name__}; a toolbox, a list of tools, or a"
            " function from the root folder to one was expected"
        )
    tools = list(given)
    for item in tools:
        if not callable(item):
            raise InputError(f"--tools {spec}: {safe_str(item)[:60]!r} in the list is no tool")
    return Toolbox(tools)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {safe_str(error)[:300]}"
