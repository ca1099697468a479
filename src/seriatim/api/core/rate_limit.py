"""Rate limits: one `Meter` per request counts it in every bucket that applies, and reports the tightest of them.

Counters may be lost at any moment. A bucket says what happens then: most let the request pass, sign-in refuses it.
"""

import msgspec

from seriatim.domain import limits
from seriatim.domain.addresses import rate_key
from seriatim.domain.errors import RateLimited, SeriatimError, ServiceUnavailable
from seriatim.ports.clock import Clock
from seriatim.ports.quotas import Quotas, Tally


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """At most `limit` per `window_s`. `fail_closed`: refuses when the counters do not answer.

    `lockout` names a lock that closes with the last permitted try and stays shut for `LOCKOUT_S`.
    """

    name: str
    limit: int
    window_s: int
    fail_closed: bool = False
    sliding: bool = False
    lockout: str | None = None


class RateLimiter:
    """`rate_limits_off`: nothing is counted and nothing refused; the headers are sent all the same."""

    def __init__(self, quotas: Quotas, clock: Clock, *, rate_limits_off: bool) -> None:
        self.quotas = quotas
        self.clock = clock
        self.rate_limits_off = rate_limits_off

    def meter(self) -> "Meter":
        return Meter(self)


class Meter:
    """What one request has spent so far."""

    def __init__(self, rate_limiter: RateLimiter) -> None:
        self._rate_limiter = rate_limiter
        self._tightest = _BucketState(bucket=UNMETERED, left=UNMETERED.limit, resets_in_s=UNMETERED.window_s)
        self._spent = False

    async def spend(self, bucket: Bucket) -> None:
        """Counts this request in the bucket. Raises `RateLimited` when that was one too many."""
        if self._rate_limiter.rate_limits_off:
            return self._note(bucket, Tally(1, bucket.window_s))
        try:
            tally = await self._count(bucket)
        except SeriatimError:
            if bucket.fail_closed:
                raise ServiceUnavailable("sign-in is not available right now; try again soon") from None
            tally = Tally(1, bucket.window_s)
        self._note(bucket, tally)
        if tally.count > bucket.limit:
            raise _refusal(bucket, tally.resets_in_s)

    def headers(self) -> dict[str, str]:
        state = self._tightest
        now_s = self._rate_limiter.clock.now_ms() // 1000
        return {
            "x-ratelimit-limit": str(state.bucket.limit),
            "x-ratelimit-remaining": str(state.left),
            "x-ratelimit-reset": str(now_s + state.resets_in_s),
        }

    async def _count(self, bucket: Bucket) -> Tally:
        quotas, timeout_s = self._rate_limiter.quotas, limits.DOWNSTREAM_TIMEOUT_S
        if bucket.lockout is not None:
            locked_s = await quotas.locked_for_s(bucket.lockout, timeout_s=timeout_s)
            if locked_s > 0:
                return Tally(bucket.limit + 1, locked_s)
        if bucket.sliding:
            return await quotas.slide(bucket.name, limit=bucket.limit, window_s=bucket.window_s, timeout_s=timeout_s)
        tally = await quotas.hit(bucket.name, window_s=bucket.window_s, timeout_s=timeout_s)
        if bucket.lockout is not None and tally.count >= bucket.limit:
            await quotas.lock(bucket.lockout, seconds=limits.LOCKOUT_S, timeout_s=timeout_s)
            return Tally(tally.count, limits.LOCKOUT_S)
        return tally

    def _note(self, bucket: Bucket, tally: Tally) -> None:
        state = _BucketState(
            bucket=bucket, left=max(0, bucket.limit - tally.count), resets_in_s=max(1, tally.resets_in_s)
        )
        if not self._spent or state.left <= self._tightest.left:
            self._tightest = state
        self._spent = True


class _BucketState(msgspec.Struct, frozen=True, kw_only=True):
    bucket: Bucket
    left: int
    resets_in_s: int


def _refusal(bucket: Bucket, resets_in_s: int) -> RateLimited:
    wait_s = max(1, resets_in_s)
    return RateLimited(
        f"too many requests; wait {wait_s} s and try again",
        retry_after_seconds=wait_s,
        details={"limit": bucket.limit, "window_seconds": bucket.window_s, "retry_after_seconds": wait_s},
    )


# --- the buckets of every request; routes with more of their own name them beside their handler -------------------


def anonymous_bucket(client_ip: str) -> Bucket:
    return Bucket(name=f"rl:ip:{rate_key(client_ip)}", limit=limits.ANONYMOUS_REQUESTS_MAX, window_s=60)


def user_bucket(user_id: str, method: str) -> Bucket:
    if method in ("GET", "HEAD"):
        return Bucket(name=f"rl:read:{user_id}", limit=limits.READS_MAX, window_s=60)
    return Bucket(name=f"rl:write:{user_id}", limit=limits.WRITES_MAX, window_s=60)


UNMETERED = anonymous_bucket("")  # what the headers say when nothing was counted: a health check is never refused
