"""Each framework's tests run where the framework is: see `tests/frameworks/__main__.py`."""

from importlib.util import find_spec

collect_ignore = [name for name in ("langgraph", "pydantic_ai") if find_spec(name) is None]
