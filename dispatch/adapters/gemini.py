"""Google's Gemini API: `functionCall` parts in, one content of `functionResponse` parts out.

Calls mostly come without ids; then the responses match them by their order and names, so that no id
is sent that the model did not give. Reads the wire's names and those of the SDK's objects.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence, Set
from typing import Any

from dispatch.adapters.answers import Answer, encoded
from dispatch.adapters.names import Found
from dispatch.adapters.provider import Provider
from dispatch.adapters.repair import Blocks
from dispatch.adapters.streams import Stream
from dispatch.adapters.wire import Tools, described, field, items, text, toolbox_of
from dispatch.call import ToolCall
from dispatch.errors import InputError
from dispatch.tool import Tool

Json = dict[str, Any]
MALFORMED = "the model wrote a call that Gemini could not read, and nothing else; ask again"


class Gemini(Provider[Json, Json]):
    """Reads and answers contents of Google's Gemini API.

    A content may also be given as its candidate, or as a whole response of one candidate.
    """

    def message(self, message: object, messages: Sequence[Any] = ()) -> Json:
        """Make the model's content to append before the reply, as it came; ids are not needed."""
        return {"role": "model", "parts": [_plain_part(part) for part in _parts(message)]}

    def tools(self, toolbox: Tools) -> list[Json]:
        """Make the `tools` of a request's config, in the toolbox's order.

        Takes a toolbox, a dispatcher, or a list of tools.
        """
        return [{"functionDeclarations": [_definition(t) for t in toolbox_of(toolbox).values()]}]

    def stream(self, messages: Sequence[Any] = ()) -> GeminiStream:
        """A reader for the chunks of `generate_content_stream`. See `Stream`."""
        return GeminiStream(HISTORY.ids(messages))

    @property
    def _form(self) -> Blocks:
        return HISTORY

    def _found(self, message: object) -> list[Found]:
        return [
            found
            for place, part in enumerate(_parts(message))
            if (found := _call_in(part, f"parts[{place}]")) is not None
        ]

    def _reply(self, told: Sequence[Answer]) -> Json:
        return {"role": "user", "parts": [_result(answer) for answer in told]}

    def _result(self, answer: Answer) -> Json:
        return _result(answer)


class GeminiStream(Stream):
    """One content of Gemini's streams. A call comes whole, in one chunk."""

    def __init__(self, taken: Set[str] = frozenset()) -> None:
        super().__init__(taken)
        self._parts: list[Json] = []
        self._seen: list[tuple[object, str, object]] = []

    @property
    def message(self) -> Json:
        """The model's content by now."""
        return {"role": "model", "parts": [dict(part) for part in self._parts]}

    def _feed(self, event: object) -> list[ToolCall]:
        calls: list[ToolCall] = []
        for candidate in field(event, "candidates") or ():
            if field(candidate, "index"):
                continue  # another answer
            for part in field(field(candidate, "content"), "parts") or ():
                calls += self._take(part)
            if _either(candidate, "finishReason"):
                self._complete = True
        return calls

    def _error(self, event: object) -> object:
        candidates = field(event, "candidates")
        if isinstance(candidates, list) and any(map(_is_malformed, candidates)):
            return MALFORMED
        blocked = _either(_either(event, "promptFeedback"), "blockReason")
        return super()._error(event) if blocked is None else f"the prompt was blocked: {blocked}"

    def _take(self, part: object) -> list[ToolCall]:
        call = _either(part, "functionCall")
        if _either(call, "willContinue") or _either(call, "partialArgs"):
            raise InputError(
                "parts.functionCall comes in pieces, which are not read; ask without"
                " streamFunctionCallArguments, so that each call comes whole"
            )
        found = _call_in(part, "parts")
        if found is None:
            self._say(_plain_part(part))
            return []
        told = (found.id, found.name, found.arguments)
        if found.id and told in self._seen:  # once more
            return []
        self._seen.append(told)
        self._parts.append(_plain_part(part))
        return self._named(found)[1]

    def _say(self, part: Json) -> None:
        """Add text to the text before it, unless one of them is signed or a thought."""
        last = self._parts[-1] if self._parts else {}
        if part.keys() == last.keys() == {"text"}:
            last["text"] += part["text"]
        elif part and part != {"text": ""}:
            self._parts.append(part)


