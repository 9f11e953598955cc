"""References in arguments: found in either form, filled in, and never mistaken for anything."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.refs import DEPTH, Ref, RefError, filled, with_refs

steps = st.one_of(st.text(max_size=3), st.integers(-2, 2))
refs = st.builds(Ref, st.text(max_size=3), st.one_of(st.text(max_size=5), st.tuples(steps, steps)))
names = st.text(max_size=3).filter(lambda name: name != "$ref")
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3))
trees = st.recursive(
    st.one_of(plain, refs),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=8,
)
arguments = st.dictionaries(names, trees, max_size=4)


def in_json_form(value: Any) -> Any:
    if isinstance(value, Ref):
        path = value.path if isinstance(value.path, str) else list(value.path)
        return {"$ref": value.call_id, "path": path} if path else {"$ref": value.call_id}
    if isinstance(value, Mapping):
        return {key: in_json_form(item) for key, item in value.items()}
    return [in_json_form(item) for item in value] if isinstance(value, list) else value


def told(found: tuple[Ref, ...]) -> list[tuple[str, tuple[str | int, ...]]]:
    return [(ref.call_id, ref.steps) for ref in found]


@given(arguments)
def test_both_forms_say_the_same(given: dict[str, Any]) -> None:
    """Objects, JSON objects and JSON text: the same references in the same order."""
    _, found = with_refs(given, json_form=False)
    form = in_json_form(given)
    assert told(found) == told(with_refs(form, json_form=True)[1])
    assert told(found) == told(with_refs(json.dumps(form), json_form=True)[1])


@given(arguments)
def test_filling_in_replaces_references_and_nothing_else(given: dict[str, Any]) -> None:
    """Each becomes the value that was asked for; what it becomes is not looked at again."""
    replaced, _ = with_refs(given, json_form=False)
    assert given == filled(replaced, lambda ref: ref)
    marks = filled(replaced, lambda ref: ["value", Ref("inner")])
    assert len(with_refs(given, json_form=False)[1]) == len(with_refs(marks, json_form=False)[1])


@given(arguments)
def test_without_the_json_form_json_is_left_alone(given: dict[str, Any]) -> None:
    """The very object comes back."""
    form = in_json_form(given)
    assert (form, ()) == with_refs(form, json_form=False)
    assert with_refs(form, json_form=False)[0] is form


@pytest.mark.parametrize(
    "odd",
    [None, 5, ["$ref"], '{"$ref"', '"$ref"', '["$ref"]', "$ref", '{"a": "$ref"}', b'{"$ref": "a"}'],
    ids=str,
)
def test_what_is_no_object_with_a_reference_is_left_for_validation(odd: object) -> None:
    """Broken JSON, other types, and texts in which the mark stands by chance."""
    assert (odd, ()) == with_refs(odd, json_form=True)


def test_arguments_deeper_than_the_bound_are_taken_as_they_are() -> None:
    """No recursion error, however deep a model nests; a reference above the bound is found."""
    deep: Any = {"$ref": "deep"}
    for _ in range(10_000):
        deep = [deep]
    _, found = with_refs({"a": deep, "b": {"$ref": "b"}}, json_form=True)
    assert [Ref("b")] == list(found)
    shallow: Any = {"$ref": "a"}
    for _ in range(DEPTH - 2):
        shallow = [shallow]
    assert 1 == len(with_refs({"a": shallow}, json_form=True)[1])


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("", 5, 5),
        ("a", {"a": 1}, 1),
        ("a.b", {"a": {"b": 2}}, 2),
        (("a.b",), {"a.b": 3}, 3),
        ("0", [4], 4),
        ((1, 0), [[], (5,)], 5),
        (("1",), {"1": 6}, 6),
        ((1,), {1: 7}, 7),
        ("-1", [1, 8], 8),
        ("", None, None),
    ],
)
def test_a_path_takes_keys_and_indexes(path: Any, value: object, expected: object) -> None:
    """One step after the other; an empty path is the whole value."""
    assert expected == Ref("a", path).value(value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", {}),
        ("a", [1]),
        ("1", [1]),
        ("1", {1: 2}),
        ("real", 5),
        ("0", "text"),
        ("a", None),
        pytest.param("a", object(), id="a-object"),
        ("__class__", {}),
        ("a..b", {"a": {"b": 1}}),
    ],
    ids=str,
)
def test_a_path_that_leads_nowhere_says_so(path: str, value: object) -> None:
    """With the call's id, the whole path, and the step that failed."""
    with pytest.raises(RefError, match=f"the value of call 'a' has no '{path}': nothing at "):
        Ref("a", path).value(value)


def test_a_value_that_cannot_be_shown_leads_nowhere() -> None:
    """Whatever the foreign object raises while it is looked at, it is the reference's error."""

    class Hostile:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("no")

    with pytest.raises(RefError):
        Ref("a", "x").value(Hostile())
