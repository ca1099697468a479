"""`Revocations` in Redis. Complete since `revocation_epoch`, in the server process that wrote the epoch.

A restart from an old snapshot, or a failover to a replica that lagged behind, may have lost the latest revocations
and kept the epoch. Both change the server process, so a new epoch begins, as it does after a wipe.
"""

import math
from contextlib import suppress

from seriatim.domain import limits
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.redis.client import RedisClient, RedisDeadline
from seriatim.engines.redis.connection import Command
from seriatim.ports.clock import Clock
from seriatim.ports.revocations import Revocations, Verdict

_KEPT_S = limits.ACCESS_TOKEN_S + limits.TOKEN_ISSUED_LEEWAY_S
_EPOCH, _SERVER = "revocation_epoch", "revocation_server"

# Only the first caller that notices begins a new epoch, and never an earlier one, whatever its clock says.
_BEGIN = """
local epoch = tonumber(redis.call('GET', KEYS[1]) or '')
if epoch and redis.call('GET', KEYS[2]) == ARGV[2] then return end
redis.call('MSET', KEYS[1], string.format('%d', math.max(epoch or 0, tonumber(ARGV[1]))), KEYS[2], ARGV[2])
"""


class RedisRevocations(Revocations):
    def __init__(self, client: RedisClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def revoke(self, session_id: str, token_id: str | None, *, timeout_s: float) -> None:
        commands: list[Command] = [("SET", _session_key(session_id), "1", "EX", _KEPT_S)]
        if token_id is not None:
            commands.append(("SET", _token_key(token_id), "1", "EX", _KEPT_S))
        await self._client.call(commands, timeout_s=timeout_s)

    async def check(self, session_id: str, token_id: str, issued_at_s: int, *, timeout_s: float) -> Verdict:
        deadline = RedisDeadline(timeout_s)
        question: Command = ("MGET", _token_key(token_id), _session_key(session_id), _EPOCH, _SERVER)
        answer = await self._client.call_server([question], timeout_s=timeout_s)
        match answer.replies:
            case [[None, None, bytes(epoch), bytes(server)]] if epoch.isdigit() and server == answer.server_id.encode():
                # The issuer's clock may be fast: within the leeway the issue time proves nothing.
                is_younger = issued_at_s >= int(epoch) + limits.TOKEN_ISSUED_LEEWAY_S
                return Verdict.CLEAR if is_younger else Verdict.UNSURE
            case [[None, None, _, _]]:
                with suppress(ServiceUnavailable):
                    await self._begin(answer.server_id, deadline.left_s())
                return Verdict.UNSURE
        return Verdict.REVOKED

    async def begin(self, *, timeout_s: float) -> None:
        """Begins an epoch, unless there is one. The first `check` would, too; a process calls this when it starts."""
        await self.check("", "", 0, timeout_s=timeout_s)

    async def _begin(self, server_id: str, timeout_s: float) -> None:
        now_s = math.ceil(self._clock.now_ms() / 1000)
        await self._client.call([("EVAL", _BEGIN, 2, _EPOCH, _SERVER, now_s, server_id)], timeout_s=timeout_s)


def _session_key(session_id: str) -> str:
    return f"revoked_sid:{session_id}"


def _token_key(token_id: str) -> str:
    return f"revoked_jti:{token_id}"
