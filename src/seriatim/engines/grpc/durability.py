"""`Durability`, `History` and `Sessions` by way of the ingest processes: a chat goes to one of them, in order.

Which one, a rendezvous hash of its bucket decides; a wrong one is harmless and only slower
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
from seriatim.engines.grpc.chat_router import Choice, Router
from seriatim.engines.grpc.dial import Dialer
from seriatim.engines.grpc.discovery import Finder
from seriatim.engines.grpc.ingest_peer import Peer
from seriatim.engines.grpc.observer import RpcObserver
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Answer, BackPage, Durability, History, PrefixPage

T = TypeVar("T")


def rendezvous(key: str, addresses: Sequence[str]) -> str:
    return owner(bucket(key), addresses)


class RpcDurability(Durability, History, Sessions):
    """`run` it until cancelled. `choose` picks an address for a chat; another choice than ours costs only speed."""

    def __init__(
        self,
        finder: Finder,
        dialer: Dialer,
        clock: Clock,
        *,
        choose: Choice = rendezvous,
        observe: RpcObserver | None = None,
    ) -> None:
        self._finder = finder
        self._dialer = dialer
        self._clock = clock
        self._choose = choose
        self._router = Router(clock, choose)
        self._observe = observe or RpcObserver()
        self._peers: dict[str, Peer] = {}
        self._tasks: dict[asyncio.Task[None], Peer] = {}
        self._someone = asyncio.Event()  # set while anybody is ready
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
        """Finds ingest processes and keeps a line to each."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(limits.RPC_RESOLVE_S)
        finally:
            for task, peer in self._tasks.items():
                peer.wanted = False  # a line that breaks at this very moment may swallow the cancellation
                task.cancel()
            for task in list(self._tasks):
                await asyncio.wait((task,))

    def submit(self, draft: Draft, *, deadline: float, answer: Answer) -> None:
        self._router.submit(draft, deadline=deadline, answer=answer)

    # --- calls: one question, one answer ------------------------------------------------------------------------------

    async def read(self, user_id: str, chat_id: str, *, after: int, limit: int, timeout_s: float) -> PrefixPage:
        request = wire.Read(user_id, chat_id, after, limit)
        return await self._ask(chat_id, wire.READ, request, _prefix_page, timeout_s)

    async def read_back(
        self, user_id: str, chat_id: str, *, before: int, after: int, limit: int, timeout_s: float
    ) -> BackPage:
        request = wire.ReadBack(user_id, chat_id, before, after, limit)
        return await self._ask(chat_id, wire.READ_BACK, request, _back_page, timeout_s)

    async def acknowledge(self, user_id: str, chat_id: str, *, sequence: int, timeout_s: float) -> None:
        request = wire.Acknowledge(user_id, chat_id, sequence)
        await self._ask(chat_id, wire.ACKNOWLEDGE, request, _nothing, timeout_s)

    async def heads(self, chat_ids: Sequence[str], *, timeout_s: float) -> Mapping[str, int]:
        """The first chat's process answers for all: marks are in the store, a pipeline only knows better."""
        if not chat_ids:
            return {}
        return await self._ask(chat_ids[0], wire.HEADS, wire.Heads(tuple(chat_ids)), _heads, timeout_s)

    async def joined(self, since: Mapping[str, str], *, timeout_s: float) -> Mapping[str, Sequence[str]]:
        """Any process knows it; the first user decides which one is asked."""
        if not since:
            return {}
        return await self._ask(next(iter(since)), wire.JOINED, wire.Joined(dict(since)), _joined, timeout_s)

    async def session(self, session_id: str, *, timeout_s: float) -> Session | None:
        """Without the digests of its refresh tokens, which are nobody's business here."""
        return await self._ask(session_id, wire.SESSION, wire.Session(session_id), _session, timeout_s)

    async def _ask(
        self, key: str, method: str, request: msgspec.Struct, answer: "msgspec.msgpack.Decoder[T]", timeout_s: float
    ) -> T:
        if self._calls >= limits.RPC_CALLS_MAX:
            raise ServerBusy("too many requests wait for the durability plane; retry", retry_after_seconds=1)
        self._calls += 1
        try:
            until = self._clock.monotonic() + timeout_s
            peer = await self._reachable(key, timeout_s)
            left_s = until - self._clock.monotonic()
            result = wire.decode(_result, await peer.ask(method, wire.encode(request), timeout_s=left_s))
            if result.trouble is not None:
                raise wire.error_of(result.trouble)
            return wire.decode(answer, result.value)
        except wire.Malformed as error:
            raise OutcomeUnknown(str(error)) from error
        finally:
            self._calls -= 1

    async def _reachable(self, key: str, timeout_s: float) -> Peer:
        if not self._router.ready:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._someone.wait()
            except TimeoutError:
                raise ServiceUnavailable("the durability plane cannot be reached; retry") from None
        return self._peers[self._choose(key, self._router.trusted)]

    # --- who is there -------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        try:
            addresses = await self._finder.look()
        except OSError as error:
            self._observe.unreachable("ingest", f"nobody can tell where they are: {error}")
            return  # those that we know are as good as before
        for address in addresses:
            if address not in self._peers:
                self._meet(address)
        for address, peer in self._peers.items():
            peer.wanted = address in addresses  # what an unwanted one has under way is still answered
        self._changed()

    def _meet(self, address: str) -> None:
        self._peers[address] = peer = Peer(
            address, self._dialer, self._clock, self._router, self._changed, self._observe
        )
        task = asyncio.create_task(peer.run())
        self._tasks[task] = peer
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        peer = self._tasks.pop(task)
        if self._peers.get(peer.address) is peer:
            del self._peers[peer.address]
            self._router.forget(peer.address)
        self._changed()

    def _changed(self) -> None:
        lines = {address: peer.ready for address, peer in self._peers.items()}
        self._router.changed({address: line for address, line in lines.items() if line is not None})
        if self._router.ready:
            self._someone.set()
        else:
            self._someone.clear()


_result = msgspec.msgpack.Decoder(wire.Result)
_prefix_page = msgspec.msgpack.Decoder(PrefixPage)
_back_page = msgspec.msgpack.Decoder(BackPage)
_nothing = msgspec.msgpack.Decoder(type(None))
_heads = msgspec.msgpack.Decoder(dict[str, int])
_joined = msgspec.msgpack.Decoder(dict[str, list[str]])
_session: "msgspec.msgpack.Decoder[Session | None]" = msgspec.msgpack.Decoder(Session | None)
