"""The groups of one turn: which policy judges which calls, and what it said. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatch.core.policy import SATISFIED, BestEffort, Policy, Tally, Verdict

REST = ""
"""The group of the calls that no tag of a policy is on: the turn's own."""


_DEFAULT = BestEffort()


class Group:
    """The calls that one policy judges, and its verdict once there is one."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self.tally = Tally()
        self.atomic = policy.atomic
        """Whether the group's effects stand only if it is satisfied."""
        self.verdict: Verdict | None = None
        self.fault: Exception | None = None

    def count(self, position: int, *, ok: bool) -> None:
        """A call of the group ended."""
        if ok:
            self.tally.ok += 1
        else:
            self.tally.failed += 1
            if self.tally.first_failure is None:
                self.tally.first_failure = position

    def judged(self) -> bool:
        """Ask the policy; whether it has given its verdict just now."""
        if self.verdict is not None:
            return False
        try:
            self.verdict = self.policy.judge(self.tally)
        except Exception as error:  # noqa: BLE001 - a policy may be the host's own
            self.fault = error
        if self.verdict is None and (self.fault or (self.tally.closed and self.tally.over)):
            what = (
                "gave no verdict" if self.fault is None else f"raised {type(self.fault).__name__}"
            )
            self.verdict = Verdict(satisfied=False, reason=f"the policy {what}")
        return self.verdict is not None


class Groups:
    """All groups of a turn by name."""

    def __init__(self, policies: Mapping[str, Policy] | None = None) -> None:
        self.by_name = {REST: Group(REST, _DEFAULT)} if not policies or REST not in policies else {}
        for name, policy in (policies or {}).items():
            self.by_name[name] = Group(name, policy)
        self.atomic = True in [group.atomic for group in self.by_name.values()]

    def __getitem__(self, name: str) -> Group:
        return self.by_name[name]

    def close(self) -> list[Group]:
        """No call will come any more; returns the groups that have a verdict because of it.

        A tag's group without calls has nothing to judge, and is satisfied.
        """
        judged = []
        for group in self.by_name.values():
            group.tally.closed = True
            if not group.tally.calls and group.name != REST:
                group.verdict = SATISFIED
            elif group.judged():
                judged.append(group)
        return judged

    def verdict(self) -> Verdict:
        """That of the whole turn: satisfied if every group is."""
        several = len(self.by_name) > 1
        for group in self.by_name.values():
            verdict = group.verdict
            if verdict is not None and not verdict.satisfied:
                where = f"{group.name}: " if several and group.name != REST else ""
                return Verdict(satisfied=False, reason=f"{where}{verdict.reason}")
        return SATISFIED

    def dump(self) -> list[Any]:
        """The tallies and verdicts as JSON types."""
        return [
            [
                group.name,
                [getattr(group.tally, name) for name in Tally.__slots__],
                group.verdict and [group.verdict.satisfied, group.verdict.reason],
            ]
            for group in self.by_name.values()
        ]

    def restore(self, state: list[Any]) -> None:
        """Take over what `dump` described."""
        for name, tally, verdict in state:
            self.by_name[name].tally = Tally(*tally)
            self.by_name[name].verdict = verdict and Verdict(*verdict)
