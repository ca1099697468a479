"""`RequestKeys` in the data folder: the condition of W22, checked where the row is written."""

from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.storage.snapshot import WriteTransaction
from seriatim.engines.shared import request_key_rules as rules
from seriatim.ports.request_keys import Claimed, RequestKeys, Taken


class EmbeddedRequestKeys(RequestKeys):
    """A handle on the request keys of a folder."""

    def __init__(self, folder: Folder) -> None:
        self._writer = folder.writer

    async def claim(
        self, scope: str, key: str, *, body_hash: str, resource_id: str, now_ms: int, timeout_s: float
    ) -> Claimed | Taken:
        row_key = rows.request_key(scope, key)

        def decide(transaction: WriteTransaction) -> Claimed | Taken:
            found = rows.REQUEST.found(transaction.get(row_key))
            verdict = rules.claimed(found, body_hash=body_hash, resource_id=resource_id, now_ms=now_ms)
            if isinstance(verdict, Taken):
                return verdict
            claim, row = verdict
            transaction.put(row_key, rows.REQUEST.encode(row))
            return claim

        return await self._writer.commit("claim", decide, timeout_s=timeout_s)

    async def finish(self, scope: str, key: str, *, status_code: int, timeout_s: float) -> None:
        row_key = rows.request_key(scope, key)

        def decide(transaction: WriteTransaction) -> None:
            row = rows.REQUEST.found(transaction.get(row_key))
            if row is not None and rules.is_open(row):
                transaction.put(row_key, rows.REQUEST.encode(rules.finished(row, status_code)))

        await self._writer.commit("finish", decide, timeout_s=timeout_s)

    async def release(self, scope: str, key: str, *, timeout_s: float) -> None:
        row_key = rows.request_key(scope, key)

        def decide(transaction: WriteTransaction) -> None:
            row = rows.REQUEST.found(transaction.get(row_key))
            if row is not None and rules.is_open(row):
                transaction.delete(row_key)

        await self._writer.commit("release", decide, timeout_s=timeout_s)

    async def abandon(self, scope: str, key: str, *, timeout_s: float) -> None:
        row_key = rows.request_key(scope, key)

        def decide(transaction: WriteTransaction) -> None:
            row = rows.REQUEST.found(transaction.get(row_key))
            if row is not None and rules.is_open(row):
                transaction.put(row_key, rows.REQUEST.encode(rules.abandoned(row)))

        await self._writer.commit("abandon", decide, timeout_s=timeout_s)
