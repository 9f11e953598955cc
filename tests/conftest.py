"""Settings for every test: property tests have no deadline, since machines differ in speed.

Signals that whoever started the tests ignores (`nohup`, `&` in a script) mean again what they mean
by default: programs that tests start inherit that.
"""

import signal

import pytest
from hypothesis import HealthCheck, settings

for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what may take longest, so that no process is left alone with it at the end."""

    def seconds(item: pytest.Item) -> float:
        marker = item.get_closest_marker("timeout")
        return 0.0 if marker is None else float(marker.args[0])

    items.sort(key=seconds, reverse=True)
