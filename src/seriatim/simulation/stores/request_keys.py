"""`RequestKeys` in memory: the condition of W22, checked where the row is written."""

from seriatim.engines.inprocess.wire import Wire
from seriatim.engines.shared import request_key_rules as rules
from seriatim.ports.request_keys import Claimed, RequestKeys, Taken
from seriatim.simulation.stores.tables import MemoryStore


class MemoryRequestKeys(RequestKeys):
    """One process's handle on the request keys of a `MemoryStore`."""

    def __init__(self, store: MemoryStore, wire: Wire) -> None:
        self._rows = store.accounts.requests
        self._wire = wire

    async def claim(
        self, scope: str, key: str, *, body_hash: str, resource_id: str, now_ms: int, timeout_s: float
    ) -> Claimed | Taken:
        rows = self._rows

        def apply() -> Claimed | Taken:
            verdict = rules.claimed(rows.get((scope, key)), body_hash=body_hash, resource_id=resource_id, now_ms=now_ms)
            if isinstance(verdict, Taken):
                return verdict
            claim, row = verdict
            rows.add((scope, key), row, now_ms)
            return claim

        return await self._wire.call("claim", apply, timeout_s=timeout_s)

    async def finish(self, scope: str, key: str, *, status_code: int, timeout_s: float) -> None:
        rows = self._rows

        def apply() -> None:
            row = rows.get((scope, key))
            if row is not None and rules.is_open(row):
                rows.change((scope, key), rules.finished(row, status_code))

        await self._wire.call("finish", apply, timeout_s=timeout_s)

    async def release(self, scope: str, key: str, *, timeout_s: float) -> None:
        rows = self._rows

        def apply() -> None:
            row = rows.get((scope, key))
            if row is not None and rules.is_open(row):
                rows.drop((scope, key))

        await self._wire.call("release", apply, timeout_s=timeout_s)

    async def abandon(self, scope: str, key: str, *, timeout_s: float) -> None:
        rows = self._rows

        def apply() -> None:
            row = rows.get((scope, key))
            if row is not None and rules.is_open(row):
                rows.change((scope, key), rules.abandoned(row))

        await self._wire.call("abandon", apply, timeout_s=timeout_s)
