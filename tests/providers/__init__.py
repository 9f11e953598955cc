"""A loopback server that speaks the providers' wire formats and is as strict as they are.

with serve([Step(calls=(Call("read_file", {"path": "a.py"}),)), Step("done")]) as server:
    client = AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0)
    client = AsyncOpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)
    client = genai.Client(api_key="any", http_options={"base_url": server.url})
    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )

`chunks(openai_wire, step)` is the same stream as a list, without a server.
"""

from tests.providers.script import Call, Pause, Step
from tests.providers.server import Server, serve
from tests.providers.wire import chunks

__all__ = ["Call", "Pause", "Server", "Step", "chunks", "serve"]
