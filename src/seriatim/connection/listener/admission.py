"""Who may connect: limits by address, then the token, the device, revocation, then limits by user.

Refusals are docs/spec/websocket.md#handshake. Nothing here is logged: a handshake is made of secrets.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import msgspec

from seriatim.connection.listener.handshake import (
    HandshakeRefused,
    check_device,
    check_origin,
    parse_handshake,
    refusal_of,
)
from seriatim.connection.listener.request import Headers, Request
from seriatim.connection.socket import ClientIdentity
from seriatim.domain import limits
from seriatim.domain.addresses import Network, client_address, rate_key
from seriatim.domain.errors import SeriatimError
from seriatim.domain.tokens import Claims
from seriatim.ports.clock import Clock
from seriatim.ports.directory import Directory, Registration
from seriatim.ports.tokens import Authenticator


class Admitted(msgspec.Struct, frozen=True):
    """The client that connects, and the headers of the 101."""

    identity: ClientIdentity
    response_headers: Headers


class Admission:
    """`rate_limits_off`: for tests. `origins`: which pages may connect; None: all of them."""

    def __init__(
        self,
        authenticator: Authenticator,
        directory: Directory,
        clock: Clock,
        *,
        rate_limits_off: bool,
        origins: Iterable[str] | None = None,
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        self.authenticator = authenticator
        self._directory = directory
        self._clock = clock
        self._rate_limits_off = rate_limits_off
        self._origins = None if origins is None else tuple(origin.lower() for origin in origins)
        self._trusted = tuple(trusted_proxies)
        self._by_address = FixedWindowLimiter(limits.ATTEMPTS_PER_ADDRESS_MAX)
        self._by_user = FixedWindowLimiter(limits.CONNECTS_PER_USER_MAX)
        self._handshakes: dict[str, dict[str, int]] = {}  # user -> device -> admitted, and not registered yet

    async def admit(self, request: Request) -> Admitted:
        """Raises `HandshakeRefused`. Call `release` for an admitted client once it is registered, or gone."""
        try:
            self._check_address(request)
            handshake = parse_handshake(request)
            check_origin(request, self._origins)
            claims = self.authenticator.verify(handshake.token)
            device_id = check_device(handshake.device_id, claims)
            await self.authenticator.check_revoked(claims, timeout_s=limits.HANDSHAKE_TIMEOUT_S)
            identity = _identity(claims, device_id)
            connected = await self._connected(identity.user_id)
        except SeriatimError as error:
            raise refusal_of(error) from None
        self._check_user(identity, connected)
        devices = self._handshakes.setdefault(identity.user_id, {})
        devices[device_id] = devices.get(device_id, 0) + 1
        return Admitted(identity, handshake.response_headers)

    def release(self, identity: ClientIdentity) -> None:
        """The connection is registered by now, or has closed."""
        devices = self._handshakes[identity.user_id]
        devices[identity.device_id] -= 1
        if not devices[identity.device_id]:
            del devices[identity.device_id]
        if not devices:
            del self._handshakes[identity.user_id]

    def _check_address(self, request: Request) -> None:
        if self._rate_limits_off:
            return
        peer = "" if request.client is None else request.client[0]
        address = client_address(peer, request.values(b"x-forwarded-for"), self._trusted)
        wait = self._by_address.add(rate_key(address), self._clock.monotonic())
        if wait is not None:
            raise _too_many("too many attempts from this address; wait before the next", wait)

    async def _connected(self, user_id: str) -> Sequence[Registration]:
        if self._rate_limits_off:
            return ()
        found = await self._directory.connections((user_id,), timeout_s=limits.HANDSHAKE_TIMEOUT_S)
        return found.get(user_id, ())

    def _check_user(self, identity: ClientIdentity, connected: Sequence[Registration]) -> None:
        """A device that reconnects replaces its older connection, so it does not count against itself."""
        if self._rate_limits_off:
            return
        devices = dict.fromkeys(each.device_id for each in connected)
        devices.update(dict.fromkeys(self._handshakes.get(identity.user_id, ())))
        devices.pop(identity.device_id, None)
        if len(devices) >= limits.CONNECTIONS_PER_USER_MAX:
            raise _too_many("too many devices are connected; disconnect one", int(limits.REGISTRATION_TTL_S))
        wait = self._by_user.add(identity.user_id, self._clock.monotonic())
        if wait is not None:
            raise _too_many("too many new connections; wait before the next", wait)


def _identity(claims: Claims, device_id: str) -> ClientIdentity:
    return ClientIdentity(
        user_id=claims.sub,
        device_id=device_id,
        session_id=claims.sid,
        token_expires_at_ms=claims.exp * 1000,
        claims=claims,
    )


def _too_many(message: str, wait_s: int) -> HandshakeRefused:
    return HandshakeRefused(429, "rate_limited", message, retry_after_s=wait_s)


class FixedWindowLimiter:
    """At most `limit` attempts per key within a window that begins with the first one.

    In process memory, for ATTEMPT_KEYS_MAX keys: above that the oldest window is dropped. A limit against stampedes and
    guessing, not a promise.
    """

    __slots__ = ("_limit", "_windows")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # [end, count] per key. All windows are equally long, so ends ascend. Not a dict: those are slow at their front.
        self._windows: OrderedDict[str, list[float]] = OrderedDict()

    def add(self, key: str, now: float) -> int | None:
        """Counts one attempt. None: allowed. Otherwise it was not counted, and this many seconds remain."""
        self._drop_ended(now)
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= limits.ATTEMPT_KEYS_MAX:
                self._windows.popitem(last=False)
            self._windows[key] = [now + limits.ATTEMPTS_WINDOW_S, 1]
            return None
        if window[1] >= self._limit:
            return max(1, math.ceil(window[0] - now))
        window[1] += 1
        return None

    def _drop_ended(self, now: float) -> None:
        while self._windows:
            oldest = next(iter(self._windows))
            if self._windows[oldest][0] > now:
                return
            del self._windows[oldest]
