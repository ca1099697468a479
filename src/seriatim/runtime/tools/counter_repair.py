"""For `seriatim counters`: the repair of a counter, on the engines that hold it."""

import msgspec

from seriatim.domain import limits
from seriatim.operations.counter_repair import CounterRepairer, Repair, RepairableLog, RepairRefused, highest_published
from seriatim.ports.catalog import Roster
from seriatim.ports.clock import Clock
from seriatim.ports.event_trail import EventTrail


class RepairRequest(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    margin: int = 0
    dry_run: bool = False


async def repair(log: RepairableLog, roster: Roster, trail: EventTrail, clock: Clock, request: RepairRequest) -> Repair:
    """Raises `RepairRefused`, and what the engines raise; then nothing was changed, or it may be repeated."""
    if not (await roster.members(request.chat_id, timeout_s=limits.STORE_TIMEOUT_S)).user_ids:
        raise RepairRefused(f"{request.chat_id} has no members: check the id, a chat always has its owner")
    # What is published after this read is stored already: the repairer sees it in the slots.
    published = await highest_published(trail, request.chat_id)
    repairer = CounterRepairer(log, clock, highest_published=lambda chat_id: published)
    work = repairer.examine if request.dry_run else repairer.repair
    return await work(request.chat_id, margin=request.margin)
