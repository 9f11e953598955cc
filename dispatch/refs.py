"""`Ref`: an argument whose value is what another call of the same turn returned.

Owns finding references in arguments, in Python and in JSON form, and filling in the values. Knows
nothing of order: a call with a `Ref` waits for the other call, which is the turn's business.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_jsonable_python

from dispatch.errors import DispatchError
from dispatch.render import preview, safe_str

DEPTH = 100
"""Levels of nesting that are searched; deeper arguments are taken as they are."""
MARK = "$ref"
_PLAIN = frozenset({str, int, float, bool, type(None)})


class RefError(DispatchError):
    """The value that a reference names does not exist; the text tells the model why."""


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of the call with this id, or what `path` leads to in it.

    `path` is a dotted text (`"items.0.name"`) or a sequence of keys and list indexes; empty, the
    whole value is taken. Mappings, lists, dataclasses and pydantic models can be walked.
    """

    call_id: str
    path: str | Sequence[str | int] = ()

    def __post_init__(self) -> None:
        """Raise `TypeError` for an id or a path that cannot be one."""
        steps = self.path if isinstance(self.path, list | tuple | str) else (None,)
        if not isinstance(self.call_id, str) or not all(isinstance(s, str | int) for s in steps):
            raise TypeError(
                "a Ref takes a call's id and a path, as in Ref('c1', 'items.0.name'), not"
                f" {self.call_id!r} and {self.path!r}"
            )

    @property
    def steps(self) -> tuple[str | int, ...]:
        """The path as keys and indexes."""
        if isinstance(self.path, str):
            return tuple(self.path.split(".")) if self.path else ()
        return tuple(self.path)

    def value(self, returned: object) -> Any:
        """What the path leads to in a returned value, as a copy that may be changed.

        Raises `RefError` if it leads nowhere.
        """
        value: Any = returned
        for step in self.steps:
            try:
                value = _step(value, step)
            except (LookupError, ValueError, TypeError) as error:
                shown = preview(".".join(map(str, self.steps)))
                raise RefError(
                    f"the value of call {self.call_id!r} has no {shown}: nothing at {step!r}"
                ) from error
        try:
            return copy.deepcopy(value)
        except Exception:  # noqa: BLE001 - what cannot be copied is passed on as it is
            return value


def with_refs(arguments: object, *, json_form: bool) -> tuple[object, tuple[Ref, ...]]:
    """The arguments, and the references in them; with `json_form` as `{"$ref": id, "path": …}` too.

    Arguments that were JSON text are parsed only if they hold a reference; what cannot be parsed
    is left for validation to refuse.
    """
    given = arguments
    if isinstance(given, str):
        if not json_form or MARK not in given:
            return arguments, ()
        try:
            given = from_json(given)
        except ValueError:
            return arguments, ()
    elif _is_plain(given):
        return arguments, ()
    found: list[Ref] = []

    def note(ref: Ref) -> Ref:
        found.append(ref)
        return ref

    replaced = _replaced(given, note, DEPTH, json_form=json_form)
    return (replaced, tuple(found)) if found else (arguments, ())


def _is_plain(given: object) -> bool:
    """Whether there is nowhere to look for references: no mapping, or no value that holds more."""
    if type(given) is not dict and not isinstance(given, Mapping):
        return True
    for one in given.values():  # noqa: SIM110 - a generator costs more than all the rest
        if type(one) not in _PLAIN:
            return False
    return True


def filled(arguments: object, value_of: Callable[[Ref], Any]) -> Any:
    """The arguments with each reference replaced by its value."""
    return _replaced(arguments, value_of, DEPTH, json_form=False)


def _replaced(value: object, replace: Callable[[Ref], Any], depth: int, *, json_form: bool) -> Any:
    if isinstance(value, Ref):
        return replace(value)
    if not depth:
        return value
    if isinstance(value, Mapping):
        if json_form and _is_ref(value):
            path = value.get("path", ())
            return replace(Ref(value[MARK], path if isinstance(path, str) else tuple(path)))
        return {
            key: _replaced(item, replace, depth - 1, json_form=json_form)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        items: Iterable[Any] = (
            _replaced(item, replace, depth - 1, json_form=json_form) for item in value
        )
        return list(items)
    return value


def _is_ref(value: Mapping[Any, Any]) -> bool:
    path = value.get("path", "")
    return (
        isinstance(value.get(MARK), str)
        and value.keys() <= {MARK, "path"}
        and isinstance(path, str | list | tuple)
        and (isinstance(path, str) or all(isinstance(step, str | int) for step in path))
    )


def _step(value: Any, step: str | int) -> Any:
    if isinstance(value, Mapping):
        return value[step]
    if isinstance(value, list | tuple):
        return value[int(step)]
    plain = to_jsonable_python(value)
    if not isinstance(plain, Mapping | list):
        raise LookupError(safe_str(step))
    return _step(plain, step)
