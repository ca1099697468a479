"""Watermarks: how far a user's devices have stored a chat. Only here are they written, and never beyond the end."""

from seriatim.domain.errors import NotAMember
from seriatim.durability.deadline import Deadline
from seriatim.ports.clock import Clock
from seriatim.ports.message_log import MessageLog


class Watermarks:
    def __init__(self, log: MessageLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        """Raises the watermark, for members only. It never falls, so it is bounded first: a bogus one would stay."""
        deadline = Deadline(self._clock, self._clock.monotonic() + timeout_s)
        bounded = await self.bound(chat_id, sequence, deadline)
        if await self._log.role(chat_id, user_id, timeout_s=deadline.room()) is None:
            raise NotAMember("you are not a member of this chat, or it does not exist")
        if bounded > 0:
            await self._log.acknowledge(
                user_id, chat_id, sequence=bounded, now_ms=self._clock.now_ms(), timeout_s=deadline.room()
            )

    async def bound(self, chat_id: str, sequence: int, deadline: Deadline) -> int:
        """The newest stored message at or below `sequence`."""
        return await self._log.newest_message(chat_id, at_most=sequence, timeout_s=deadline.room())
