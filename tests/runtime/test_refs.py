"""`Ref`: arguments that are values of other calls, and what their lateness holds back."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dispatch import Dispatcher, FailureKind, Phase, Ref, Status, Tool, ToolCall, TurnResult, tool
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import WAYS, Stage, call, causes, kinds, played
from tests.timeline import SCHEDULES

INVALID, SKIPPED = FailureKind.INVALID_ARGUMENTS, FailureKind.SKIPPED
VALUE = {"items": [{"name": "tea", "size": [3, 4]}, "cup"], "a.b": 1, "7": "seven"}

ways = pytest.mark.parametrize("way", WAYS)
schedules = pytest.mark.parametrize("schedule", SCHEDULES)


def made(value: object = VALUE, **keywords: Any) -> ToolCall:
    """The call `made`, which returns this value after a second."""
    return call("made", value=value, **keywords)


@ways
@schedules
def test_a_ref_takes_what_another_call_returned(schedule: str, way: str) -> None:
    """Also where the other call stands behind it; it starts when that one has settled."""
    stage = Stage()
    turn = [call("b", value=Ref("made")), made(), call("c", value=Ref("b", "items.1"))]
    result = played(stage, turn, schedule=schedule, way=way)
    assert [VALUE, VALUE, "cup"] == [each.value for each in result]
    assert {"made": (0, 1), "b": (1, 2), "c": (2, 3)} == stage.spans


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        (Ref("made"), VALUE),
        (Ref("made", ""), VALUE),
        (Ref("made", "items"), VALUE["items"]),
        (Ref("made", "items.0.name"), "tea"),
        (Ref("made", ("items", 0, "size", 1)), 4),
        (Ref("made", ["items", "1"]), "cup"),
        (Ref("made", ("a.b",)), 1),
        (Ref("made", "7"), "seven"),
    ],
    ids=str,
)
def test_a_path_leads_into_the_value(ref: Ref, expected: object) -> None:
    """Dotted, or as keys and indexes; the JSON form with `refs=True` means the same."""
    assert expected == played(Stage(), [made(), call("b", value=ref)])[1].value
    form = {"$ref": "made", "path": ref.path}
    assert expected == played(Stage(), [made(), call("b", value=form)], refs=True)[1].value


@pytest.mark.parametrize("as_text", [False, True], ids=["mapping", "text"])
def test_refs_may_be_anywhere_in_the_arguments(as_text: bool) -> None:
    """Several, of several calls, in lists and objects in each other; the rest is as it was."""
    given = {
        "mark": "c",
        "seconds": {"$ref": "two"},
        "value": {"all": [{"$ref": "made"}, {"x": [{"$ref": "made", "path": "7"}]}], "$": "$ref"},
    }
    both = ToolCall("c", "free", json.dumps(given) if as_text else given)
    result = played(Stage(), [made(), call("two", value=2), both], refs=True)
    assert {"all": [VALUE, {"x": ["seven"]}], "$": "$ref"} == result[2].value
    assert 3.0 == result[2].finished_at


def test_without_refs_the_json_form_is_plain_data() -> None:
    """A model that may not refer to other calls cannot, and a schema with `$ref` stays one."""
    form = {"$ref": "made", "path": "items"}
    stage = Stage()
    result = played(stage, [made(), call("b", value=form)])
    assert form == result[1].value
    assert 0.0 == stage.began("b")


def test_without_refs_only_ref_objects_are_filled_in() -> None:
    """The host's own `Ref` works; the JSON form beside it is the model's data."""
    form = {"$ref": "made", "path": "7"}
    assert ["seven", form] == played(Stage(), [made(), call("b", value=[Ref("made", "7"), form])])[
        1
    ].value


@pytest.mark.parametrize(
    "form",
    [
        {"$ref": 5},
        {"$ref": None, "path": "x"},
        {"$ref": "made", "path": 5},
        {"$ref": "made", "path": [None]},
        {"$ref": "made", "more": 1},
        {"$REF": "made"},
    ],
    ids=str,
)
def test_what_only_looks_like_a_ref_is_plain_data(form: dict[str, object]) -> None:
    """An object with other members, or with an id or path of the wrong type, is left alone."""
    assert form == played(Stage(), [made(), call("b", value=form)], refs=True)[1].value


def test_a_value_that_looks_like_a_ref_is_not_looked_at_again() -> None:
    """What a tool returns cannot make the dispatcher hand out another call's value."""
    trap = {"$ref": "secret"}

    @tool(safe_parallel=True)
    async def browse() -> dict[str, Any]:
        return {"page": trap}

    turn = [
        call("secret", value="password"),
        ToolCall("page", "browse", {}),
        call("b", value={"$ref": "page"}),
    ]
    assert {"page": trap} == dispatched([*Stage().tools, browse], turn, refs=True)[2].value


