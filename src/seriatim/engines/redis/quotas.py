"""`Quotas` in Redis: each count is one atomic script on one key."""

import math

from seriatim.engines.redis.client import RedisClient
from seriatim.engines.redis.connection import Argument, Reply
from seriatim.ports.quotas import Quotas, Tally

_HIT = """
local count = redis.call('INCR', KEYS[1])
local left_ms = redis.call('PTTL', KEYS[1])
if left_ms < 0 then
  left_ms = tonumber(ARGV[1])
  redis.call('PEXPIRE', KEYS[1], left_ms)
end
return {count, left_ms}
"""

# By the clock of Redis: the clocks of its callers may differ.
_SLIDE = """
local limit, window_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now_us, window_us = time[1] * 1000000 + time[2], window_ms * 1000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now_us - window_us)
local count = math.min(redis.call('ZCARD', KEYS[1]), limit) + 1
if count <= limit then
  redis.call('ZADD', KEYS[1], now_us, string.format('%.0f-%d', now_us, count))
  redis.call('PEXPIRE', KEYS[1], window_ms)
end
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
return {count, math.ceil(((oldest[2] or now_us) + window_us - now_us) / 1000)}
"""


class RedisQuotas(Quotas):
    """Keys are the names that callers give (docs/spec/data.md#redis); those of sliding windows end in `:sliding`."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def hit(self, bucket: str, *, window_s: int, timeout_s: float) -> Tally:
        return await self._tally(_HIT, bucket, window_s * 1000, timeout_s=timeout_s)

    async def slide(self, bucket: str, *, limit: int, window_s: int, timeout_s: float) -> Tally:
        return await self._tally(_SLIDE, f"{bucket}:sliding", limit, window_s * 1000, timeout_s=timeout_s)

    async def lock(self, name: str, *, seconds: int, timeout_s: float) -> None:
        await self._client.call([("SET", name, "1", "EX", seconds)], timeout_s=timeout_s)

    async def locked_for_s(self, name: str, *, timeout_s: float) -> int:
        [left_ms] = await self._client.call([("PTTL", name)], timeout_s=timeout_s)
        return 0 if left_ms == _NO_SUCH_KEY else _seconds(left_ms)

    async def _tally(self, script: str, key: str, *given: Argument, timeout_s: float) -> Tally:
        [reply] = await self._client.call([("EVAL", script, 1, key, *given)], timeout_s=timeout_s)
        match reply:
            case [int(count), left_ms]:
                return Tally(count, _seconds(left_ms))
        raise AssertionError("the script returns two numbers")


_NO_SUCH_KEY = -2


def _seconds(left_ms: Reply) -> int:
    """Rounded up: never 0 while the key exists."""
    return max(1, math.ceil(left_ms / 1000)) if isinstance(left_ms, int) else 1
