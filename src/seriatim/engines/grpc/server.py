"""The ingest process's side: one stream per gateway, whose drafts go to the plane in order, and single calls beside it.

Leaving is polite: gateways are told first, take their chats elsewhere, and hang up once they have their answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import grpc
import msgspec

from seriatim.domain import limits
from seriatim.domain.account import Session
from seriatim.domain.errors import InternalError, SeriatimError
from seriatim.engines.grpc import wire
from seriatim.engines.grpc.dial import SERVER_OPTIONS, Tls, knows_token
from seriatim.engines.grpc.gateway_stream import Context, Conversation
from seriatim.engines.grpc.observer import RpcObserver
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Durability, History

Q = TypeVar("Q", bound=msgspec.Struct)
Handler = Callable[[Q, float], Awaitable[object]]


class Plane(Durability, History, Protocol):
    """What stands behind it."""


class DurabilityServer:
    """`start` it, at the end `leave` and then `stop` it. An empty `token` lets everybody in who can reach us."""

    def __init__(
        self,
        plane: Plane,
        sessions: Sessions,
        clock: Clock,
        *,
        token: str = "",
        tls: Tls | None = None,
        observe: RpcObserver | None = None,
    ) -> None:
        self._plane = plane
        self._sessions = sessions
        self._clock = clock
        self._token = token
        self._tls = tls
        self._observe = observe or RpcObserver()
        self._server: grpc.aio.Server | None = None
        self._conversations: dict[Conversation, None] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.leaving = False

    @property
    def gateways(self) -> int:
        """How many have a stream at this moment."""
        return len(self._conversations)

    async def start(self, host: str, port: int) -> int:
        """Returns the port once calls are taken; 0 takes one that is free. Raises `OSError`."""
        self._server = server = grpc.aio.server(
            options=list(SERVER_OPTIONS), maximum_concurrent_rpcs=limits.RPC_CALLS_MAX
        )
        server.add_generic_rpc_handlers((self._handlers(),))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._tls is None:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, self._tls.server_credentials())
        except RuntimeError as error:
            raise OSError("the address is taken, or not one of this machine") from error
        await server.start()
        return bound

    async def leave(self) -> None:
        """Takes no new stream, asks every gateway to go, and returns when they have, or their time is up."""
        self.leaving = True
        for conversation in self._conversations:
            conversation.leave()
        try:
            async with asyncio.timeout(limits.RPC_LEAVE_S):
                await self._quiet.wait()
        except TimeoutError:
            pass  # who has not heard us by now learns it when we hang up

    async def stop(self) -> None:
        """Ends whatever is left."""
        self.leaving = True
        if self._server is not None:
            await self._server.stop(None)

    # --- the stream ---------------------------------------------------------------------------------------------------

    async def _talk(self, requests: object, context: Context) -> None:
        await self._admit(context)
        if self.leaving:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this process is leaving; ask another")
        conversation = Conversation(self._plane, context, self._clock, self._observe)
        self._conversations[conversation] = None
        self._quiet.clear()
        try:
            await conversation.run()
        finally:
            del self._conversations[conversation]
            if not self._conversations:
                self._quiet.set()

    async def _admit(self, context: Context) -> None:
        metadata = context.invocation_metadata() or ()
        if not knows_token([*metadata], self._token):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "rpc_token differs between these processes")

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _read(self, asked: wire.Read, timeout_s: float) -> object:
        return await self._plane.read(
            asked.user_id, asked.chat_id, after=asked.after, limit=asked.limit, timeout_s=timeout_s
        )

    async def _read_back(self, asked: wire.ReadBack, timeout_s: float) -> object:
        return await self._plane.read_back(
            asked.user_id,
            asked.chat_id,
            before=asked.before,
            after=asked.after,
            limit=asked.limit,
            timeout_s=timeout_s,
        )

    async def _acknowledge(self, asked: wire.Acknowledge, timeout_s: float) -> object:
        await self._plane.acknowledge(asked.user_id, asked.chat_id, sequence=asked.sequence, timeout_s=timeout_s)
        return None

    async def _heads(self, asked: wire.Heads, timeout_s: float) -> object:
        return await self._plane.heads(asked.chat_ids, timeout_s=timeout_s)

    async def _joined(self, asked: wire.Joined, timeout_s: float) -> object:
        return await self._plane.joined(asked.since, timeout_s=timeout_s)

    async def _session(self, asked: wire.Session, timeout_s: float) -> object:
        session = await self._sessions.session(asked.session_id, timeout_s=timeout_s)
        return None if session is None else _without_digests(session)

    def _handlers(self) -> grpc.GenericRpcHandler:
        methods = {
            wire.READ: self._call(wire.READ, wire.Read, self._read),
            wire.READ_BACK: self._call(wire.READ_BACK, wire.ReadBack, self._read_back),
            wire.ACKNOWLEDGE: self._call(wire.ACKNOWLEDGE, wire.Acknowledge, self._acknowledge),
            wire.HEADS: self._call(wire.HEADS, wire.Heads, self._heads),
            wire.JOINED: self._call(wire.JOINED, wire.Joined, self._joined),
            wire.SESSION: self._call(wire.SESSION, wire.Session, self._session),
            wire.TALK: grpc.stream_stream_rpc_method_handler(self._talk),
        }
        return grpc.method_handlers_generic_handler(wire.SERVICE, methods)

    def _call(self, method: str, kind: type[Q], handler: Handler[Q]) -> "grpc.RpcMethodHandler[bytes, bytes]":
        decoder = msgspec.msgpack.Decoder(kind)

        async def answer(request: bytes, context: Context) -> bytes:
            await self._admit(context)
            try:
                value = await handler(wire.decode(decoder, request), _left_s(context))
                result = wire.Result(value=msgspec.Raw(wire.encode(value)))
            except SeriatimError as error:
                result = wire.Result(trouble=wire.trouble_of(error))
            except Exception as error:
                self._observe.failed(method, error)
                result = wire.Result(trouble=wire.trouble_of(InternalError("something went wrong here; retry")))
            return wire.encode(result)

        return grpc.unary_unary_rpc_method_handler(answer)


def _left_s(context: Context) -> float:
    """Of the caller's time. Its type denies that a caller may have set no deadline."""
    left_s: object = context.time_remaining()
    return left_s if isinstance(left_s, float) else limits.API_TIMEOUT_S


def _without_digests(session: Session) -> Session:
    """A gateway asks whether the session lives; the digests of its refresh tokens are for the REST edge alone."""
    return msgspec.structs.replace(session, refresh_digest="", previous_digest=None)
