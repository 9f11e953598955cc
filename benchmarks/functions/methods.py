"""What calls of Python's own functions and methods do. Pure.

A name of a method says what it does as far as the built-in types go; a class of the analysed
module that has a method of that name is looked up there. What is in none of these tables may
change all that it can reach.
"""

from __future__ import annotations

import builtins

GET = "get"
"""Changes nothing, and returns a part or its argument."""

SCALAR = frozenset(
    {
        *("abs", "all", "any", "bool", "bytes", "callable", "chr", "float", "format", "hash"),
        *("hex", "int", "isinstance", "issubclass", "len", "ord", "range", "repr", "round", "str"),
    }
)
"""Functions that change nothing and return no part of what they are given."""

FRESH = frozenset(
    {
        *("dict", "enumerate", "frozenset", "iter", "list", "reversed", "set", "sorted"),
        *("tuple", "zip"),
        *(
            name
            for name, value in vars(builtins).items()
            if isinstance(value, type) and issubclass(value, BaseException)
        ),
    }
)
"""Functions that change nothing and return an object that holds parts of what they are given."""

PART = frozenset({"max", "min", "sum"})
"""Functions that change nothing and may return a part of what they are given."""

TEXT = frozenset(
    {
        *("capitalize", "count", "encode", "endswith", "find", "format", "index", "isalpha"),
        *("isdigit", "isoformat", "join", "lower", "lstrip", "replace", "rstrip", "split"),
        *("splitlines", "startswith", "strftime", "strip", "timestamp", "title", "upper", "zfill"),
    }
)
"""Methods that change nothing and return no part of what they are called on."""

COPY = frozenset({"copy", "difference", "intersection", "items", "keys", "union", "values"})
"""Methods that change nothing and return an object of its own that holds parts of this one."""

CHANGE = frozenset(
    {
        *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"),
        *("reverse", "setdefault", "sort", "update"),
    }
)
"""Methods that change their object, may put their arguments into it, and may return parts."""
