"""Request keys that each break one promise: the contract must reject every one of them."""

import msgspec

from seriatim.domain import limits
from seriatim.engines.shared.request_key_rules import claimed
from seriatim.ports.request_keys import Claimed, Taken
from seriatim.simulation.stores.request_keys import MemoryRequestKeys


class ClaimsInTwoSteps(MemoryRequestKeys):
    async def claim(
        self, scope: str, key: str, *, body_hash: str, resource_id: str, now_ms: int, timeout_s: float
    ) -> Claimed | Taken:
        before = await self._wire.call("look", lambda: self._rows.get((scope, key)), timeout_s=timeout_s)
        verdict = claimed(before, body_hash=body_hash, resource_id=resource_id, now_ms=now_ms)
        if isinstance(verdict, Taken):
            return verdict
        claim, row = verdict
        await self._wire.call("claim", lambda: self._rows.add((scope, key), row, now_ms), timeout_s=timeout_s)
        return claim


class IgnoresTheScope(MemoryRequestKeys):
    async def claim(
        self, scope: str, key: str, *, body_hash: str, resource_id: str, now_ms: int, timeout_s: float
    ) -> Claimed | Taken:
        for row in [each for each in self._rows if each.body_hash == body_hash]:
            self._rows.change((scope, key), row)
        return await super().claim(
            scope, key, body_hash=body_hash, resource_id=resource_id, now_ms=now_ms, timeout_s=timeout_s
        )


class TakesOverWithAnotherBody(MemoryRequestKeys):
    async def claim(
        self, scope: str, key: str, *, body_hash: str, resource_id: str, now_ms: int, timeout_s: float
    ) -> Claimed | Taken:
        row = self._rows.get((scope, key))
        if row is not None and row.status_code is None and row.expires_at_ms > now_ms:
            self._rows.change((scope, key), msgspec.structs.replace(row, body_hash=body_hash))
        return await super().claim(
            scope, key, body_hash=body_hash, resource_id=resource_id, now_ms=now_ms, timeout_s=timeout_s
        )


class TakesOverWithAnotherResource(MemoryRequestKeys):
    async def claim(
        self, scope: str, key: str, *, body_hash: str, resource_id: str, now_ms: int, timeout_s: float
    ) -> Claimed | Taken:
        verdict = await super().claim(
            scope, key, body_hash=body_hash, resource_id=resource_id, now_ms=now_ms, timeout_s=timeout_s
        )
        return Claimed(resource_id, verdict.resumed) if isinstance(verdict, Claimed) else verdict


class LeavesTheStaleTime(MemoryRequestKeys):
    """Who takes a claim over is itself taken for dead at once."""

    async def claim(
        self, scope: str, key: str, *, body_hash: str, resource_id: str, now_ms: int, timeout_s: float
    ) -> Claimed | Taken:
        before = self._rows.get((scope, key))
        verdict = await super().claim(
            scope, key, body_hash=body_hash, resource_id=resource_id, now_ms=now_ms, timeout_s=timeout_s
        )
        if before is not None and isinstance(verdict, Claimed) and verdict.resumed:
            self._rows.change((scope, key), before)
        return verdict


class CountsTheDayFromTheLastClaim(MemoryRequestKeys):
    async def claim(
        self, scope: str, key: str, *, body_hash: str, resource_id: str, now_ms: int, timeout_s: float
    ) -> Claimed | Taken:
        verdict = await super().claim(
            scope, key, body_hash=body_hash, resource_id=resource_id, now_ms=now_ms, timeout_s=timeout_s
        )
        row = self._rows.get((scope, key))
        if row is not None and isinstance(verdict, Claimed):
            late = msgspec.structs.replace(row, expires_at_ms=now_ms + 1000 * limits.REQUEST_KEY_LIFETIME_S)
            self._rows.change((scope, key), late)
        return verdict


class AbandonReleases(MemoryRequestKeys):
    async def abandon(self, scope: str, key: str, *, timeout_s: float) -> None:
        await self.release(scope, key, timeout_s=timeout_s)


class ReleasesWhatIsFinished(MemoryRequestKeys):
    async def release(self, scope: str, key: str, *, timeout_s: float) -> None:
        await super().release(scope, key, timeout_s=timeout_s)
        self._rows.drop((scope, key))


class NeverFinishes(MemoryRequestKeys):
    async def finish(self, scope: str, key: str, *, status_code: int, timeout_s: float) -> None:
        await self._wire.call("finish", lambda: None, timeout_s=timeout_s)