def dispatched(tools: list[Tool], turn: list[ToolCall], **options: Any) -> TurnResult:
    """The turn in virtual time."""

    async def main() -> TurnResult:
        return await Dispatcher(tools, **options).run(turn)

    return run_in_virtual_time(main())


@pytest.mark.parametrize(
    "path", ["nothing", "items.2", "items.x", "items.0.name.0", "7.0", "items.", ".", "items.0.7"]
)
def test_a_path_that_leads_nowhere_is_invalid_arguments(path: str) -> None:
    """The tool never runs on a guess; the message names the call, the path and the step."""
    stage = Stage()
    result = played(stage, [made(), call("b", value=Ref("made", path))])
    assert [None, INVALID] == kinds(result)
    assert f"the value of call 'made' has no {path!r}" in result[1].content()
    assert ["made"] == stage.marks


def test_the_value_is_validated_like_any_argument() -> None:
    """A number is wanted and a text was returned: the call is refused."""
    stage = Stage()
    result = played(stage, [made("long"), call("b", seconds=Ref("made"))])
    assert [None, INVALID] == kinds(result)
    assert "seconds: " in result[1].content()
    assert ["made"] == stage.marks


@ways
@schedules
@pytest.mark.parametrize("dependents", ["run", "skip"])
def test_a_ref_to_a_failure_is_skipped_whatever_the_setting(
    dependents: str, way: str, schedule: str
) -> None:
    """And so on: every skip names the first failure."""
    turn = [
        call("a", fails=True),
        call("b", value=Ref("a")),
        call("c", value=[Ref("b"), Ref("d")]),
        call("d"),
    ]
    result = played(Stage(), turn, schedule=schedule, way=way, dependents=dependents)
    assert [FailureKind.TOOL_ERROR, SKIPPED, SKIPPED, None] == kinds(result)
    assert [None, 0, 0, None] == causes(result)
    assert "[skipped] never started: free (call 0) failed" == result[2].content()


@schedules
def test_a_ref_to_a_repeated_id_is_refused(schedule: str) -> None:
    """Which of the two values is meant cannot be told, so none is taken."""
    turn = [call("one", call_id="x"), call("two", call_id="x"), call("b", value=Ref("x"))]
    result = played(Stage(), turn, schedule=schedule)
    assert [None, None, INVALID] == kinds(result)
    assert "several calls have the id 'x'; take the value of one" in result[2].content()


@ways
@schedules
def test_cycles_and_missing_ids_fail_as_dependencies(schedule: str, way: str) -> None:
    """`Ref`s form cycles with each other and with `after`; the rest of the turn runs."""
    stage = Stage()
    turn = [
        call("a", value=Ref("b")),
        call("b", after=("a",)),
        call("self", value=Ref("self")),
        call("lost", value=Ref("nowhere")),
        call("free"),
    ]
    result = played(stage, turn, schedule=schedule, way=way)
    assert [FailureKind.DEPENDENCY] * 4 + [None] == kinds(result)
    assert ["free"] == stage.marks


def test_a_call_may_refer_to_the_same_call_in_arguments_and_after() -> None:
    """Said twice, it is still one order."""
    turn = [made(), call("b", value=Ref("made", "7"), after=("made",))]
    assert ["seven", "seven"] == [
        played(Stage(), turn)[1].value,
        played(Stage(), turn, dependents="skip")[1].value,
    ]


