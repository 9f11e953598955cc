"""Settings for every test: property tests have no deadline, since machines differ in speed.

Signals that whoever started the tests ignores (`nohup`, `&` in a script) mean again what they mean
by default: programs that tests start inherit that.
"""

import signal

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
