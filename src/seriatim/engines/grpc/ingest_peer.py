"""One ingest process as its clients see it: dialled until it answers, ready while its stream is open."""

import asyncio
from collections.abc import Callable

import grpc

from seriatim.domain import limits
from seriatim.domain.backoff import backoff_s
from seriatim.domain.errors import OutcomeUnknown, ServerBusy, ServiceUnavailable
from seriatim.engines.grpc.chat_router import ChatRouter
from seriatim.engines.grpc.dial import GrpcDialer
from seriatim.engines.grpc.draft_stream import DraftStream, StreamBroken
from seriatim.engines.grpc.observer import GrpcObserver
from seriatim.engines.grpc.wire import path
from seriatim.ports.clock import Clock


class IngestPeer:
    """`changed` is called whenever `ready` may have changed. `wanted` is false once its address is no longer listed.

    Its answers and failures are reported to the router.
    """

    def __init__(
        self,
        address: str,
        dialer: GrpcDialer,
        clock: Clock,
        router: ChatRouter,
        changed: Callable[[], None],
        observe: GrpcObserver,
    ) -> None:
        self.address = address
        self.wanted = True
        self._dialer = dialer
        self._clock = clock
        self._router = router
        self._changed = changed
        self._observe = observe
        self._channel: grpc.aio.Channel | None = None
        self._stream: DraftStream | None = None
        self._leaving = False

    @property
    def ready(self) -> DraftStream | None:
        """The stream that takes drafts."""
        return None if self._leaving or not self.wanted else self._stream

    async def run(self) -> None:
        """Keeps a stream open, until cancelled or unwanted."""
        failures = 0
        while self.wanted:
            if await self._run_stream():
                failures = 0
            if self.wanted:
                await asyncio.sleep(self._pause_s(failures))
                failures += 1

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        """One request. Raises `OutcomeUnknown` when it stays without an answer."""
        if self._channel is None:
            raise ServiceUnavailable("the durability plane cannot be reached; retry")
        method_call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(path(method))
        try:
            return await method_call(request, timeout=timeout_s, metadata=self._dialer.metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise ServerBusy("the durability plane is busy; retry in a second", retry_after_seconds=1) from None
            raise OutcomeUnknown(
                "the durability plane gave no answer; retry", log_reason=f"{self.address} answered {error.code().name}"
            ) from None
        except grpc.aio.UsageError:
            raise OutcomeUnknown("the durability plane was lost on the way; retry") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # This task was not cancelled: the channel was closed during the call.
            raise OutcomeUnknown("the durability plane was lost on the way; retry") from None

    async def _run_stream(self) -> bool:
        """One stream from its greeting to its end. True if it was ever open."""
        channel = self._dialer.channel(self.address)
        try:
            stream = await DraftStream.open(channel, self._dialer.metadata, self._clock, self)
        except StreamBroken as broken:
            self._observe.unreachable(self.address, str(broken))
            await channel.close()
            return False
        except BaseException:
            await channel.close()
            raise
        self._stream, self._channel, self._leaving = stream, channel, False
        self._observe.connected(self.address)
        why = "closed"
        try:
            self._changed()
            await stream.run()
        except StreamBroken as broken:
            why = str(broken)
        finally:
            self._stream = self._channel = None
            unanswered = stream.unanswered
            self._changed()  # first, so that the broken stream gets no other draft
            if unanswered:
                self.failed()  # once, however many they are
            stream.end()
            self._observe.disconnected(self.address, why, unanswered)
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
        return backoff_s(
            failures, first_s=limits.GRPC_REDIAL_S, max_s=limits.GRPC_REDIAL_MAX_S, random=self._clock.random
        )
