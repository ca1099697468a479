"""The message log of DynamoDB, and what only its caller's runtime wants to know: the plane itself counts nothing."""

from collections import OrderedDict

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.engines.dynamodb.message_log import DynamoMessageLog
from seriatim.engines.dynamodb.store import DynamoStore
from seriatim.ports.message_log import Allocation, PublishedAhead, SlotPage
from seriatim.runtime.telemetry.counters import DurabilityCounters


class CountedDynamoLog(DynamoMessageLog):
    def __init__(self, store: DynamoStore, counts: DurabilityCounters) -> None:
        super().__init__(store)
        self._counts = counts
        self._overtaken: OrderedDict[tuple[str, int], None] = OrderedDict()

    async def allocate(
        self,
        chat_id: str,
        count: int,
        *,
        published_through: int,
        published_message: int | None,
        now_ms: int,
        timeout_s: float,
    ) -> Allocation | PublishedAhead:
        """The plane retries, so nobody else would know of a failure."""
        try:
            found = await super().allocate(
                chat_id,
                count,
                published_through=published_through,
                published_message=published_message,
                now_ms=now_ms,
                timeout_s=timeout_s,
            )
        except SeriatimError:
            self._counts.allocation_errors += 1
            raise
        self._counts.behind += isinstance(found, PublishedAhead)
        return found

    async def read(self, chat_id: str, *, after: int, limit: int, timeout_s: float) -> SlotPage:
        page = await super().read(chat_id, after=after, limit=limit, timeout_s=timeout_s)
        if page.slots and page.slots[-1].sequence - after > len(page.slots):
            self._note_holes(chat_id, after, page)
        return page

    def _note_holes(self, chat_id: str, after: int, page: SlotPage) -> None:
        """Each first empty slot of a gap, once: whoever waits for it looks at it again and again."""
        before = max(after, 0)  # slot 0 is nobody's
        for slot in page.slots:
            hole = (chat_id, before + 1)
            if slot.sequence > before + 1 and hole not in self._overtaken:
                self._overtaken[hole] = None
                self._counts.overtaken += 1
                if len(self._overtaken) > limits.OVERTAKEN_SLOTS_KEPT_MAX:
                    self._overtaken.popitem(last=False)
            before = slot.sequence
