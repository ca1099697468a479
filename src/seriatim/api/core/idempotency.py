"""`Idempotency-Key`: a request that is repeated with the same key finds what the first one made.

The rules are docs/spec/rest.md#idempotency-key. A key remembers successes only: a refused request gives it back, one
with an unknown outcome leaves it to be taken over.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from seriatim.api.core.route import ApiRequest, ApiResponse
from seriatim.domain import limits
from seriatim.domain.errors import KeyReused, Refused, SeriatimError, StillInProgress, ValidationFailed
from seriatim.ports.clock import Clock
from seriatim.ports.request_keys import Claimed, RequestKeys, Taken

HEADER = "idempotency-key"

Work = Callable[[str, bool], Awaitable[ApiResponse]]
Replay = Callable[[str], Awaitable[object]]


class IdempotencyGuard:
    def __init__(self, keys: RequestKeys, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    async def run(
        self, request: ApiRequest[Any, Any], route_name: str, new_id: str, work: Work, replay: Replay
    ) -> ApiResponse:
        """Does `work` with the id to use, and whether an earlier attempt may have begun with that id.

        `replay` gives the current state of what an earlier request made. Without a key the work is simply done.
        """
        key = check_key(request)
        if key is None:
            return await work(new_id, False)
        scope = f"{request.caller_id}#{route_name}"
        claim = await self._keys.claim(
            scope,
            key,
            body_hash=request.body_hash,
            resource_id=new_id,
            now_ms=self._clock.now_ms(),
            timeout_s=limits.API_TIMEOUT_S,
        )
        if isinstance(claim, Taken):
            return await _repeat(claim, request.body_hash, replay)
        return await self._first(scope, key, claim, work)

    async def _first(self, scope: str, key: str, claim: Claimed, work: Work) -> ApiResponse:
        try:
            answer = await work(claim.resource_id, claim.resumed)
        except Refused:
            # A resumed request may be refused although its first attempt did the work: then the key must keep its id.
            await self._leave(scope, key, release=not claim.resumed)
            raise
        except BaseException:
            await self._leave(scope, key, release=False)
            raise
        with suppress(SeriatimError):  # the work is done: a retry takes the claim over, and finds it done
            await self._keys.finish(scope, key, status_code=answer.status, timeout_s=limits.API_TIMEOUT_S)
        return answer

    async def _leave(self, scope: str, key: str, *, release: bool) -> None:
        with suppress(SeriatimError):  # an old claim is taken over anyway, a little later
            if release:
                await self._keys.release(scope, key, timeout_s=limits.API_TIMEOUT_S)
            else:
                await self._keys.abandon(scope, key, timeout_s=limits.API_TIMEOUT_S)


def check_key(request: ApiRequest[Any, Any]) -> str | None:
    if request.idempotency_key is None and HEADER in request.headers:
        raise ValidationFailed(
            "Idempotency-Key must be a UUID of version 4", field="Idempotency-Key", field_code="INVALID_FORMAT"
        )
    return request.idempotency_key


async def _repeat(taken: Taken, body_hash: str, replay: Replay) -> ApiResponse:
    if taken.body_hash != body_hash:
        raise KeyReused("this Idempotency-Key was used for another request; make a new one")
    if taken.status_code is None:
        raise StillInProgress("the same request is being served; ask again in a second", retry_after_seconds=1)
    data = await replay(taken.resource_id)
    return ApiResponse(status=taken.status_code, data=data, headers={"x-idempotent-replay": "true"})
