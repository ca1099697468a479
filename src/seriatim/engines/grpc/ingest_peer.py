"""One ingest process as we see it: dialled again and again, ready while its line stands."""

import asyncio
from collections.abc import Callable

import grpc

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown, ServerBusy, ServiceUnavailable
from seriatim.engines.grpc.chat_router import Router
from seriatim.engines.grpc.dial import Dialer
from seriatim.engines.grpc.draft_stream import Line, LineBroken
from seriatim.engines.grpc.observer import RpcObserver
from seriatim.engines.grpc.wire import path
from seriatim.ports.clock import Clock


class Peer:
    """`changed` is called whenever `ready` may have become another. `wanted` is false once it is listed no more.

    What speaks for it and against it is reported to the router.
    """

    def __init__(
        self,
        address: str,
        dialer: Dialer,
        clock: Clock,
        router: Router,
        changed: Callable[[], None],
        observe: RpcObserver,
    ) -> None:
        self.address = address
        self.wanted = True
        self._dialer = dialer
        self._clock = clock
        self._router = router
        self._changed = changed
        self._observe = observe
        self._channel: grpc.aio.Channel | None = None
        self._line: Line | None = None
        self._leaving = False

    @property
    def ready(self) -> Line | None:
        """The line that takes drafts."""
        return None if self._leaving or not self.wanted else self._line

    async def run(self) -> None:
        """Keeps a line, until cancelled or unwanted."""
        failures = 0
        while self.wanted:
            if await self._talk():
                failures = 0
            if self.wanted:
                await asyncio.sleep(self._pause_s(failures))
                failures += 1

    async def ask(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        """One question. Raises `OutcomeUnknown` when it stays without an answer."""
        if self._channel is None:
            raise ServiceUnavailable("the durability plane cannot be reached; retry")
        question: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(path(method))
        try:
            return await question(request, timeout=timeout_s, metadata=self._dialer.metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise ServerBusy("the durability plane is busy; retry in a second", retry_after_seconds=1) from None
            raise OutcomeUnknown(f"no answer from the durability plane ({error.code().name}); retry") from None
        except grpc.aio.UsageError:
            raise OutcomeUnknown("the durability plane was lost on the way; retry") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled us: the channel was closed under the call.
            raise OutcomeUnknown("the durability plane was lost on the way; retry") from None

    async def _talk(self) -> bool:
        """One line from its first word to its last. Says whether it ever stood."""
        channel = self._dialer.channel(self.address)
        try:
            line = await Line.open(channel, self._dialer.metadata, self._clock, self)
        except LineBroken as broken:
            self._observe.unreachable(self.address, str(broken))
            await channel.close()
            return False
        except BaseException:
            await channel.close()
            raise
        self._line, self._channel, self._leaving = line, channel, False
        self._observe.joined(self.address)
        why = "closed"
        try:
            self._changed()
            await line.run()
        except LineBroken as broken:
            why = str(broken)
        finally:
            self._line = self._channel = None
            unanswered = line.unanswered
            self._changed()  # first, so that the dead line gets no other draft
            if unanswered:
                self.failed()  # once, however many they are
            line.end()
            self._observe.left(self.address, why, unanswered)
            await channel.close()
        return True

    def leaving(self) -> None:
        self._leaving = True
        self._changed()

    def answered(self) -> None:
        self._router.answered(self.address)

    def failed(self) -> None:
        self._router.failed(self.address)

    def _pause_s(self, failures: int) -> float:
        pause: float = min(limits.RPC_REDIAL_S * 2.0**failures, limits.RPC_REDIAL_MAX_S)
        return pause * (0.5 + self._clock.random() / 2)
