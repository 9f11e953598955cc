"""What a turn is run with: everything that its dispatcher, its host and its tools have decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispatch.core.books import Duplicates
from dispatch.core.durations import Durations
from dispatch.core.policy import Policy
from dispatch.core.requests import Need
from dispatch.core.schedules import Schedule
from dispatch.runtime.admission import Admission
from dispatch.runtime.broadcast import Broadcast
from dispatch.runtime.gates import Gates
from dispatch.runtime.limits import Limits
from dispatch.runtime.middleware import Handler
from dispatch.runtime.nesting import Scope
from dispatch.runtime.options import TurnOptions
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.threads import WorkerPool
from dispatch.runtime.totals import Totals
from dispatch.tool import Tool

if TYPE_CHECKING:
    from dispatch.runtime.resuming import Answers
    from dispatch.runtime.turn import Turn


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class TurnSettings:
    """Times in seconds; None means no limit. Turns without options of their own share one.

    `policies` are by group name, the turn's own under the empty name. `own_table` says that the
    table was not chosen by the host, so that a nested turn takes that of its parent. Never changed
    once they are made.
    """

    schedule: Schedule
    policies: Mapping[str, Policy]
    timeout: float | None
    call_timeout: float | None
    grace: float
    abandoned_wait: float
    max_depth: int
    duplicates: Duplicates
    skips: bool
    admission: Admission
    gates: Gates
    middleware: Handler | None
    table: ResourceTable
    own_table: bool
    limits: Limits
    pool: WorkerPool
    tell: Broadcast
    totals: Totals
    durations: Durations | None
    needs: dict[Tool | None, Need]
    """What calls of each tool count against that have no tags or state of their own."""
    answers: Answers | None
    make_turn: Callable[[TurnOptions, Scope | None], Turn]
