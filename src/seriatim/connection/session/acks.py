"""The acks of one connection: per chat the highest counts, one call at a time, repeated until it is stored."""

import asyncio

from seriatim.connection.gateway_context import GatewayContext
from seriatim.connection.session.chat_delivery import ChatDelivery
from seriatim.connection.session.responder import Responder
from seriatim.connection.task_group import TaskGroup
from seriatim.domain import limits
from seriatim.domain.errors import NotAMember, SeriatimError
from seriatim.protocol.frames import Ack
from seriatim.protocol.server_session import echo


class Acks:
    """An ack takes a place in the inbound queue while it is being stored. It has no answer but an error."""

    def __init__(
        self,
        user_id: str,
        delivery: ChatDelivery,
        responder: Responder,
        context: GatewayContext,
        *,
        tasks: TaskGroup,
    ) -> None:
        self._user_id = user_id
        self._delivery = delivery
        self._context = context
        self._tasks = tasks
        self._responder = responder
        self._wanted: dict[str, int] = {}  # chats with a call in progress, and the sequence to acknowledge

    def acknowledge(self, ack: Ack) -> None:
        """An ack of a chat that is not synced here moves nothing, but a user who is no member still gets the error."""
        cursor = self._delivery.cursor(ack.chat_id)
        wanted = 0 if cursor is None else cursor.clamp_to_known(ack.last_acked_sequence)
        if cursor is not None and wanted <= cursor.acked:
            return
        if ack.chat_id in self._wanted:
            self._wanted[ack.chat_id] = max(self._wanted[ack.chat_id], wanted)
        elif self._responder.admit(echo(ack)):
            self._wanted[ack.chat_id] = wanted
            self._tasks.start(self._store(ack))

    async def _store(self, ack: Ack) -> None:
        """Repeats until the ack is stored: a connected client does not repeat an ack by itself.

        Only what was sent to the client counts. The rest of the ack counts once an open gap has been filled.
        """
        acked, waits, chat_id = -1, 0, ack.chat_id
        try:
            while acked < self._wanted[chat_id]:
                sequence = self._delivery.received_through(chat_id, self._wanted[chat_id])
                try:
                    if sequence > acked:
                        await self._context.durability.acknowledge(
                            self._user_id, chat_id, sequence=sequence, timeout_s=limits.PERSIST_DEADLINE_S
                        )
                        self._stored(chat_id, sequence)
                        acked = sequence
                        continue
                except NotAMember as error:
                    self._responder.reject(error, echo(ack))
                    return
                except SeriatimError:
                    pass  # retried below
                waits += 1
                if waits == limits.ACK_TRIES_MAX:
                    return  # the client's next ack covers this one
                await asyncio.sleep(min(limits.FILL_RETRY_S * 2**waits, limits.FILL_RETRY_MAX_S))
        finally:
            del self._wanted[chat_id]
            self._responder.release()

    def _stored(self, chat_id: str, sequence: int) -> None:
        if (cursor := self._delivery.cursor(chat_id)) is not None:
            cursor.acked = max(cursor.acked, sequence)
