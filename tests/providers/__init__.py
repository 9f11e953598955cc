"""A loopback server that speaks the providers' wire formats and is as strict as they are.

with serve([Step(calls=(Call("read_file", {"path": "a.py"}),)), Step("done")]) as server:
    client = AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0)
    client = AsyncOpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)
"""

from tests.providers.script import Call, Step
from tests.providers.server import Server, serve

__all__ = ["Call", "Server", "Step", "serve"]
