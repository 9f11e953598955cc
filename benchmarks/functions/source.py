"""The functions of one module, as the analysis of effects walks them. Pure.

Owns what is known of a function before its body is read: its parameters, which names are its own,
and what of it the analysis does not follow. Knows nothing of values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

PURE_MODULES = frozenset({"copy", "datetime", "json", "math", "re"})
"""Their functions change nothing that they are given, and keep nothing."""

PLAIN = frozenset({"Optional", "Union", "bool", "float", "int", "str"})


@dataclass(slots=True, kw_only=True, eq=False)
class Function:
    """A function or method, and what was found out about it."""

    key: str
    node: ast.FunctionDef
    owner: str | None
    """The class whose method it is."""
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)
    returns: set[str] = field(default_factory=set)

    @property
    def receiver(self) -> str | None:
        """The parameter that is the object itself."""
        names = parameters(self.node)
        return names[0] if self.owner and names else None

    @property
    def parameters(self) -> list[str]:
        """Those that a call fills, in order."""
        return parameters(self.node)[1 if self.owner else 0 :]

    @property
    def plain(self) -> set[str]:
        """The parameters that are annotated to be numbers or text."""
        arguments = [node for node in ast.walk(self.node.args) if isinstance(node, ast.arg)]
        return {one.arg for one in arguments if one.annotation and is_plain(one.annotation)}

    @property
    def is_public(self) -> bool:
        """Whether anybody may call it."""
        return not self.node.name.startswith("_")

    def is_strange(self) -> bool:
        """Whether it has something that is not followed; it may then do anything."""
        kinds = ast.Global | ast.AsyncFunctionDef | ast.ClassDef | ast.Yield | ast.YieldFrom
        inner = [node for node in ast.walk(self.node) if isinstance(node, ast.FunctionDef)]
        return (
            any(isinstance(node, kinds) for node in ast.walk(self.node))
            or any(one.decorator_list or one.args.vararg or one.args.kwarg for one in inner)
            or (self.owner is not None and self.receiver is None)
            or [*self._bound()].count(self.receiver or "") > 1
        )

    def names(self) -> set[str]:
        """Every name that is bound somewhere in it, in functions inside it too."""
        return set(self._bound())

    def _bound(self) -> Iterator[str]:
        for node in ast.walk(self.node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.arg):
                yield node.arg
            elif isinstance(node, ast.ExceptHandler) and node.name:
                yield node.name


def parameters(node: ast.FunctionDef) -> list[str]:
    """The names of a function's parameters, in order."""
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def defaults(node: ast.FunctionDef) -> Iterator[str]:
    """The parameters whose default is one object for all calls."""
    plain = [*node.args.posonlyargs, *node.args.args]
    given = [*zip(reversed(plain), reversed(node.args.defaults), strict=False)]
    named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    for parameter, default in [*given, *named]:
        if default is not None and not isinstance(default, ast.Constant):
            yield parameter.arg


def is_plain(annotation: ast.expr) -> bool:
    """Whether it names nothing that can be changed."""
    parts = [*ast.walk(annotation)]
    if any(isinstance(part, ast.Attribute) for part in parts):
        return False
    constants = [part.value for part in parts if isinstance(part, ast.Constant)]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return bool(names) and names <= PLAIN and all(one is None for one in constants)


class Module:
    """The classes and functions of a module, and the names of pure ones that it imports."""

    def __init__(self, text: str, class_name: str) -> None:
        tree = ast.parse(text)
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        if class_name not in classes:
            raise ValueError(f"the module has no class {class_name!r}")
        self.target = class_name
        self.inherits = bool(classes[class_name].bases)
        """Whether some methods may stand elsewhere."""
        self.classes = {
            name: {function.node.name: function for function in _functions(node, name)}
            for name, node in classes.items()
        }
        self.functions = {function.key: function for function in _functions(tree, None)}
        self.pure = {name for node in tree.body for name in _pure(node)}
        self.names = {name for node in tree.body for name in _bound_outside(node)}
        """Those that the module assigns or imports, and that may hide Python's own."""
        self.plain = set(_plain(classes[class_name]))
        """Attributes of the class that are annotated to be numbers or text."""

    def all(self) -> Iterator[Function]:
        """Every function and method."""
        yield from self.functions.values()
        for methods in self.classes.values():
            yield from methods.values()

    def helpers(self, method: str) -> list[Function]:
        """The methods of this name in the other classes."""
        others = [methods for name, methods in self.classes.items() if name != self.target]
        return [methods[method] for methods in others if method in methods]


def _functions(node: ast.Module | ast.ClassDef, owner: str | None) -> Iterator[Function]:
    for one in node.body:
        if isinstance(one, ast.FunctionDef):
            key = one.name if owner is None else f"{owner}.{one.name}"
            yield Function(key=key, node=one, owner=owner)


def _pure(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and node.module in PURE_MODULES:
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from (a.asname or a.name for a in node.names if a.name in PURE_MODULES)


def _bound_outside(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    elif not isinstance(node, ast.ClassDef | ast.FunctionDef):
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                yield one.id


def _plain(node: ast.ClassDef) -> Iterator[str]:
    for one in ast.walk(node):
        if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Attribute):
            continue
        if is_plain(one.annotation):
            yield one.target.attr
