import structlog
from structlog.testing import capture_logs

from dispatch import Dispatcher, ToolCall, tool
from dispatch.telemetry import structlog_sink


@tool(safe_parallel=True)
async def login(password: str) -> str:
    if password == "wrong":
        raise ValueError("no")
    return f"token for {password}"


def test_every_transition_is_logged_and_no_argument_or_value() -> None:
    """Ends at info or warning, the rest at debug; secrets stay out of the log."""
    calls = [
        ToolCall("c1", "login", {"password": "hunter2"}),
        ToolCall("c2", "login", {"password": "wrong"}),
    ]
    with capture_logs() as lines:
        Dispatcher([login], sinks=[structlog_sink()]).run_sync(calls, turn_id="t1")
    ends = [line for line in lines if line["event"] == "call ended"]
    assert [("info", "ok", "c1"), ("warning", "error", "c2")] == [
        (line["log_level"], line["status"], line["id"]) for line in ends
    ]
    assert {"t1"} == {line["turn"] for line in lines}
    assert "hunter2" not in repr(lines)
    assert {"call planned", "call ready", "call running", "turn decided"} < {
        line["event"] for line in lines
    }


def test_a_logger_of_ones_own_can_be_given() -> None:
    """Bound fields of that logger stand in every line."""
    with capture_logs() as lines:
        sink = structlog_sink(structlog.get_logger().bind(agent="a1"))
        Dispatcher([login], sinks=[sink]).run_sync([ToolCall("", "login", {"password": "x"})])
    assert {"a1"} == {line["agent"] for line in lines}
