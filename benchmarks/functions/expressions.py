"""Reads the expressions of one function, and tells the heap and the function what they do. Pure.

Fails closed: an expression that is not followed may read and write everything. Taken for granted
is that special methods (`__eq__`, `__iter__`, …) change nothing, that keys of dicts are never
changed, that annotations with numbers and text are true, and that the names in `methods` mean what
they mean for the built-in types. What methods really change is held against it in `turns`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

from benchmarks.functions.heap import ANYTHING, EVERYTHING, NOTHING, Heap, Roots
from benchmarks.functions.methods import CHANGE, COPY, FRESH, GET, PART, SCALAR, TEXT
from benchmarks.functions.source import Function, Module, parameters


class Expressions:
    """The values of a function's expressions, and what comes of them."""

    def __init__(self, function: Function, module: Module, heap: Heap) -> None:
        self.function = function
        self.module = module
        self.heap = heap
        self.names = function.names()
        self.inner: dict[str, tuple[ast.FunctionDef, set[str]]] = {}
        self.is_target = function.owner == module.target

    def unclear(self, *_: object) -> Roots:
        """Something that is not followed: it may do anything, also mix all state up."""
        self.heap.share(EVERYTHING, ":unclear")
        self.heap.grow(self.function.reads, ANYTHING)
        self.heap.grow(self.function.writes, ANYTHING)
        return ANYTHING

    def assign(self, name: str, value: Roots) -> None:
        """A local name may from now on be this too."""
        self.heap.grow(self.heap.variables[self.function.key, name], value)

    def bind(self, target: ast.expr, value: Roots) -> None:
        """Assign a value to any target."""
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self.bind(one, self.heap.inside(value))
        elif isinstance(target, ast.Starred):
            self.bind(target.value, self.made(target, value, nested=True))
        elif isinstance(target, ast.Attribute) and self.is_self(target.value):
            self.store(frozenset({target.attr}), value)
        elif isinstance(target, ast.Attribute):
            self.store(self.value(target.value), value)
        elif isinstance(target, ast.Subscript):
            self.value(target.slice)
            self.store(self.value(target.value), value)
        else:
            self.unclear()

    def store(self, into: Roots, value: Roots) -> None:
        """Put a value into objects; what of them is state is written."""
        self.heap.grow(self.function.writes, self.heap.store(into, value))

    def anything(self, reached: Roots) -> Roots:
        """Foreign code gets these: it may change them, and put them into one another."""
        everything = self.heap.reach(reached)
        self.store(everything, everything)
        return everything

    def made(self, node: ast.expr, holding: Roots, *, nested: bool = False) -> Roots:
        """An object made by this expression."""
        place = f"{node.lineno}:{node.col_offset}-{node.end_lineno}:{node.end_col_offset}"
        return self.heap.make(f"{place} {type(node).__name__}", holding, nested=nested)

    def value(self, node: ast.expr) -> Roots:
        """What an expression may be, after it has done what it does."""
        return EXPRESSIONS.get(type(node), Expressions.unclear)(self, node)

    def each(self, *nodes: ast.expr | None) -> Roots:
        """Any of these."""
        values = [self.value(node) for node in nodes if node is not None]
        return frozenset().union(*values)

    def is_self(self, node: ast.expr) -> bool:
        """Whether it names the object whose methods are analysed."""
        return self.is_target and isinstance(node, ast.Name) and node.id == self.function.receiver

    def _scalar(self, node: ast.expr) -> Roots:
        self.each(*(one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)))
        return NOTHING

    def _any_part(self, node: ast.expr) -> Roots:
        return self.each(*(one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)))

    def _display(self, node: ast.expr) -> Roots:
        parts = self._any_part(node)
        if isinstance(node, ast.Dict) and None in node.keys:  # {**other}
            parts |= self.heap.inside(parts)
        return self.made(node, parts)

    def _sum(self, node: ast.BinOp) -> Roots:
        parts = self.each(node.left, node.right)
        return self.made(node, self.heap.inside(parts)) if parts else NOTHING

    def _starred(self, node: ast.Starred) -> Roots:
        return self.heap.inside(self.value(node.value))

    def _named(self, node: ast.NamedExpr) -> Roots:
        value = self.value(node.value)
        self.bind(node.target, value)
        return value

    def _comprehension(self, node: Any) -> Roots:
        for part in node.generators:
            self.bind(part.target, self.heap.inside(self.value(part.iter)))
            self.each(*part.ifs)
        made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return self.made(node, self.each(*made))

    def _lambda(self, node: ast.Lambda) -> Roots:
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                self.assign(argument.arg, ANYTHING)
        return self.value(node.body)

    def _subscript(self, node: ast.Subscript) -> Roots:
        self.value(node.slice)
        value = self.value(node.value)
        whole = (
            self.made(node, self.heap.inside(value)) if isinstance(node.slice, ast.Slice) else ()
        )
        return self.heap.inside(value) | frozenset(whole)

    def _attribute(self, node: ast.Attribute) -> Roots:
        if any(node.attr in methods for methods in self.module.classes.values()):
            return self.unclear()  # a method that is passed on, or a property
        if not self.is_self(node.value):
            return self.heap.inside(self.value(node.value))
        self.heap.grow(self.function.reads, {node.attr})
        return NOTHING if node.attr in self.module.plain else frozenset({node.attr})

    def _name(self, node: ast.Name) -> Roots:
        if self.is_self(node):
            return self.unclear()
        if node.id in self.names:
            return frozenset(self.heap.variables[self.function.key, node.id])
        if node.id in self.inner or node.id in self.module.functions:
            return self.unclear()
        if node.id in vars(builtins) and node.id not in self.module.names:
            return NOTHING
        self.heap.grow(self.function.reads, {f":{node.id}"})
        return frozenset({f":{node.id}"})

    # calls

    def _call(self, node: ast.Call) -> Roots:
        if isinstance(node.func, ast.Attribute):
            return self._method_call(node, node.func)
        if isinstance(node.func, ast.Name) and node.func.id not in self.names:
            return self._function_call(node, node.func.id)
        return self.anything(self.value(node.func) | self.arguments(node))

    def _function_call(self, node: ast.Call, name: str) -> Roots:
        if name in self.inner:
            inner, returns = self.inner[name]
            self.fill(node, self.function.key, parameters(inner))
            return frozenset(returns)
        if name in self.module.functions:
            return self.enter(node, self.module.functions[name])
        if name in self.module.classes and name != self.module.target:
            return self._instance(node, self.module.classes[name].get("__init__"))
        return self._foreign_call(node, name)

    def _foreign_call(self, node: ast.Call, name: str) -> Roots:
        given = self.arguments(node)
        if name in self.module.pure:
            return self.made(node, self.heap.reach(given), nested=True)
        if name in self.module.names or name not in vars(builtins):
            return self.anything(given | {f":{name}"})
        parts = given | self.heap.inside(given)
        if name in SCALAR:
            return NOTHING
        if name in FRESH:
            return self.made(node, parts, nested=True)
        if name in PART:
            return self.made(node, parts, nested=True) | parts
        return self.unclear()  # setattr, eval, open, …

    def _instance(self, node: ast.Call, init: Function | None) -> Roots:
        made = self.made(node, NOTHING)
        if init is None:
            self.store(made, self.arguments(node))
        else:
            self.enter(node, init, made)
        return made

    def _method_call(self, node: ast.Call, called: ast.Attribute) -> Roots:
        if self.is_self(called.value):
            method = self.module.classes[self.module.target].get(called.attr)
            return self.unclear() if method is None else self.enter(node, method)
        if isinstance(called.value, ast.Name) and called.value.id in self.module.pure - self.names:
            return self._foreign_call(node, called.value.id)
        if called.attr in self.module.classes[self.module.target] or self._is_class(called.value):
            return self.unclear()
        receiver = self.value(called.value)
        helpers = self.module.helpers(called.attr)
        results = [self.enter(node, helper, receiver) for helper in helpers]
        if not helpers or called.attr in TEXT | COPY | CHANGE | {GET}:
            results.append(self._built_in(node, called.attr, receiver))
        return frozenset().union(*results)

    def _is_class(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.module.classes.keys() - self.names

    def _built_in(self, node: ast.Call, method: str, receiver: Roots) -> Roots:
        given = self.arguments(node)
        if method in TEXT:
            return self.made(node, NOTHING)
        parts = self.heap.inside(receiver)
        if method in COPY:
            return self.made(node, parts | given | self.heap.inside(given), nested=True)
        if method == GET:
            return parts | given
        if method in CHANGE:
            self.store(receiver, given | self.heap.inside(given))
            return parts | given
        return self.anything(receiver | given)

    def arguments(self, node: ast.Call) -> Roots:
        """Any of a call's arguments."""
        return self.each(*node.args, *(keyword.value for keyword in node.keywords))

    def enter(self, node: ast.Call, callee: Function, receiver: Roots = NOTHING) -> Roots:
        """A call of a function of this module."""
        self.heap.grow(self.function.calls, {callee.key})
        if callee.receiver is not None:
            self.heap.grow(self.heap.variables[callee.key, callee.receiver], receiver)
        self.fill(node, callee.key, callee.parameters)
        return frozenset(callee.returns)

    def fill(self, node: ast.Call, key: str, names: list[str]) -> None:
        """Give a function's parameters the arguments of a call."""
        unpacked = any(isinstance(one, ast.Starred) for one in node.args)
        if unpacked or any(keyword.arg is None for keyword in node.keywords):
            given = self.arguments(node)
            pairs = [(name, given | self.heap.inside(given)) for name in names]
        else:
            pairs = [(n, self.value(one)) for n, one in zip(names, node.args, strict=False)]
            pairs += [(str(one.arg), self.value(one.value)) for one in node.keywords]
        for name, value in pairs:
            self.heap.grow(self.heap.variables[key, name], value)


EXPRESSIONS: dict[type[ast.AST], Callable[[Expressions, Any], Roots]] = {
    ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute,
    ast.Subscript: Expressions._subscript,
    ast.Call: Expressions._call,
    ast.BinOp: Expressions._sum,
    ast.NamedExpr: Expressions._named,
    ast.Starred: Expressions._starred,
    ast.Lambda: Expressions._lambda,
    **dict.fromkeys((ast.BoolOp, ast.IfExp), Expressions._any_part),
    **dict.fromkeys((ast.Dict, ast.List, ast.Set, ast.Tuple), Expressions._display),
    **dict.fromkeys(
        (ast.DictComp, ast.GeneratorExp, ast.ListComp, ast.SetComp), Expressions._comprehension
    ),
    **dict.fromkeys(
        (ast.Compare, ast.Constant, ast.FormattedValue, ast.JoinedStr, ast.Slice, ast.UnaryOp),
        Expressions._scalar,
    ),
}
