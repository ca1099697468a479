"""The acks of one connection: per chat the highest wins, one call at a time, repeated until it is stored."""

import asyncio
from collections.abc import Callable

from seriatim.connection.gateway_context import GatewayContext
from seriatim.connection.session.chat_delivery import ChatDelivery
from seriatim.connection.task_group import TaskGroup
from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, SeriatimError
from seriatim.protocol.codec import Echo
from seriatim.protocol.frames import Ack
from seriatim.protocol.server_session import echo


class Acks:
    """`admit`: takes a place in the inbound queue. `done` gives it back. `refused`: the client must be told."""

    def __init__(
        self,
        user_id: str,
        chats: ChatDelivery,
        services: GatewayContext,
        *,
        tasks: TaskGroup,
        admit: Callable[[Echo], bool],
        done: Callable[[], None],
        refused: Callable[[SeriatimError, Echo], None],
    ) -> None:
        self._user_id = user_id
        self._chats = chats
        self._services = services
        self._tasks = tasks
        self._admit = admit
        self._done = done
        self._refused = refused
        self._wanted: dict[str, int] = {}  # chats with a call in flight, and how far they shall be acknowledged

    def acknowledge(self, ack: Ack) -> None:
        """An ack of a chat that was not synced here moves nothing; an outsider is told so all the same."""
        cursor = self._chats.cursor(ack.chat_id)
        wanted = 0 if cursor is None else cursor.known(ack.last_acked_sequence)
        if cursor is not None and wanted <= cursor.acked:
            return
        if ack.chat_id in self._wanted:
            self._wanted[ack.chat_id] = max(self._wanted[ack.chat_id], wanted)
        elif self._admit(echo(ack)):
            self._wanted[ack.chat_id] = wanted
            self._tasks.start(self._pass_on(ack))

    async def _pass_on(self, ack: Ack) -> None:
        """Until it is stored, for the client does not repeat an ack of its own accord while it stays connected.

        What counts now is what was sent by now. The rest of the ack counts when a gap that is open has been filled.
        """
        acked, waits, chat_id = -1, 0, ack.chat_id
        try:
            while acked < self._wanted[chat_id]:
                sequence = self._chats.received_through(chat_id, self._wanted[chat_id])
                try:
                    if sequence > acked:
                        await self._services.durability.acknowledge(
                            self._user_id, chat_id, sequence=sequence, timeout_s=limits.PERSIST_DEADLINE_S
                        )
                        self._stored(chat_id, sequence)
                        acked = sequence
                        continue
                except NotAMember as error:
                    self._refused(error, echo(ack))
                    return
                except SeriatimError:
                    pass  # as if it had to wait
                waits += 1
                if waits == limits.ACK_TRIES_MAX:
                    return  # the client's next ack covers this one
                await asyncio.sleep(min(limits.FILL_RETRY_S * 2**waits, limits.FILL_RETRY_MAX_S))
        finally:
            del self._wanted[chat_id]
            self._done()

    def _stored(self, chat_id: str, sequence: int) -> None:
        if (cursor := self._chats.cursor(chat_id)) is not None:
            cursor.acked = max(cursor.acked, sequence)
