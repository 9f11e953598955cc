"""Reads the statements of one function, and tells the heap and the function what they do. Pure.

Fails closed: a statement that is not followed may read and write everything.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.functions.expressions import Expressions
from benchmarks.functions.heap import ANYTHING, NOTHING, Heap
from benchmarks.functions.source import Function, Module, defaults

IN_PLACE = ast.Add | ast.BitAnd | ast.BitOr | ast.BitXor | ast.Mult | ast.Sub
"""What `x op= y` does to x itself, if x is a list, a set or a dict."""
KEEPING = ast.Add | ast.BitOr | ast.BitXor
"""Those after which x holds parts of y."""


class Walker(Expressions):
    """One pass over one function; passes are repeated until the heap grows no more."""

    def __init__(self, function: Function, module: Module, heap: Heap) -> None:
        super().__init__(function, module, heap)
        self.returns = function.returns
        self.is_strange = function.is_strange()
        for node in ast.walk(function.node):
            if isinstance(node, ast.FunctionDef) and node is not function.node:
                returns = heap.variables[f"{function.key}.{node.name}", "return"]
                self.inner[node.name] = (node, returns)

    def walk(self) -> None:
        """Read the whole function."""
        if self.is_strange:
            self.unclear()
        self._own_defaults(self.function.node)
        if self.is_target and self.function.is_public:
            for name in self.function.parameters:
                self._from_outside(name)
        self.block(self.function.node.body)

    def _from_outside(self, name: str) -> None:
        """A parameter that anybody fills: an object that is no state yet, unless it is plain."""
        if name not in self.function.plain:
            made = self.heap.make(f"{self.function.key}({name})", NOTHING, nested=True)
            self.assign(name, made)

    def _own_defaults(self, node: ast.FunctionDef) -> None:
        for name in defaults(node):
            self.assign(name, frozenset({f":{node.name}.{name}"}))

    def block(self, statements: Iterable[ast.stmt]) -> None:
        """Read statements one by one."""
        for statement in statements:
            STATEMENTS.get(type(statement), Walker.unclear)(self, statement)

    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.bind(target, value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.bind(node.target, self.value(node.value))

    def _augmented(self, node: ast.AugAssign) -> None:
        value, old = self.value(node.value), self.value(node.target)
        if isinstance(node.op, IN_PLACE):
            kept = value | self.heap.inside(value) if isinstance(node.op, KEEPING) else NOTHING
            self.store(old, kept)
        self.bind(node.target, NOTHING)

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self.bind(target, NOTHING)

    def _for(self, node: ast.For) -> None:
        self.bind(node.target, self.heap.inside(self.value(node.iter)))
        self.block([*node.body, *node.orelse])

    def _branch(self, node: ast.If | ast.While) -> None:
        self.value(node.test)
        self.block([*node.body, *node.orelse])

    def _try(self, node: ast.Try) -> None:
        self.block(node.body)
        for handler in node.handlers:
            if handler.name:
                self.assign(handler.name, ANYTHING)
            self.block(handler.body)
        self.block([*node.orelse, *node.finalbody])

    def _return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.heap.grow(self.returns, self.value(node.value))

    def _raise(self, node: ast.Raise) -> None:
        self.each(node.exc, node.cause)

    def _assert(self, node: ast.Assert) -> None:
        self.each(node.test, node.msg)

    def _expression(self, node: ast.Expr) -> None:
        self.value(node.value)

    def _define(self, node: ast.FunctionDef) -> None:
        outer, self.returns = self.returns, self.inner[node.name][1]
        self._own_defaults(node)
        self.block(node.body)
        self.returns = outer

    def _nothing(self, node: ast.stmt) -> None:
        pass


STATEMENTS: dict[type[ast.AST], Callable[[Walker, Any], None]] = {
    ast.Assign: Walker._assign,
    ast.AnnAssign: Walker._annotated,
    ast.AugAssign: Walker._augmented,
    ast.Delete: Walker._delete,
    ast.For: Walker._for,
    ast.If: Walker._branch,
    ast.While: Walker._branch,
    ast.Try: Walker._try,
    ast.Return: Walker._return,
    ast.Raise: Walker._raise,
    ast.Assert: Walker._assert,
    ast.Expr: Walker._expression,
    ast.FunctionDef: Walker._define,
    **dict.fromkeys((ast.Pass, ast.Break, ast.Continue, ast.Nonlocal), Walker._nothing),
}
