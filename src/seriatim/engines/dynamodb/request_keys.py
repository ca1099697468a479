"""`RequestKeys` on DynamoDB: the condition of W22. What a claim means is decided by the shared rules."""

from seriatim.domain.times import iso
from seriatim.engines.dynamodb.rows import people as rows
from seriatim.engines.dynamodb.rows.attributes import TRUE, S, n
from seriatim.engines.dynamodb.store import REQUESTS, DynamoStore
from seriatim.engines.dynamodb.transport.client import Request
from seriatim.engines.dynamodb.transport.errors import ConditionFailed
from seriatim.engines.shared import request_key_rules as rules
from seriatim.engines.shared.request_key_rules import RequestRow
from seriatim.ports.request_keys import Claimed, RequestKeys, Taken

_STATE = {"#state": "state"}
_FREE = "attribute_not_exists(idem_key) OR expires_at <= :now"
# What may be taken over is an open claim, and only the one that was judged: of two that judged it one wins.
_AS_JUDGED = "#state = :claimed AND body_hash = :body AND claimed_at = :seen AND attribute_{exists}(is_abandoned)"


class DynamoRequestKeys(RequestKeys):
    """A handle on the request keys of a deployment."""

    def __init__(self, store: DynamoStore) -> None:
        self._store = store

    async def claim(
        self, scope: str, key: str, *, body_hash: str, resource_id: str, now_ms: int, timeout_s: float
    ) -> Claimed | Taken:
        until = self._store.until(timeout_s)
        row: RequestRow | None = None
        while True:
            verdict = rules.claimed(row, body_hash=body_hash, resource_id=resource_id, now_ms=now_ms)
            if isinstance(verdict, Taken):
                return verdict
            claim, claimed = verdict
            try:
                if claim.resumed and row is not None:
                    await self._change(self._take_over(scope, key, row, now_ms), until)
                else:
                    await self._put(scope, key, claimed, now_ms, until)
            except ConditionFailed as failed:
                row = _row(failed)
                continue
            return claim

    async def _put(self, scope: str, key: str, row: RequestRow, now_ms: int, until: float) -> None:
        item = {"Item": rows.request_item(scope, key, row)}
        request = self._store.write_request(REQUESTS, item, _FREE, {":now": S(iso(now_ms))})
        await self._store.retry_refused(lambda: self._store.put(request, until=until), until=until)

    def _take_over(self, scope: str, key: str, row: RequestRow, now_ms: int) -> Request:
        values = {
            ":claimed": S(rows.CLAIMED),
            ":body": S(row.body_hash),
            ":seen": S(iso(row.claimed_at_ms)),
            ":now": S(iso(now_ms)),
        }
        condition = _AS_JUDGED.format(exists="exists" if row.abandoned else "not_exists")
        what = {"Key": _key(scope, key), "UpdateExpression": "SET claimed_at = :now REMOVE is_abandoned"}
        return self._store.write_request(REQUESTS, what, condition, values, _STATE)

    async def finish(self, scope: str, key: str, *, status_code: int, timeout_s: float) -> None:
        what = {"Key": _key(scope, key), "UpdateExpression": "SET #state = :done, status_code = :code"}
        values = {":claimed": S(rows.CLAIMED), ":done": S(rows.DONE), ":code": n(status_code)}
        await self._update_claimed(what, values, timeout_s)

    async def abandon(self, scope: str, key: str, *, timeout_s: float) -> None:
        what = {"Key": _key(scope, key), "UpdateExpression": "SET is_abandoned = :true"}
        await self._update_claimed(what, {":claimed": S(rows.CLAIMED), ":true": TRUE}, timeout_s)

    async def release(self, scope: str, key: str, *, timeout_s: float) -> None:
        until = self._store.until(timeout_s)
        request = self._store.write_request(
            REQUESTS, {"Key": _key(scope, key)}, "#state = :claimed", {":claimed": S(rows.CLAIMED)}, _STATE
        )
        try:
            await self._store.retry_refused(lambda: self._store.delete(request, until=until), until=until)
        except ConditionFailed:
            return

    async def _update_claimed(self, what: Request, values: Request, timeout_s: float) -> None:
        """A key that is finished, or was never claimed, stays as it is."""
        until = self._store.until(timeout_s)
        try:
            await self._change(self._store.write_request(REQUESTS, what, "#state = :claimed", values, _STATE), until)
        except ConditionFailed:
            return

    async def _change(self, request: Request, until: float) -> None:
        await self._store.retry_refused(lambda: self._store.update(request, until=until), until=until)


def _row(failed: ConditionFailed) -> RequestRow | None:
    """None when a claim that was to be taken over has been released meanwhile."""
    item = rows.REQUEST.found(failed.item)
    return None if item is None else rows.request_from(item)


def _key(scope: str, key: str) -> dict[str, S]:
    return {"scope": S(scope), "idem_key": S(key)}
