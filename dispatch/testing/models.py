"""A model for tests: what it answers depends on where in the conversation it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

Reply = TypeVar("Reply")


class ScriptedModel(Generic[Reply]):
    """Answers the n-th request of a conversation with the n-th reply.

    Which one that is follows from the history: the number of messages in it that an assistant
    wrote. So one model may serve many conversations side by side, and a request that is repeated
    gets the same answer; a counter of requests would hand one conversation's replies to another.
    A reply is whatever the loop under test expects of a model, such as a message.
    """

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = tuple(replies)

    def reply(self, history: Sequence[Mapping[str, object]]) -> Reply:
        """The reply to this history. Raises `AssertionError` where the script has ended."""
        said = sum(message.get("role") in ("assistant", "model") for message in history)
        if said >= len(self.replies):
            raise AssertionError(
                f"the script has {len(self.replies)} replies, and the model was asked for one more:"
                f" the history holds {said} of its messages"
            )
        return self.replies[said]

    async def __call__(self, history: Sequence[Mapping[str, object]]) -> Reply:
        """`reply`, for loops that await their model."""
        return self.reply(history)
