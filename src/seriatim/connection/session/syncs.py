"""The sync requests of one connection: SYNCS_IN_PROGRESS_MAX at a time, each until its batch is written."""

from collections import deque

from seriatim.connection.gateway_context import GatewayContext
from seriatim.connection.session.chat_delivery import ChatDelivery
from seriatim.connection.session.responder import Responder
from seriatim.connection.task_group import TaskGroup, report
from seriatim.domain import limits
from seriatim.domain.errors import InternalError, NotAMember, SeriatimError
from seriatim.protocol.codec import encode_batch
from seriatim.protocol.frames import SyncRequest
from seriatim.protocol.server_session import echo


class Syncs:
    """Each request is answered with a batch or with an error, through the responder."""

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
        self._in_progress = 0
        self._waiting: deque[SyncRequest] = deque()  # each holds a place in the inbound queue, which bounds them

    def request(self, request: SyncRequest) -> None:
        if self._responder.admit(echo(request)):
            self._waiting.append(request)
            self._start_next()

    def written(self, batches: int) -> None:
        """So many batches were written to the socket."""
        self._in_progress -= batches
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and self._in_progress < limits.SYNCS_IN_PROGRESS_MAX:
            self._in_progress += 1
            self._tasks.start(self._sync(self._waiting.popleft()))

    async def _sync(self, request: SyncRequest) -> None:
        try:
            await self._read(request)
        except Exception as failure:
            if not isinstance(failure, SeriatimError):
                report(failure)
                failure = InternalError("this request failed because of a bug in the server")
            self._in_progress -= 1
            self._responder.refuse(failure, echo(request))
            self._start_next()

    async def _read(self, request: SyncRequest) -> None:
        cursor = self._delivery.begin_sync(request.chat_id)
        epoch = cursor.sync_started(request.last_acked_sequence)
        try:
            page = await self._context.durability.read(
                self._user_id,
                request.chat_id,
                after=request.last_acked_sequence,
                limit=request.limit,
                timeout_s=limits.PERSIST_DEADLINE_S,
            )
        except Exception as failure:
            self._delivery.sync_failed(cursor, epoch, not_a_member=isinstance(failure, NotAMember))
            raise
        ready = encode_batch(
            request.chat_id,
            page.messages,
            through=page.through,
            has_more=page.has_more,
            request_id=request.request_id,
        )
        self._responder.answer_batch(ready.encoded)
        cursor.page_sent(epoch, ready.through, has_more=ready.frame.has_more)
        self._delivery.advance(cursor)
