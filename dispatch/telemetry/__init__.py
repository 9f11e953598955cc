"""Where events go: sinks to give to a dispatcher."""

from dispatch.telemetry.log import structlog_sink

__all__ = ["structlog_sink"]
