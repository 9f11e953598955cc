"""The HTTP side: a threaded server on a free port of 127.0.0.1, for all wire formats."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from tests.providers import (
    anthropic_wire,
    bedrock_wire,
    gemini_wire,
    openai_wire,
    responses_wire,
)
from tests.providers.script import JSON, Pause, RefusedError, Step
from tests.providers.wire import Wire, answer, pieces

WIRES: tuple[Wire, ...] = (
    anthropic_wire,
    openai_wire,
    responses_wire,
    gemini_wire,
    bedrock_wire,
)


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that is written event by event; `breaks_after` that many, if at all."""

    wire: Wire
    pieces: Sequence[JSON | Pause]
    breaks_after: int | None


class Server(ThreadingHTTPServer):
    """Plays `script`; keeps the bodies of all requests, in order of arrival.

    Closing it ends what is still connected, lets every pause go, and waits for its threads.
    """

    daemon_threads = False

    def __init__(self, script: Sequence[Step]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = tuple(script)
        self.requests: list[bytes] = []
        self._broken: set[int] = set()
        self._connected: set[socket.socket] = set()
        self._lock = Lock()

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer(
        self, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, JSON | Streamed]:
        """Status and body for one request."""
        for wire in WIRES:
            if (routed := wire.route(path)) is not None:
                break
        else:
            return 404, {"error": {"type": "not_found_error", "message": f"no such path: {path}"}}
        if not wire.authorised(headers):
            return 401, wire.error(401, "no key in the request")
        self.requests.append(body)
        try:
            return 200, self._played(wire, {**json.loads(body), **routed})
        except RefusedError as refusal:
            return 400, wire.error(400, str(refusal))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            return 400, wire.error(400, f"the request has the wrong form: {error!r}")

    def _played(self, wire: Wire, request: JSON) -> JSON | Streamed:
        if not request.get("stream"):
            return answer(wire, self.script, request)
        step, at = wire.next_step(self.script, request)
        return Streamed(wire, pieces(wire, step, at, request), self._break_of(step, at))

    def _break_of(self, step: Step, at: int) -> int | None:
        """Where the stream of this step breaks; the first time only."""
        with self._lock:
            is_first = at not in self._broken
            self._broken.add(at)
        return step.breaks_after if is_first else None

    def process_request(self, request: Any, client_address: Any) -> None:
        """Keep the connection, to end it if it outlives the server."""
        with self._lock:
            self._connected.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        with self._lock:
            self._connected.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close, and leave nothing behind."""
        with self._lock:
            for connection in self._connected:
                with suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RDWR)
        for step in self.script:
            for pause in step.every_pause():
                pause.release()  # only now, so that nothing behind it is written
        super().server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an event is sent when it is written
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, payload = self.server.answer(self.path, headers, body)
        with suppress(ConnectionError):  # the client has gone: nobody to tell
            if isinstance(payload, Streamed):
                self._head(200, payload.wire.CONTENT_TYPE, "transfer-encoding", "chunked")
                self._write(payload)
            else:
                encoded = json.dumps(payload).encode()
                self._head(status, "application/json", "content-length", str(len(encoded)))
                self.wfile.write(encoded)

    def _head(self, status: int, content_type: str, name: str, value: str) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header(name, value)
        self.send_header("connection", "close")
        self.end_headers()

    def _write(self, streamed: Streamed) -> None:
        """Write the events as chunks. Without the last chunk the stream is broken."""
        left = streamed.breaks_after
        for piece in streamed.pieces:
            if left == 0:
                return
            if not isinstance(piece, Pause):
                self._chunk(streamed.wire.frame(piece))
                left = left and left - 1
            elif not piece.hold():
                return
        if left == 0:
            return
        if streamed.wire.END:
            self._chunk(streamed.wire.END)
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

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