def _either(node: object, name: str) -> Any:
    """A field by its name on the wire, or by that of the SDK's objects."""
    value = field(node, name)
    if value is not None:
        return value
    return field(node, "".join(f"_{c.lower()}" if c.isupper() else c for c in name))


def _parts(message: object) -> Sequence[Any]:
    content = _content(_candidate(message))
    role, parts = field(content, "role"), field(content, "parts")
    if role not in (None, "model") or role is parts is None:
        got = f"of role {role!r}" if isinstance(role, str) else described(content)
        raise InputError(f"content must be one of the model, with parts, not {got}")
    return () if parts is None else items(parts, "content.parts", "a list of parts")


def _content(candidate: object) -> object:
    """The content of a candidate, which may say nothing but why it is over; or what was given."""
    if _is_malformed(candidate):
        raise InputError(f"response.candidates[0]: {MALFORMED}")
    content = field(candidate, "content")
    if content is None or field(candidate, "role") is not None:
        content = candidate
    is_over = _either(candidate, "finishReason") is not None and field(candidate, "message") is None
    if is_over and field(content, "role") is field(content, "parts") is None:
        return {"role": "model"}
    return content


def _is_malformed(candidate: object) -> bool:
    """Whether there is no content, since the model's call could not be read."""
    return "MALFORMED" in str(_either(candidate, "finishReason"))


def _candidate(message: object) -> object:
    """The one candidate of a response; or what was given, if it is none."""
    candidates = field(message, "candidates")
    if candidates is None and _either(message, "promptFeedback") is None:
        return message
    found = items(candidates or [], "response.candidates", "a list of candidates")
    if len(found) != 1:
        raise InputError(f"response.candidates has {len(found)} candidates; pass the one to answer")
    return found[0]


def _call_in(part: object, where: str = "part") -> Found | None:
    call = _either(part, "functionCall")
    if call is None:
        return None
    name = text(call, "name", f"{where}.functionCall")
    arguments = field(call, "args")
    call_id = field(call, "id")
    arguments = {} if arguments is None else arguments
    return Found(call_id, name, arguments, key=name)


def _plain_part(part: object) -> Json:
    """The part as the wire has it: only what is set, bytes as base64, the wire's names."""
    plain: Any = _plain(part)
    call = plain.get("functionCall")
    if call and not str(call.get("id", "id")).strip():
        plain["functionCall"] = {name: value for name, value in call.items() if name != "id"}
    return dict(plain)


def _plain(node: Any) -> Any:
    if isinstance(node, bytes):
        return base64.b64encode(node).decode()
    if isinstance(node, list | tuple):
        return [_plain(item) for item in node]
    if isinstance(node, Mapping):
        return {name: _plain(value) for name, value in node.items()}
    if (dump := getattr(node, "model_dump", None)) is not None:
        return _plain(dump(mode="json", by_alias=True, exclude_none=True, warnings=False))
    fields = getattr(node, "__dict__", None)
    if fields is None:
        return node
    return {name: _plain(value) for name, value in fields.items() if value is not None}


def _result(answer: Answer) -> Json:
    response: Json = {"name": answer.name}
    if answer.given is not None:
        response["id"] = answer.given
    response["response"] = {"output" if answer.ok else "error": answer.text}
    if answer.images:
        response["parts"] = [
            {"inlineData": {"mimeType": image.media_type, "data": encoded(image)}}
            for image in answer.images
        ]
    return {"functionResponse": response}


def _definition(tool: Tool) -> Json:
    definition: Json = {
        "name": tool.name,
        "parametersJsonSchema": {"type": "object", **tool.input_schema},
    }
    if tool.description:
        definition["description"] = tool.description
    return definition


def _answered_in(part: object) -> str | None:
    response = _either(part, "functionResponse")
    if response is None:
        return None
    return str(field(response, "id") or field(response, "name") or "")


def _with_id(part: Any, call_id: str | None) -> Any:
    """A response with the id that its call came with, none if it came without."""
    if (field(_either(part, "functionResponse"), "id") or None) == call_id:
        return part
    response = {**_plain_part(part)["functionResponse"], "id": call_id}
    return {"functionResponse": {name: said for name, said in response.items() if said is not None}}


HISTORY = Blocks(
    content="parts",
    assistant="model",
    call=_call_in,
    key=_answered_in,
    said=lambda words: {"text": words},
    with_id=_with_id,
    mirrored=True,
)
