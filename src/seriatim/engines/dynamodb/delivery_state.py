"""`DeliveryState` on DynamoDB: the REST API's handle, without any write."""

from collections.abc import Mapping, Sequence

from seriatim.domain import limits
from seriatim.domain.message import Message
from seriatim.engines.dynamodb.rows import messages as rows
from seriatim.engines.dynamodb.store import DELIVERY, MESSAGES, ReadOnlyStore
from seriatim.engines.shared import store_rules as rules
from seriatim.ports.message_log import DeliveryState, Watermark


class DynamoDeliveryState(DeliveryState):
    def __init__(self, store: ReadOnlyStore) -> None:
        self._store = store

    async def newest_message(self, chat_id: str, *, at_most: int, timeout_s: float) -> int:
        """Almost always the newest slot; below tombstones it is searched page by page."""
        until = self._store.until(timeout_s)
        edge, limit = at_most, 1
        while True:
            query = rows.slots_query(chat_id, "#seq <= :edge", edge, limit, ascending=False)
            page = await self._store.page(MESSAGES, query, until=until)
            for item in page.items:
                slot = rows.slot_of(rows.SLOT.decode(item))
                if isinstance(slot, Message):
                    return slot.sequence
                edge = slot.sequence - 1
            if not page.more:
                return 0
            limit = limits.NEWEST_PAGE_SLOTS

    async def watermarks(
        self, pairs: Sequence[tuple[str, str]], *, timeout_s: float
    ) -> Mapping[tuple[str, str], Watermark]:
        rules.check_distinct("pairs of a batch", pairs)
        keys = {DELIVERY: [rows.watermark_key(user_id, chat_id) for user_id, chat_id in pairs]}
        found = await self._store.get_all(keys, until=self._store.until(timeout_s))
        items = map(rows.WATERMARK.decode, found[DELIVERY])
        return {(item.user_id.S, item.chat_id.S): rows.watermark_of(item) for item in items}
