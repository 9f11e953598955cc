"""A scripted model on loopback, so that the examples beside it need no key.

It speaks the complete form of Anthropic's Messages and of OpenAI's Chat Completions. Its first
message asks for the calls that it was given, every later one says "done". As the real ones do, it
answers 400 to a history with a call that nothing answers.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Json = dict[str, Any]


class MessagesAPI:
    """Anthropic's form."""

    refusal = "`tool_use` ids were found without `tool_result` blocks immediately after:"

    def asks(self, calls: Sequence[tuple[str, Json]]) -> Json:
        content = [
            {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}
            for number, (name, arguments) in enumerate(calls)
        ]
        return self._message(content, "tool_use")

    def says(self, words: str) -> Json:
        return self._message([{"type": "text", "text": words}], "end_turn")

    def _message(self, content: list[Json], stop_reason: str) -> Json:
        return {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def ids(self, message: Json) -> list[str]:
        return [b["id"] for b in blocks(message) if b["type"] == "tool_use"]

    def answers(self, messages: Sequence[Json]) -> dict[str, str]:
        return {
            block["tool_use_id"]: block["content"]
            for message in messages
            for block in blocks(message)
            if block["type"] == "tool_result"
        }

    def error(self, message: str) -> Json:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


class ChatAPI:
    """OpenAI's form."""

    refusal = "The following tool_call_ids did not have response messages:"

    def asks(self, calls: Sequence[tuple[str, Json]]) -> Json:
        tool_calls = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for number, (name, arguments) in enumerate(calls)
        ]
        return self._completion({"content": None, "tool_calls": tool_calls}, "tool_calls")

    def says(self, words: str) -> Json:
        return self._completion({"content": words}, "stop")

    def _completion(self, message: Json, finish_reason: str) -> Json:
        choice = {
            "index": 0,
            "message": {"role": "assistant", **message},
            "finish_reason": finish_reason,
        }
        return {
            "id": "chatcmpl",
            "object": "chat.completion",
            "created": 0,
            "model": "scripted",
            "choices": [choice],
        }

    def ids(self, message: Json) -> list[str]:
        return [call["id"] for call in message.get("tool_calls") or ()]

    def answers(self, messages: Sequence[Json]) -> dict[str, str]:
        return {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}

    def error(self, message: str) -> Json:
        return {"error": {"type": "invalid_request_error", "message": message}}


APIS: Mapping[str, MessagesAPI | ChatAPI] = {
    "/v1/messages": MessagesAPI(),
    "/v1/chat/completions": ChatAPI(),
}


class ModelServer(ThreadingHTTPServer):
    """Keeps what it was told of its calls, in that order, and why it refused a request."""

    def __init__(self, calls: Sequence[tuple[str, Json]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls = calls
        self.answers: dict[str, str] = {}
        self.refusal = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def reply(self, path: str, messages: Sequence[Json]) -> tuple[int, Json]:
        """Status and body for a request with these messages."""
        api = APIS[path]
        asked = [call_id for message in messages for call_id in api.ids(message)]
        self.answers = api.answers(messages)
        if missing := [call_id for call_id in asked if call_id not in self.answers]:
            self.refusal = f"{api.refusal} {', '.join(missing)}"
            return 400, api.error(self.refusal)
        self.refusal = ""
        return 200, api.says("done") if asked else api.asks(self.calls)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ModelServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, body = self.server.reply(self.path, request["messages"])
        encoded = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Say nothing."""


def blocks(message: Json) -> list[Json]:
    """The content blocks of a message; none if it is plain text."""
    content = message["content"]
    return content if isinstance(content, list) else []


@contextmanager
def model_server(calls: Sequence[tuple[str, Json]]) -> Iterator[ModelServer]:
    """Run a model that asks for these calls."""
    with ModelServer(calls) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()
