"""The ingest process's side: one stream per gateway, whose drafts go to the plane in order, and unary calls beside it.

Before it stops, gateways are asked to leave: they route their chats elsewhere, and close when they have their answers.
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
from seriatim.engines.grpc.dial import SERVER_OPTIONS, MutualTls, has_token
from seriatim.engines.grpc.gateway_stream import CallContext, GatewayStream
from seriatim.engines.grpc.observer import GrpcObserver
from seriatim.ports.accounts import Sessions
from seriatim.ports.clock import Clock
from seriatim.ports.durability import Durability, History

Request = TypeVar("Request", bound=msgspec.Struct)
CallHandler = Callable[[Request, float], Awaitable[object]]


class ServedDurability(Durability, History, Protocol):
    """What this server makes callable."""


class DurabilityServer:
    """`start` it, at the end `leave` and then `stop` it. An empty `token` admits every caller."""

    def __init__(
        self,
        plane: ServedDurability,
        sessions: Sessions,
        clock: Clock,
        *,
        token: str = "",
        tls: MutualTls | None = None,
        observe: GrpcObserver | None = None,
    ) -> None:
        self._plane = plane
        self._sessions = sessions
        self._clock = clock
        self._token = token
        self._tls = tls
        self._observe = observe or GrpcObserver()
        self._server: grpc.aio.Server | None = None
        self._streams: dict[GatewayStream, None] = {}
        self._no_streams = asyncio.Event()
        self._no_streams.set()
        self.leaving = False

    @property
    def gateways(self) -> int:
        """How many have a stream open."""
        return len(self._streams)

    async def start(self, host: str, port: int) -> int:
        """Returns the port once calls are taken; 0 takes one that is free. Raises `OSError`."""
        self._server = server = grpc.aio.server(
            options=list(SERVER_OPTIONS), maximum_concurrent_rpcs=limits.GRPC_CALLS_MAX
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
        """Takes no new stream, asks every gateway to leave, and returns when all have, or after `GRPC_LEAVE_S`."""
        self.leaving = True
        for stream in self._streams:
            stream.leave()
        try:
            async with asyncio.timeout(limits.GRPC_LEAVE_S):
                await self._no_streams.wait()
        except TimeoutError:
            pass  # the gateways that are left notice it when `stop` closes their streams

    async def stop(self) -> None:
        """Ends the streams and calls that are left."""
        self.leaving = True
        if self._server is not None:
            await self._server.stop(None)

    # --- the stream ---------------------------------------------------------------------------------------------------

    async def _draft_stream(self, requests: object, context: CallContext) -> None:
        await self._admit(context)
        if self.leaving:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this process is leaving; call another")
        stream = GatewayStream(self._plane, context, self._clock, self._observe)
        self._streams[stream] = None
        self._no_streams.clear()
        try:
            await stream.run()
        finally:
            del self._streams[stream]
            if not self._streams:
                self._no_streams.set()

    async def _admit(self, context: CallContext) -> None:
        metadata = context.invocation_metadata() or ()
        if not has_token([*metadata], self._token):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "rpc_token differs between these processes")

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _read(self, request: wire.ReadCall, timeout_s: float) -> object:
        return await self._plane.read(
            request.user_id, request.chat_id, after=request.after, limit=request.limit, timeout_s=timeout_s
        )

    async def _read_back(self, request: wire.ReadBackCall, timeout_s: float) -> object:
        return await self._plane.read_back(
            request.user_id,
            request.chat_id,
            before=request.before,
            after=request.after,
            limit=request.limit,
            timeout_s=timeout_s,
        )

    async def _acknowledge(self, request: wire.AcknowledgeCall, timeout_s: float) -> object:
        await self._plane.acknowledge(request.user_id, request.chat_id, sequence=request.sequence, timeout_s=timeout_s)
        return None

    async def _heads(self, request: wire.HeadsCall, timeout_s: float) -> object:
        return await self._plane.heads(request.chat_ids, timeout_s=timeout_s)

    async def _joined(self, request: wire.JoinedCall, timeout_s: float) -> object:
        return await self._plane.joined(request.since, timeout_s=timeout_s)

    async def _session(self, request: wire.SessionCall, timeout_s: float) -> object:
        session = await self._sessions.session(request.session_id, timeout_s=timeout_s)
        return None if session is None else _without_digests(session)

    def _handlers(self) -> grpc.GenericRpcHandler:
        methods = {
            wire.READ: self._call(wire.READ, wire.ReadCall, self._read),
            wire.READ_BACK: self._call(wire.READ_BACK, wire.ReadBackCall, self._read_back),
            wire.ACKNOWLEDGE: self._call(wire.ACKNOWLEDGE, wire.AcknowledgeCall, self._acknowledge),
            wire.HEADS: self._call(wire.HEADS, wire.HeadsCall, self._heads),
            wire.JOINED: self._call(wire.JOINED, wire.JoinedCall, self._joined),
            wire.SESSION: self._call(wire.SESSION, wire.SessionCall, self._session),
            wire.DRAFT_STREAM: grpc.stream_stream_rpc_method_handler(self._draft_stream),
        }
        return grpc.method_handlers_generic_handler(wire.SERVICE, methods)

    def _call(
        self, method: str, kind: type[Request], handler: CallHandler[Request]
    ) -> "grpc.RpcMethodHandler[bytes, bytes]":
        decoder = msgspec.msgpack.Decoder(kind)

        async def answer(request: bytes, context: CallContext) -> bytes:
            await self._admit(context)
            try:
                value = await handler(wire.decode(decoder, request), _left_s(context))
                result = wire.CallResult(value=msgspec.Raw(wire.encode(value)))
            except SeriatimError as error:
                result = wire.CallResult(error=wire.to_wire_error(error))
            except Exception as error:
                self._observe.call_failed(method, error)
                result = wire.CallResult(error=wire.to_wire_error(InternalError("something went wrong here; retry")))
            return wire.encode(result)

        return grpc.unary_unary_rpc_method_handler(answer)


def _left_s(context: CallContext) -> float:
    """The rest of the caller's deadline. grpc's type denies that a caller may have set none."""
    left_s: object = context.time_remaining()
    return left_s if isinstance(left_s, float) else limits.API_TIMEOUT_S


def _without_digests(session: Session) -> Session:
    """A gateway only needs to know that the session exists; digests of refresh tokens stay with the REST edge."""
    return msgspec.structs.replace(session, refresh_digest="", previous_digest=None)
