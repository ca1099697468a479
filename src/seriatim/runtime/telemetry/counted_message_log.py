"""A message log that counts what the durability plane does not report: it retries, so no other part would know."""

from collections import OrderedDict

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.ports.message_log import Allocation, MessageLog, PublishedAhead, SlotPage
from seriatim.runtime.telemetry.durability_counters import DurabilityCounters


class CountedMessageLog:
    """A `MessageLog` in front of another. Counts failed allocations; all other calls go to the log itself."""

    def __init__(self, log: MessageLog, counts: DurabilityCounters) -> None:
        self.newest_message = log.newest_message
        self.watermarks = log.watermarks
        self.lookup = log.lookup
        self.persist = log.persist
        self.seal = log.seal
        self.read_back = log.read_back
        self.counters = log.counters
        self.flush = log.flush
        self.dirty = log.dirty
        self.role = log.role
        self.acknowledge = log.acknowledge
        self.watermark = log.watermark
        self._log = log
        self._counts = counts

    @property
    def transaction_items_max(self) -> int:
        return self._log.transaction_items_max

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
        try:
            return await self._log.allocate(
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

    async def read(self, chat_id: str, *, after: int, limit: int, timeout_s: float) -> SlotPage:
        return await self._log.read(chat_id, after=after, limit=limit, timeout_s=timeout_s)


class CountedSharedLog(CountedMessageLog):
    """Of a log that several ingest processes write: also counts slots that were overtaken, and allocations that met
    another process ahead in their chat.
    """

    def __init__(self, log: MessageLog, counts: DurabilityCounters) -> None:
        super().__init__(log, counts)
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
        found = await super().allocate(
            chat_id,
            count,
            published_through=published_through,
            published_message=published_message,
            now_ms=now_ms,
            timeout_s=timeout_s,
        )
        self._counts.behind += isinstance(found, PublishedAhead)
        return found

    async def read(self, chat_id: str, *, after: int, limit: int, timeout_s: float) -> SlotPage:
        page = await super().read(chat_id, after=after, limit=limit, timeout_s=timeout_s)
        if page.slots and page.slots[-1].sequence - after > len(page.slots):
            self._note_holes(chat_id, after, page)
        return page

    def _note_holes(self, chat_id: str, after: int, page: SlotPage) -> None:
        """Counts each first empty slot of a gap once: a reader that waits for it reads it again and again."""
        before = max(after, 0)  # no message has slot 0
        for slot in page.slots:
            hole = (chat_id, before + 1)
            if slot.sequence > before + 1 and hole not in self._overtaken:
                self._overtaken[hole] = None
                self._counts.overtaken += 1
                if len(self._overtaken) > limits.OVERTAKEN_SLOTS_KEPT_MAX:
                    self._overtaken.popitem(last=False)
            before = slot.sequence
