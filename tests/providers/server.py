"""The HTTP side: a threaded server on a free port of 127.0.0.1, for both wire formats."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from tests.providers import anthropic_wire, openai_wire
from tests.providers.script import JSON, RefusedError, Step

WIRES = {wire.PATH: wire for wire in (anthropic_wire, openai_wire)}


class Server(ThreadingHTTPServer):
    """Plays `script`; keeps the bodies of all requests, in order of arrival."""

    daemon_threads = True

    def __init__(self, script: Sequence[Step]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = tuple(script)
        self.requests: list[bytes] = []

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, JSON]:
        """Status and body for one request."""
        wire = WIRES.get(path)
        if wire is None:
            return 404, {"error": {"type": "not_found_error", "message": f"no such path: {path}"}}
        if not wire.authorised(headers):
            return 401, wire.error(401, "no key in the request")
        self.requests.append(body)
        try:
            return 200, wire.answer(self.script, json.loads(body))
        except RefusedError as refusal:
            return 400, wire.error(400, str(refusal))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            return 400, wire.error(400, f"the request has the wrong form: {error!r}")


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, payload = self.server.answer(self.path, headers, body)
        encoded = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Say nothing: the test speaks."""


@contextmanager
def serve(script: Sequence[Step]) -> Iterator[Server]:
    """Run a server for the block."""
    with Server(script) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