@ways
def test_a_late_claim_holds_back_only_what_claims_something(way: str) -> None:
    """`late` writes a key that is not known before 1. Who claims anything and stands behind it
    waits until the claims are known, and not until it has run; who claims nothing does not wait."""
    stage = Stage()
    turn = [
        made("k"),
        call("before", "change", key="k2"),
        call("late", "change", key=Ref("made"), seconds=5.0),
        call("free"),
        call("elsewhere", "change", key="other"),
        call("same", "look", key="k"),
    ]
    result = played(stage, turn, way=way)
    begins = {mark: began for mark, (began, _) in stage.spans.items()}
    assert {"made": 0, "before": 0, "free": 0, "late": 1, "elsewhere": 1, "same": 6} == begins
    assert [{}, {}, {"order": 1.0}, {}, {"order": 1.0}, {"order": 6.0}] == [
        each.waits for each in result
    ]


@schedules
def test_a_late_call_keeps_its_place_in_the_order_of_its_key(schedule: str) -> None:
    """Its key turns out to be that of the calls around it: still in the order of the model."""
    stage = Stage()
    turn = [
        call("first", "change", key="k"),
        made("k"),
        call("late", "change", key=Ref("made")),
        call("last", "change", key="k"),
    ]
    played(stage, turn, schedule=schedule)
    assert ["first", "late", "last"] == [mark for mark in stage.marks if mark != "made"]


def test_a_late_call_that_ends_early_holds_nobody_back() -> None:
    """It times out while the value it needs is being made; who stood behind it goes on then."""
    stage = Stage()
    turn = [
        made("k", seconds=9.0),
        call("late", "change", key=Ref("made"), timeout=2),
        call("behind", "change", key="other"),
    ]
    result = played(stage, turn)
    assert Status.TIMED_OUT == result[1].status
    assert Phase.ORDER == (result[1].failure and result[1].failure.phase)
    assert 2.0 == stage.began("behind")


def test_a_ref_works_in_a_stream_after_the_other_call_has_long_ended() -> None:
    """The value is kept for the length of the turn."""
    stage = Stage()

    async def main() -> None:
        async with Dispatcher(stage.tools).turn() as turn:
            turn.submit(made())
            await asyncio.sleep(7)
            turn.submit(call("b", value=Ref("made", "7")))
            result = await turn.finish()
        assert "seven" == result[1].value

    run_in_virtual_time(main())
    assert 7.0 == stage.began("b")


def test_the_file_that_a_ref_names_is_claimed() -> None:
    """Two calls that are given one path in two spellings, one by a `Ref`, exclude each other."""
    running: list[str] = []

    @tool(safe_parallel=True)
    async def find() -> str:
        return "./src/../a.py"

    @tool(writes="file:{path}")
    async def edit(path: str) -> None:
        assert [] == running
        running.append(path)
        await asyncio.sleep(1)
        running.remove(path)

    turn = [
        ToolCall("f", "find", {}),
        ToolCall("1", "edit", {"path": Ref("f")}),
        ToolCall("2", "edit", {"path": "a.py"}),
    ]
    assert [True] * 3 == [each.ok for each in dispatched([find, edit], turn)]


def test_the_plan_shows_what_is_not_known_yet() -> None:
    """A call with a `Ref` stands behind what it names, and the plan says what it may hold back."""
    plan = Dispatcher(Stage().tools).plan([made(), call("b", "change", key=Ref("made"))])
    assert ((0,), (1,)) == plan.groups
    assert "what it touches is known only later" in plan.warnings[0]


CALLERS: dict[str, Callable[[dict[str, Any]], Any]] = {"mapping": dict, "text": json.dumps}


@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS.keys())
def test_the_call_in_the_result_is_the_models_own(caller: Callable[[dict[str, Any]], Any]) -> None:
    """The reference is filled in for the tool alone: the history shows what the model wrote."""
    given = caller({"mark": "b", "value": {"$ref": "made"}})
    result = played(Stage(), [made(), ToolCall("b", "free", given)], refs=True)
    assert result[1].ok
    assert given is result[1].call.arguments
