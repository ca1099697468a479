"""`Durability`, `History` and `Sessions` through the ingest processes: all sends of a chat go to one of them, in order.

A rendezvous hash of the chat's bucket decides which one; a wrong one is safe and only slower
(docs/spec/delivery.md#write-path).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from seriatim.domain import limits
from seriatim.domain.account import Session
from seriatim.domain.errors import OutcomeUnknown, ServerBusy, ServiceUnavailable
from seriatim.domain.message import Draft
from seriatim.domain.sharding import bucket, owner
from seriatim.engines.grpc import wire
from seriatim.engines.grpc.chat_router import ChatRouter, ChooseAddress
from seriatim.engines.grpc.dial import GrpcDialer
from seriatim.engines.grpc.discovery import AddressSource
from seriatim.engines.grpc.ingest_peer import IngestPeer
from seriatim.engines.grpc.observer import GrpcObserver
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Answer, BackPage, Durability, History, PrefixPage

T = TypeVar("T")


def rendezvous(key: str, addresses: Sequence[str]) -> str:
    return owner(bucket(key), addresses)


class GrpcDurability(Durability, History, Sessions):
    """`run` it until cancelled. `choose` picks an address for a chat; any choice is safe, `rendezvous` is fast."""

    def __init__(
        self,
        source: AddressSource,
        dialer: GrpcDialer,
        clock: Clock,
        *,
        choose: ChooseAddress = rendezvous,
        observe: GrpcObserver | None = None,
    ) -> None:
        self._source = source
        self._dialer = dialer
        self._clock = clock
        self._choose = choose
        self._router = ChatRouter(clock, choose)
        self._observe = observe or GrpcObserver()
        self._peers: dict[str, IngestPeer] = {}
        self._tasks: dict[asyncio.Task[None], IngestPeer] = {}
        self._any_ready = asyncio.Event()  # set while any peer is ready
        self._calls = 0

    @property
    def ready(self) -> Sequence[str]:
        """The ingest processes that take drafts at this moment."""
        return self._router.ready

    @property
    def breaker_open(self) -> bool:
        """One of them keeps failing; its chats go to others, as long as there are any."""
        return self._router.breaker_open

    async def run(self) -> None:
        """Discovers ingest processes and keeps a stream to each."""
        try:
            while True:
                await self._discover()
                await asyncio.sleep(limits.GRPC_RESOLVE_S)
        finally:
            for task, peer in self._tasks.items():
                peer.wanted = False  # a stream that breaks at this moment may swallow the cancellation
                task.cancel()
            for task in list(self._tasks):
                await asyncio.wait((task,))

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        self._router.submit(draft, deadline=deadline, answer=answer)

    # --- calls: one request, one result -------------------------------------------------------------------------------

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        request = wire.ReadCall(user_id, chat_id, after, limit)
        return await self._call(chat_id, wire.READ, request, _prefix_page, timeout_s)

    async def read_back(
        self, user_id: str, chat_id: str, *, before: int, after: int, limit: int, timeout_s: float
    ) -> BackPage:
        request = wire.ReadBackCall(user_id, chat_id, before, after, limit)
        return await self._call(chat_id, wire.READ_BACK, request, _back_page, timeout_s)

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        request = wire.AcknowledgeCall(user_id, chat_id, sequence)
        await self._call(chat_id, wire.ACKNOWLEDGE, request, _nothing, timeout_s)

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        """The first chat's process answers for all: marks are in the store, a pipeline may know newer ones."""
        if not chat_ids:
            return {}
        return await self._call(chat_ids[0], wire.HEADS, wire.HeadsCall(tuple(chat_ids)), _heads, timeout_s)

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        """Any process can answer; the first user decides which one is called."""
        if not since:
            return {}
        return await self._call(next(iter(since)), wire.JOINED, wire.JoinedCall(dict(since)), _joined, timeout_s)

    async def session(self, session_id: str, *, timeout_s: float) -> Session | None:
        """Without the digests of its refresh tokens, which stay with the REST edge."""
        return await self._call(session_id, wire.SESSION, wire.SessionCall(session_id), _session, timeout_s)

    async def _call(
        self, key: str, method: str, request: msgspec.Struct, answer: "msgspec.msgpack.Decoder[T]", timeout_s: float
    ) -> T:
        if self._calls >= limits.GRPC_CALLS_MAX:
            raise ServerBusy("too many requests wait for the durability plane; retry", retry_after_seconds=1)
        self._calls += 1
        try:
            until = self._clock.monotonic() + timeout_s
            peer = await self._peer_for(key, timeout_s)
            left_s = until - self._clock.monotonic()
            result = wire.decode(_result, await peer.call(method, wire.encode(request), timeout_s=left_s))
            if result.error is not None:
                raise wire.from_wire_error(result.error)
            return wire.decode(answer, result.value)
        except wire.MalformedBytes as error:
            raise OutcomeUnknown("the durability plane gave no answer; retry", log_reason=str(error)) from error
        finally:
            self._calls -= 1

    async def _peer_for(self, key: str, timeout_s: float) -> IngestPeer:
        if not self._router.ready:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._any_ready.wait()
            except TimeoutError:
                raise ServiceUnavailable("the durability plane cannot be reached; retry") from None
        return self._peers[self._choose(key, self._router.preferred)]

    # --- peers --------------------------------------------------------------------------------------------------------

    async def _discover(self) -> None:
        try:
            addresses = await self._source.addresses()
        except OSError as error:
            self._observe.unreachable("ingest", f"their addresses cannot be resolved: {error}")
            return  # the known peers stay
        for address in addresses:
            if address not in self._peers:
                self._add_peer(address)
        for address, peer in self._peers.items():
            peer.wanted = address in addresses  # drafts in flight on an unwanted one are still answered
        self._update_streams()

    def _add_peer(self, address: str) -> None:
        self._peers[address] = peer = IngestPeer(
            address, self._dialer, self._clock, self._router, self._update_streams, self._observe
        )
        task = asyncio.create_task(peer.run())
        self._tasks[task] = peer
        task.add_done_callback(self._peer_ended)

    def _peer_ended(self, task: asyncio.Task[None]) -> None:
        peer = self._tasks.pop(task)
        if self._peers.get(peer.address) is peer:
            del self._peers[peer.address]
            self._router.forget(peer.address)
        self._update_streams()

    def _update_streams(self) -> None:
        streams = {address: peer.ready for address, peer in self._peers.items()}
        self._router.set_streams({address: stream for address, stream in streams.items() if stream is not None})
        if self._router.ready:
            self._any_ready.set()
        else:
            self._any_ready.clear()


_result = msgspec.msgpack.Decoder(wire.CallResult)
_prefix_page = msgspec.msgpack.Decoder(PrefixPage)
_back_page = msgspec.msgpack.Decoder(BackPage)
_nothing = msgspec.msgpack.Decoder(type(None))
_heads = msgspec.msgpack.Decoder(dict[str, int])
_joined = msgspec.msgpack.Decoder(dict[str, list[str]])
_session: "msgspec.msgpack.Decoder[Session | None]" = msgspec.msgpack.Decoder(Session | None)
