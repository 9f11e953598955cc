"""From a model's call to something that can be scheduled, or to the reason why not.

Fails closed: an unknown tool or arguments that do not validate are refused and never run; a
descriptor that cannot be trusted makes the call exclusive. Resolving file keys reads the disk,
once per call; nothing else here does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import from_json

from dispatch.arguments import InvalidArguments
from dispatch.call import FailureKind, ToolCall
from dispatch.claims import FILE, Claim, FileKeys, combine, write
from dispatch.core.graph import ConflictGraph
from dispatch.core.plan import Plan
from dispatch.core.schedules import Schedule
from dispatch.core.turn import TurnMachine
from dispatch.refs import Ref, RefError, filled, with_refs
from dispatch.render import preview, safe_str
from dispatch.tool import Tool, Toolbox

CheckModes = Callable[[tuple[Claim, ...]], None]


@dataclass(slots=True, eq=False, repr=False)
class Admitted:
    """One call, ready to be ordered; with `refusal` set it ends at once and `tool` may be None.

    Never changed once it is made; not frozen, which would make it three times as dear.
    """

    call: ToolCall
    tool: Tool | None = None
    arguments: dict[str, Any] | None = None
    claims: tuple[Claim, ...] | None = ()
    """None as long as they cannot be known: a value or a gate's answer is missing."""
    refusal: FailureKind | None = None
    message: str = ""
    warning: str | None = None
    files: tuple[Claim, ...] = ()
    """The claims as declared, if file keys are among them."""
    given: object = None
    """The arguments with `Ref`s in them."""
    refs: tuple[Ref, ...] = ()
    same: str | None = None
    """Equal for identical calls; None if it does not matter."""
    cost: float = 1.0
    """What it takes from each of its rates."""

    @property
    def names(self) -> tuple[str, ...]:
        """The ids of the calls that it waits for."""
        return (*self.call.after, *(ref.call_id for ref in self.refs))

    @property
    def tags(self) -> frozenset[str]:
        """The tags of the call and of its tool."""
        return self.call.tags if self.tool is None else self.call.tags | self.tool.tags

    @property
    def timeout(self) -> float | None:
        """The call's own time limit, or else its tool's."""
        if self.call.timeout is not None or self.tool is None:
            return self.call.timeout
        return self.tool.timeout

    @property
    def repeatable(self) -> bool:
        """Whether running the tool twice is as good as once."""
        tool = self.tool
        return tool is not None and (tool.idempotent or tool.concurrency.read_only)


