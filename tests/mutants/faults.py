"""The faults that the tests must find: each a rule of the design, read the plain way."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Replace the one occurrence of `line` in `file` by `fault`."""

    name: str
    file: str
    line: str
    fault: str


FAULTS = (
    Fault(
        "drop the edges from reads to a write",
        "core/index.py",
        "            if place.mode != mode or exclusive:",
        "            if place.mode == WRITE:",
    ),
    Fault(
        "skip prefix overlap",
        "core/index.py",
        "waits.append(chain[0] if len(chain) == 1 else self._join(chain))",
        "pass",
    ),
    Fault(
        "tool keys below ()",
        "core/live.py",
        "return self._tools if key[:1] == (TOOL,) else self._root",
        "return self._root",
    ),
    Fault(
        "free successors of a call that ended before running",
        "core/turn.py",
        "        if not self.order.is_free(call.node):\n",
        "        ended = call.status is not None and self.order.linked(call.node)\n"
        "        if not (ended or self.order.is_free(call.node)):\n",
    ),
    Fault(
        "give claims back when the result is there, though the tool still runs",
        "core/turn.py",
        "if call.state is CallState.ENDED and not call.alive and not call.open_turns:",
        "if call.state is CallState.ENDED and not call.open_turns:",
    ),
    Fault(
        "settle a call before what is nested in it is gone",
        "core/turn.py",
        "if call.state is CallState.ENDED and not call.alive and not call.open_turns:",
        "if call.state is CallState.ENDED and not call.alive:",
    ),
    Fault(
        "lend the slots of a suspended call to its children only",
        "core/turn.py",
        "            call.state = CallState.SUSPENDED\n            self._do(Do.FREE, call)",
        "            call.state = CallState.SUSPENDED",
    ),
    Fault(
        "free the claims of an all-or-nothing call early",
        "core/turn.py",
        "Do.HOLD if undecided and held else Do.SETTLE",
        "Do.SETTLE",
    ),
    Fault(
        "start the calls of an all-or-nothing turn before its ticket is granted",
        "core/books.py",
        "return self.ticket in (TicketState.NONE, TicketState.GRANTED)",
        "return True",
    ),
    Fault(
        "nested call takes a fresh ticket",
        "core/waits.py",
        "        if not self.owners.nested(ticket.owner):\n",
        "        if self.owners:\n",
    ),
    Fault(
        "claims of ancestors count",
        "core/waits.py",
        "return self.owners.descends(ticket.owner, self.tickets[other].owner)",
        "return False",
    ),
    Fault(
        "passing looked at only when the call itself blocks",
        "core/table.py",
        "            self._look_again()\n            self._break_deadlocks(ticket.number)",
        "            self._look_at(ticket)\n            self._break_deadlocks(ticket.number)",
    ),
    Fault(
        "cycles searched along one watched blocker",
        "core/waits.py",
        "owners = dict.fromkeys(map(self._owner, self.holders(self.tickets[number])))",
        "owners = dict.fromkeys([self._owner(self.tickets[number].watching)])",
    ),
    Fault(
        "the oldest root loses a deadlock",
        "core/waits.py",
        "victim = max(back,",
        "victim = min(back,",
    ),
    Fault(
        "wait behind those that wait in vain",
        "core/waits.py",
        "if other not in self.stuck and not self._above(ticket, other):",
        "if not self._above(ticket, other):",
    ),
    Fault(
        "a call whose claims are not known holds back nobody",
        "core/intake.py",
        "                held_back = True\n",
        "                held_back = False\n",
    ),
    Fault(
        "coalesce across a conflicting call",
        "core/intake.py",
        "return not self.graph.index.touched_since(claims, leader.node)",
        "return True",
    ),
    Fault(
        "a failure counts for the quorum",
        "core/turn.py",
        "group.count(call.position, ok=call.status is Status.OK)",
        "group.count(call.position, ok=True)",
    ),
    Fault(
        "a call is passed without end",
        "core/lines.py",
        "OVERTAKES = 8\n",
        "OVERTAKES = 8_000_000\n",
    ),
    Fault(
        "append results by completion",
        "runtime/turn.py",
        "tuple(result for _, result in sorted(results.items()))",
        "tuple(results.values())",
    ),
    Fault(
        "a plain call goes straight past one whose claims are not known",
        "core/intake.py",
        "            not self._line\n            and not self._arrivals.parked\n",
        "            not self._arrivals.parked\n",
    ),
    Fault(
        "a plain call goes straight though a policy has ended its group",
        "core/intake.py",
        "            and group.verdict is None\n",
        "",
    ),
    Fault(
        "a plain call goes straight before the turn's ticket is granted",
        "core/intake.py",
        "            and self.ticket is TicketState.NONE\n",
        "",
    ),
    Fault(
        "a plain call goes straight behind one that was given up",
        "core/intake.py",
        "            and not self.order.doomed\n            and not self.order.failed\n",
        "",
    ),
    Fault(
        "a plain call goes straight though its predecessors run",
        "core/order.py",
        "        return node, not left\n",
        "        return node, True\n",
    ),
    Fault(
        "the longest chain is not told of once the turn is closed",
        "core/books.py",
        "            if changed and call.position not in asked:",
        "            if changed and call.position in asked:",
    ),
    Fault(
        "a turn's longest chain goes first though its limit is full",
        "core/lines.py",
        "for line in self._by_turn[first.turn] if has_room(line.slots)]",
        "for line in self._by_turn[first.turn]]",
    ),
    Fault(
        "a success that was in flight at a rate-limit signal raises the limit",
        "core/adaptive.py",
        " or start <= self.lowered_at:",
        ":",
    ),
    Fault(
        "a rate-limit signal lowers nothing",
        "core/adaptive.py",
        "        self.limit = max(self.bounds.min, min(self.limit, used - 1))\n",
        "",
    ),
)
