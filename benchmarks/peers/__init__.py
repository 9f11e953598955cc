"""Who runs the workloads: one file each, through the peer's own public interface.

Every peer gets the best declaration that it offers: what it has a word for (read-only tools,
resources, limits, order) is said to it; what it has no word for is named in `lacks` and stands in
the table. A file imports its package only when the peer is made, so that a missing one costs that
peer's column and nothing else. What the files share is in `declaring`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from benchmarks.recording import Answers, Recording
from benchmarks.work import Workload


class Peer(Protocol):
    """One way to run a workload."""

    @property
    def name(self) -> str:
        """As the table shows it."""

    @property
    def distribution(self) -> str | None:
        """The package whose version is printed."""

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """What of this workload the peer has no word for: "limits", "order", "arrivals", …"""

    def ready(
        self, recording: Recording
    ) -> AbstractAsyncContextManager[Callable[[], Awaitable[Answers]]]:
        """Make tools and messages; what the context gives runs all turns, and only that is timed.

        The recording's clock starts when it is called. Each turn's calls are handed over when the
        last of them has arrived (`recording.message`), unless the peer takes them one by one.
        """