class Admission:
    """What one dispatcher knows to admit calls: its tools and its file keys.

    `late_claims`: the claims of a call are not known until its gates have answered. `twins`:
    identical calls are to be recognised. `refs`: references in JSON form are understood.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        files: FileKeys,
        check_modes: CheckModes = lambda claims: None,
        *,
        late_claims: bool = False,
        twins: bool = False,
        refs: bool = False,
    ) -> None:
        self.toolbox = toolbox
        self.files = files
        self._check_modes = check_modes
        self._late_claims = late_claims
        self._twins = twins
        self._refs = refs

    def on(self, check_modes: CheckModes) -> Admission:
        """The same, for another table."""
        return Admission(
            self.toolbox,
            self.files,
            check_modes,
            late_claims=self._late_claims,
            twins=self._twins,
            refs=self._refs,
        )

    def for_plans(self) -> Admission:
        """The same, for calls that will not run: gates are not asked, modes not counted."""
        return Admission(self.toolbox, self.files, refs=self._refs)

    def check(self, calls: Iterable[ToolCall]) -> None:
        """Raise what a host did wrong: no call, a time limit of 0."""
        for call in calls:
            checked(call)

    def admit(self, call: ToolCall) -> Admitted:
        """Look up, validate, claim a call that was `checked`. Never raises."""
        tool = self.toolbox.get(call.name) if isinstance(call.name, str) else None
        if tool is None:
            message = self.toolbox.unknown(str(call.name))
            return Admitted(call, refusal=FailureKind.UNKNOWN_TOOL, message=message)
        same = identity(call) if self._twins else None
        given, refs = with_refs(call.arguments, json_form=self._refs)
        if refs:
            return Admitted(call, tool, claims=None, given=given, refs=refs, same=same)
        return self._with_arguments(call, tool, call.arguments, same=same)

    def resolve(self, admitted: Admitted, value_of: Callable[[Ref], Any]) -> Admitted:
        """The call with the values of other calls filled in, or refused for what they are."""
        try:
            arguments = filled(admitted.given, value_of)
        except RefError as error:
            kind = FailureKind.INVALID_ARGUMENTS
            return replace(admitted, refusal=kind, message=str(error))
        return self.changed(admitted, arguments)

    def changed(self, admitted: Admitted, arguments: Mapping[str, Any]) -> Admitted:
        """The call with other arguments, which a gate gave it, or refused for what they are."""
        assert admitted.tool is not None  # noqa: S101 - an unknown tool has been refused
        refs, same = admitted.refs, admitted.same
        return self._with_arguments(admitted.call, admitted.tool, arguments, refs=refs, same=same)

    def claim(self, admitted: Admitted) -> Admitted:
        """A call that the gates let pass, with its claims."""
        assert admitted.tool is not None  # noqa: S101 - it has been asked about
        refs, same = admitted.refs, admitted.same
        arguments = admitted.arguments or {}
        return self._with_claims(admitted.call, admitted.tool, arguments, refs=refs, same=same)

    def _with_arguments(
        self,
        call: ToolCall,
        tool: Tool,
        arguments: object,
        *,
        refs: tuple[Ref, ...] = (),
        same: str | None = None,
    ) -> Admitted:
        try:
            parsed = tool.arguments.parse(arguments)
        except InvalidArguments as error:
            kind = FailureKind.INVALID_ARGUMENTS
            return Admitted(call, tool, refusal=kind, message=str(error), refs=refs, same=same)
        if self._late_claims:
            return Admitted(call, tool, parsed, None, refs=refs, same=same)
        if tool.fixed is not None:
            return Admitted(call, tool, parsed, tool.fixed, refs=refs, same=same)
        return self._with_claims(call, tool, parsed, refs=refs, same=same)

    def _with_claims(
        self,
        call: ToolCall,
        tool: Tool,
        arguments: dict[str, Any],
        *,
        refs: tuple[Ref, ...],
        same: str | None,
    ) -> Admitted:
        if tool.fixed is not None:
            return Admitted(call, tool, arguments, tool.fixed, refs=refs, same=same)
        declared, warning = tool.claims(arguments)
        claims, problem = self._resolved(tool, declared)
        files = declared if any(claim.key[:1] == (FILE,) for claim in declared) else ()
        return Admitted(
            call,
            tool,
            arguments,
            claims,
            warning=warning or problem,
            files=files,
            refs=refs,
            same=same,
        )

    def claims_now(self, admitted: Admitted) -> tuple[Claim, ...]:
        """The claims of a call that had to wait, for the table.

        A call before it may have made a link, so that a path leads to another file by now; then
        the old and the new file are claimed together.
        """
        known = admitted.claims or ()
        if admitted.tool is None or not admitted.files:
            return known
        claims, _ = self._resolved(admitted.tool, admitted.files)
        return known if set(claims) <= set(known) else combine([*known, *claims])

    def plan(self, calls: Sequence[ToolCall], schedule: Schedule) -> Plan:
        """The plan of these calls as one whole turn; nothing runs."""
        admitted = [self.admit(checked(call)) for call in calls]
        machine = TurnMachine(schedule)
        for one in admitted:
            # What a late call touches is not known: here it stands behind what it names, alone.
            claims = () if one.claims is None else one.claims
            machine.submit(claims, one.refusal, call_id=one.call.id, names=one.names)
        machine.close()
        admitted = [
            replace(one, warning=_LATE.format(one.call.name)) if one.claims is None else one
            for one in admitted
        ]
        for position, call in enumerate(machine.calls):
            if call.kind is FailureKind.DEPENDENCY:
                admitted[position] = replace(
                    admitted[position], refusal=call.kind, message=call.note
                )
        return self.describe(admitted, machine.graph, schedule)

    def describe(
        self, admitted: Sequence[Admitted], graph: ConflictGraph, schedule: Schedule
    ) -> Plan:
        """The plan of calls that have been admitted, over the graph of their claims."""
        tools = [one.tool for one in admitted if one.tool is not None and one.refusal is None]
        undeclared = [tool.name for tool in tools if tool.concurrency.undeclared]
        return Plan(
            [one.call for one in admitted],
            graph,
            schedule=schedule,
            shown=self.files.shown,
            undeclared=dict.fromkeys(undeclared),
            warnings=[one.warning for one in admitted if one.warning],
            refused={i: one.message for i, one in enumerate(admitted) if one.refusal},
            tags=[one.tags for one in admitted],
        )

    def _resolved(
        self, tool: Tool, declared: tuple[Claim, ...]
    ) -> tuple[tuple[Claim, ...], str | None]:
        try:
            claims = self.files.resolve(declared)
            self._check_modes(claims)
        except (OSError, ValueError) as error:
            reason = f"{type(error).__name__}: {preview(safe_str(error))}"
            warning = f"{tool.name}: its claims could not be told ({reason}), so it ran alone"
            return combine([write(), *tool.added]), warning
        return claims, None


_LATE = (
    "{}: what it touches is known only later, and what then claims anything and stands behind it"
    " waits for that"
)


def checked(call: ToolCall) -> ToolCall:
    """The call. Raises `TypeError` or `ValueError` for what a host did wrong in it."""
    if not isinstance(call, ToolCall):
        raise TypeError(
            f"a turn takes ToolCall objects, not {type(call).__name__};"
            " write ToolCall(id, name, arguments), or read them with an adapter"
        )
    if type(call.id) is not str and not isinstance(call.id, Hashable):
        raise TypeError(f"a call's id is a string, not {call.id!r}")
    for what in ("after", "tags") if call.after or call.tags else ():
        odd = next((one for one in getattr(call, what) if not isinstance(one, str)), None)
        if odd is not None or None in getattr(call, what):
            raise TypeError(f"call {call.id!r}: {what} takes strings, not {odd!r}")
    if call.timeout is not None and not call.timeout > 0:
        raise ValueError(f"call {call.id!r}: timeout must be above 0 seconds, not {call.timeout}")
    return call


def identity(call: ToolCall) -> str | None:
    """Equal for calls of equal name, arguments, tags and `after`; None if it cannot be told."""
    try:
        arguments = call.arguments
        given = from_json(arguments) if isinstance(arguments, str) else dict(arguments)
        told = [call.name, given, sorted(call.tags), call.after]
        return json.dumps(told, sort_keys=True, default=_plain_ref)
    except (TypeError, ValueError, RecursionError):
        return None


def _plain_ref(value: object) -> Any:
    if isinstance(value, Ref):
        return {"$ref": value.call_id, "path": value.steps}
    raise TypeError(f"{type(value).__name__} cannot be compared")
