"""What the wires of Gemini and Bedrock refuse, as their SDKs say it, and what they take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.providers import Call, Step
from tests.providers.clients import answered, refused
from tests.providers.script import JSON

SCRIPT = [Step(calls=(Call("ls", {}, signature=b"\xfb\xff"), Call("ls", {}))), Step("Done.")]
LONG = "x" * 65
PNG = "iVBORw0KGgo="

SAY = {"role": "user", "parts": [{"text": "Go."}]}
SIGNED = {"functionCall": {"name": "ls", "args": {}}, "thoughtSignature": "-_8="}


def model(*parts: Any) -> JSON:
    return {"role": "model", "parts": list(parts)}


def user(*parts: Any) -> JSON:
    return {"role": "user", "parts": list(parts)}


def fcall(name: str = "ls", **more: Any) -> JSON:
    return {"functionCall": {"name": name, "args": {}, **more}}


def fanswer(name: str = "ls", **more: Any) -> JSON:
    return {"functionResponse": {"name": name, "response": {"output": "x"}, **more}}


UNEQUAL = "number of function response parts is equal to the number of function call parts"


@pytest.mark.parametrize(
    ("contents", "fault"),
    [
        ([SAY, model(SIGNED)], UNEQUAL),
        ([SAY, model(SIGNED, fcall()), user(fanswer())], UNEQUAL),
        ([SAY, model(SIGNED), user(fanswer(), fanswer())], UNEQUAL),
        ([SAY, model(SIGNED), SAY], UNEQUAL),
        ([SAY, user(fanswer())], "comes immediately after a function call turn"),
        ([model(SIGNED), user(fanswer())], "after a user turn or after a function response turn"),
        ([SAY, model(SIGNED), user(fanswer("rm"))], "stands where 'ls' (id None) was called"),
        (
            [SAY, model(SIGNED, fcall("rm")), user(fanswer("rm"), fanswer())],
            "stands where 'ls' (id None) was called",
        ),
        (
            [SAY, model({**SIGNED, **fcall(id="a")}), user(fanswer(id="b"))],
            "(id 'b') stands where 'ls' (id 'a')",
        ),
        ([SAY, model({**SIGNED, **fcall(id="a")}), user(fanswer())], "(id None) stands where"),
        ([SAY, model(SIGNED), user({"text": "x"}, fanswer())], "must come before other parts"),
        ([SAY, model(fcall()), user(fanswer())], "missing a thought_signature"),
        (
            [SAY, model(fcall(), {**fcall(), "thoughtSignature": "-_8="}), user(*[fanswer()] * 2)],
            "missing a thought_signature",
        ),
        (
            [SAY, model({**SIGNED, "thoughtSignature": "AAAA"}), user(fanswer())],
            "Thought signature is not valid",
        ),
        ([SAY, {"role": "assistant", "parts": [{"text": "x"}]}], "Please use a valid role"),
        ([SAY, model()], "parts must not be empty"),
        ([SAY, user(fcall())], "Function parts of the other side"),
    ],
    ids=[
        "no-reply", "one-unanswered", "one-too-many", "text-instead", "no-call", "call-first",
        "other-name", "other-order", "other-id", "no-id", "text-first", "no-signature",
        "signature-moved", "signature-changed", "role", "no-parts", "call-of-user",
    ],
)  # fmt: skip
def test_gemini_refuses(contents: list[Any], fault: str) -> None:
    """Function responses that do not mirror the calls are a 400 in the provider's form."""
    status, text = refused("gemini", SCRIPT, contents)
    assert (400, True) == (status, fault in text), text


def test_gemini_takes_what_it_gave() -> None:
    """The model's content goes back as it is, and answers stand in its order."""
    content = answered("gemini", SCRIPT, [SAY])["candidates"][0]["content"]
    assert "-_8=" == content["parts"][0]["thoughtSignature"]
    last = answered("gemini", SCRIPT, [SAY, content, user(fanswer(), fanswer(), {"text": "Well?"})])
    assert "Done." == last["candidates"][0]["content"]["parts"][0]["text"]


# Bedrock

TOLD = {"role": "user", "content": [{"text": "Go."}]}


