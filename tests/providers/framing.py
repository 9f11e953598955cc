"""How one event travels: as a server-sent event, or as a message of an AWS event stream."""

from __future__ import annotations

import json
from struct import pack
from zlib import crc32

from tests.providers.script import JSON

SSE = "text/event-stream"
AWS = "application/vnd.amazon.eventstream"


def sse(data: JSON, event: str | None = None) -> bytes:
    """One server-sent event, with or without a name."""
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def aws_event(kind: str, data: JSON) -> bytes:
    """One message: its length, its headers' length, a checksum; headers; data; a checksum."""
    headers = b"".join(
        _header(name, value)
        for name, value in (
            (":event-type", kind),
            (":content-type", "application/json"),
            (":message-type", "event"),
        )
    )
    payload = json.dumps(data).encode()
    prelude = pack("!II", 12 + len(headers) + len(payload) + 4, len(headers))
    message = prelude + pack("!I", crc32(prelude)) + headers + payload
    return message + pack("!I", crc32(message))


def _header(name: str, value: str) -> bytes:
    """A header of type 7, which is text."""
    return pack("!B", len(name)) + name.encode() + pack("!BH", 7, len(value)) + value.encode()
