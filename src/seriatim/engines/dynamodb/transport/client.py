"""A thin client of DynamoDB: signs, sends once, and translates what comes back. It repeats nothing.

A library's client costs more than a millisecond of CPU for each call, and retries on its own: a repeated allocation
would leave slots without an owner (docs/decisions/0031).
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import msgspec

from seriatim.domain.errors import OutcomeUnknown
from seriatim.engines.dynamodb.transport.connection_pool import ConnectionPool
from seriatim.engines.dynamodb.transport.errors import error_of_response, reason_of
from seriatim.engines.dynamodb.transport.signing import AwsCredentials, Signer
from seriatim.ports.clock import Clock

Request = Mapping[str, object]

_encoder = msgspec.json.Encoder()


class DynamoClient:
    """One endpoint. `credentials` is asked for each call, so that they can be renewed; it must not wait.

    `calls` counts requests by operation, `failures` those that were not done, by operation and reason.
    """

    def __init__(self, url: str, *, region: str, credentials: Callable[[], AwsCredentials], clock: Clock) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"{url!r} is no address of DynamoDB: give a scheme, a host and perhaps a port")
        secure = parts.scheme == "https"
        self._pool = ConnectionPool(
            parts.hostname, parts.port or (443 if secure else 80), ssl.create_default_context() if secure else None
        )
        self.host = parts.netloc.rpartition("@")[2]
        self._signer = Signer(host=self.host, region=region)
        self._credentials = credentials
        self._clock = clock
        self.calls: dict[str, int] = {}
        self.failures: dict[tuple[str, str], int] = {}
        self.retries = 0  # counted by the callers that repeat a call

    @staticmethod
    def until(timeout_s: float) -> float:
        """The moment, on the loop's clock, by which all calls of a request must be answered."""
        if timeout_s <= 0:
            raise OutcomeUnknown("no time was left to ask the store; retry")
        return asyncio.get_running_loop().time() + timeout_s

    async def call(self, operation: str, request: Request, *, until: float) -> bytes:
        """The body of the answer. Raises what `errors` makes of anything but success."""
        body = _encoder.encode(request)
        head = self._signer.head(self._credentials(), operation, body, self._clock.now_ms())
        self.calls[operation] = self.calls.get(operation, 0) + 1
        try:
            answer = await self._pool.exchange(head + body, until=until)
            if answer.status == 200:
                return answer.body
            raise error_of_response(operation, answer.status, answer.body)
        except Exception as error:
            failure = (operation, reason_of(error))
            self.failures[failure] = self.failures.get(failure, 0) + 1
            raise

    async def close(self) -> None:
        await self._pool.close()
