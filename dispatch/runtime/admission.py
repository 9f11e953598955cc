"""From a model's call to something that can be scheduled, or to the reason why not.

Fails closed: an unknown tool or arguments that do not validate are refused and never run; a
descriptor that cannot be trusted makes the call exclusive. Resolving file keys reads the disk,
once per call; nothing else here does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dispatch.arguments import InvalidArguments
from dispatch.call import FailureKind, ToolCall
from dispatch.claims import FILE, Claim, FileKeys, combine, write
from dispatch.core.graph import ConflictGraph
from dispatch.core.plan import Plan
from dispatch.core.schedules import Schedule
from dispatch.errors import NotSupported
from dispatch.render import preview, safe_str
from dispatch.tool import Tool, Toolbox


@dataclass(frozen=True, slots=True)
class Admitted:
    """One call, ready to be ordered; with `refusal` set it ends at once and `tool` may be None."""

    call: ToolCall
    tool: Tool | None = None
    arguments: dict[str, Any] | None = None
    claims: tuple[Claim, ...] = ()
    refusal: FailureKind | None = None
    message: str = ""
    warning: str | None = None
    files: tuple[Claim, ...] = ()
    """The claims as declared, if file keys are among them."""

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
    """What one dispatcher knows to admit calls: its tools and its file keys."""

    def __init__(
        self,
        toolbox: Toolbox,
        files: FileKeys,
        check_modes: Callable[[tuple[Claim, ...]], None] = lambda claims: None,
    ) -> None:
        self.toolbox = toolbox
        self.files = files
        self._check_modes = check_modes

    def check(self, calls: Iterable[ToolCall]) -> None:
        """Raise what a host did wrong: no call, a time limit of 0, `after` (`NotSupported`)."""
        for call in calls:
            _check(call)

    def admit(self, call: ToolCall) -> Admitted:
        """Look up, validate, claim. Raises what `check` does, never for what a model wrote."""
        _check(call)
        if not isinstance(call.name, str) or call.name not in self.toolbox:
            message = self.toolbox.unknown(str(call.name))
            return Admitted(call, refusal=FailureKind.UNKNOWN_TOOL, message=message)
        tool = self.toolbox[call.name]
        try:
            arguments = tool.arguments.parse(call.arguments)
        except InvalidArguments as error:
            kind = FailureKind.INVALID_ARGUMENTS
            return Admitted(call, tool, refusal=kind, message=str(error))
        if tool.fixed is not None:
            return Admitted(call, tool, arguments, tool.fixed)
        declared, warning = tool.claims(arguments)
        claims, problem = self._resolved(tool, declared)
        files = declared if any(claim.key[:1] == (FILE,) for claim in declared) else ()
        return Admitted(call, tool, arguments, claims, warning=warning or problem, files=files)

    def claims_now(self, admitted: Admitted) -> tuple[Claim, ...]:
        """The claims of a call that had to wait, for the table.

        A call before it may have made a link, so that a path leads to another file by now; then
        the old and the new file are claimed together.
        """
        if admitted.tool is None or not admitted.files:
            return admitted.claims
        claims, _ = self._resolved(admitted.tool, admitted.files)
        return (
            admitted.claims if claims == admitted.claims else combine([*admitted.claims, *claims])
        )

    def plan(self, calls: Sequence[ToolCall], schedule: Schedule) -> Plan:
        """The plan of these calls as one whole turn; nothing runs."""
        admitted = [self.admit(call) for call in calls]
        graph = ConflictGraph()
        for one in admitted:
            graph.add(one.claims)
        return self.describe(admitted, graph, schedule)

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


def _check(call: ToolCall) -> None:
    if not isinstance(call, ToolCall):
        raise TypeError(
            f"a turn takes ToolCall objects, not {type(call).__name__};"
            " write ToolCall(id, name, arguments), or read them with an adapter"
        )
    if call.timeout is not None and not call.timeout > 0:
        raise ValueError(f"call {call.id!r}: timeout must be above 0 seconds, not {call.timeout}")
    if call.after:
        raise NotSupported(
            f"call {call.id!r} has after={list(call.after)!r}, which this version does not support;"
            " claims order calls that touch the same thing"
        )