def use(use_id: str, **more: Any) -> JSON:
    return {"toolUse": {"toolUseId": use_id, "name": "ls", "input": {}, **more}}


def result(use_id: str, **more: Any) -> JSON:
    return {"toolResult": {"toolUseId": use_id, "content": [{"text": "x"}], **more}}


def says(*blocks: Any) -> JSON:
    return {"role": "assistant", "content": list(blocks)}


def replies(*blocks: Any) -> JSON:
    return {"role": "user", "content": list(blocks)}


EXPECTED = "Expected toolResult blocks at messages.2.content for the following Ids: "


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([says(use("a"))], "must start with a user message"),
        ([TOLD, TOLD], "roles must alternate"),
        ([TOLD, says()], "is empty"),
        ([TOLD, says({"text": " "})], "The text field in the ContentBlock object"),
        ([TOLD, says(use("a"))], f"{EXPECTED}a"),
        ([TOLD, says(use("a"), use("b")), replies(result("a"))], f"{EXPECTED}b"),
        ([TOLD, says(use("a")), replies(result("b"))], f"{EXPECTED}a"),
        ([TOLD, replies(result("a"))], "roles must alternate"),
        ([replies(result("a"))], "exceeds the number of toolUse blocks of previous turn"),
        (
            [TOLD, says(use("a")), replies(result("a"), result("b"))],
            "exceeds the number of toolUse blocks of previous turn",
        ),
        ([TOLD, says(use("a")), replies(result("a"), result("a"))], "contain duplicate Ids: a"),
        ([TOLD, says(use("a"), use("a"))], "contain duplicate Ids: a"),
        (
            [TOLD, says(use("a")), replies(result("a")), says(use("a")), replies(result("a"))],
            "The toolUse blocks at messages.3.content contain duplicate Ids: a",
        ),
        ([TOLD, says(use("a")), replies({"text": "x"}, result("a"))], "before other content"),
        ([TOLD, says(use("a.b"))], "must satisfy the regular expression"),
        ([TOLD, says(use(LONG))], "must satisfy the regular expression"),
        ([TOLD, says(use("a", input="{}"))], "Provide a json object for the field"),
        (
            [TOLD, says(use("a")), replies(result("a", content=[], status="error"))],
            "cannot be empty when status value is error",
        ),
        ([TOLD, says(use("a")), replies(result("a", content=[{"text": ""}]))], "is blank"),
        ([TOLD, says(result("a"))], "is not for role assistant"),
    ],
    ids=[
        "assistant-first", "twice-user", "no-content", "blank", "no-reply", "one-unanswered",
        "unknown-id", "no-call", "orphan", "one-too-many", "answered-twice", "repeated-id",
        "repeated-later", "text-first", "pattern", "long-id", "raw-input", "empty-error",
        "empty-text", "result-of-assistant",
    ],
)  # fmt: skip
def test_bedrock_refuses(messages: list[Any], fault: str) -> None:
    """A history that does not pair is a 400 in the provider's form."""
    status, text = refused("bedrock", SCRIPT, messages)
    assert (400, True) == (status, fault in text), text


def test_bedrock_takes_what_it_gave() -> None:
    """The message goes back as it is, and results stand in any order in the next one."""
    message = answered("bedrock", SCRIPT, [TOLD])["output"]["message"]
    answers = replies(result("tooluse_0_1", status="error"), result("tooluse_0_0"), {"text": "?"})
    last = answered("bedrock", SCRIPT, [TOLD, message, answers])
    assert [{"text": "Done."}] == last["output"]["message"]["content"]


IMAGES = {
    "gemini": [
        SAY,
        model(SIGNED),
        user(fanswer(parts=[{"inlineData": {"mimeType": "image/png", "data": PNG}}])),
    ],
    "bedrock": [
        TOLD,
        says(use("a")),
        replies(result("a", content=[
            {"json": {"x": 1}}, {"image": {"format": "png", "source": {"bytes": b"png"}}}
        ])),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_results_can_have_images(name: str) -> None:
    """A result may hold an image in the provider's own form."""
    assert "Done." in json.dumps(answered(name, SCRIPT, IMAGES[name]))
