"""`POST /auth/request-otp`: a one-time code for a phone. The same answer whether or not anybody has that number.

The code is stored first and sent afterwards; nobody waits for the carrier.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from seriatim.api.core.fields import Time
from seriatim.api.core.observer import ApiObserver
from seriatim.api.core.rate_limit import Bucket
from seriatim.api.core.route import ApiRequest, ApiResponse
from seriatim.domain import limits
from seriatim.domain.account import Code, is_phone_number, phone_hash
from seriatim.domain.addresses import rate_key
from seriatim.domain.errors import ValidationFailed
from seriatim.domain.times import iso
from seriatim.ports.accounts import Accounts
from seriatim.ports.clock import Clock
from seriatim.ports.code_sender import CodeSender
from seriatim.ports.secrets import Secrets

PhoneNumber = Annotated[
    str, Meta(pattern=r"^\+[1-9][0-9]{6,14}$", description="E.164, with country.", examples=["+4915112345678"])
]


class CodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    phone_number: PhoneNumber


class CodeSent(msgspec.Struct, frozen=True, kw_only=True):
    phone_number: PhoneNumber
    expires_at: Time
    retry_after_seconds: Annotated[int, Meta(description="Wait this long before you ask for the code again.")]


class Codes:
    """`new_code` makes six digits out of a clock's chance; tests hand in one that always makes the same."""

    def __init__(
        self,
        *,
        accounts: Accounts,
        secrets: Secrets,
        sender: CodeSender,
        new_code: Callable[[Clock], str],
        clock: Clock,
        observe: ApiObserver,
    ) -> None:
        self._accounts = accounts
        self._secrets = secrets
        self._new_code = new_code
        self._clock = clock
        self._courier = _Courier(sender, observe)

    async def request(self, request: ApiRequest[CodeRequest, Any]) -> ApiResponse:
        phone_number = check_phone(request.body.phone_number)
        phone = phone_hash(phone_number)
        # The address first: who asks from one address for many numbers must not use up those numbers' own quota.
        await request.spend(_of_address(request.client_ip))
        await request.spend(_of_phone(phone))
        now_ms = self._clock.now_ms()
        text = self._new_code(self._clock)
        made = self._make(text, phone, now_ms)
        stored = await self._accounts.issue_code(made, now_ms=now_ms, timeout_s=limits.API_TIMEOUT_S)
        self._courier.take(phone_number, text if stored.mac == made.mac else self._text_of(stored))
        return ApiResponse(
            data=CodeSent(
                phone_number=phone_number,
                expires_at=iso(stored.expires_at_ms),
                retry_after_seconds=limits.CODE_RESEND_S,
            )
        )

    async def settled(self) -> None:
        """Returns once every code that was on its way arrived, or did not."""
        await self._courier.settled()

    async def close(self) -> None:
        """Codes on their way are given up; whoever waits for one asks again."""
        await self._courier.close()

    def _make(self, text: str, phone: str, now_ms: int) -> Code:
        expires_at_ms = now_ms + limits.CODE_LIFETIME_S * 1000
        return Code(
            phone_hash=phone,
            mac=self._secrets.code_mac(text, phone, expires_at_ms),
            sealed=self._secrets.seal(text, _context(phone, expires_at_ms)),
            created_at_ms=now_ms,
            expires_at_ms=expires_at_ms,
        )

    def _text_of(self, stored: Code) -> str | None:
        """An earlier code is still pending: the same one is sent again, if we can read it."""
        sealed = stored.sealed
        return (
            None if sealed is None else self._secrets.unseal(sealed, _context(stored.phone_hash, stored.expires_at_ms))
        )


class _Courier:
    """Takes codes to the sender, many at a time; each ends by itself, or with `close`."""

    def __init__(self, sender: CodeSender, observe: ApiObserver) -> None:
        self._sender = sender
        self._observe = observe
        self._under_way: dict[asyncio.Task[None], None] = {}

    def take(self, phone_number: str, text: str | None) -> None:
        if text is None:
            return
        if len(self._under_way) >= limits.CODE_DELIVERIES_MAX:
            self._observe.audit("auth.otp_delivery_failed", {"phone": phone_hash(phone_number), "reason": "queue full"})
            return
        task = asyncio.get_running_loop().create_task(self._deliver(phone_number, text))
        self._under_way[task] = None
        task.add_done_callback(self._under_way.pop)

    async def close(self) -> None:
        for task in list(self._under_way):
            task.cancel()
        await self.settled()

    async def settled(self) -> None:
        while self._under_way:
            await asyncio.wait(list(self._under_way))

    async def _deliver(self, phone_number: str, text: str) -> None:
        try:
            async with asyncio.timeout(limits.CODE_DELIVERY_S):  # a sender is the one port without a deadline
                await self._sender.send(phone_number, text)
        except Exception as failure:
            # Only the kind: a carrier's message may quote the code.
            fields = {"phone": phone_hash(phone_number), "reason": type(failure).__name__}
            self._observe.audit("auth.otp_delivery_failed", fields)


def check_phone(phone_number: str) -> str:
    if not is_phone_number(phone_number):  # a pattern lets a final line break pass
        raise ValidationFailed(
            "phone_number must be E.164, such as +4915112345678", field="phone_number", field_code="INVALID_FORMAT"
        )
    return phone_number


def _context(phone: str, expires_at_ms: int) -> str:
    return f"otp:{phone}:{expires_at_ms}"


def _of_address(client_ip: str) -> Bucket:
    address = hashlib.sha256(rate_key(client_ip).encode()).hexdigest()
    return Bucket(name=f"otp_req:ip:{address}", limit=limits.CODES_PER_ADDRESS_MAX, window_s=limits.CODE_QUOTA_S)


def _of_phone(phone: str) -> Bucket:
    return Bucket(
        name=f"otp_req:phone:{phone}", limit=limits.CODES_PER_PHONE_MAX, window_s=limits.CODE_QUOTA_S, fail_closed=True
    )
