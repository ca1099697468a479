"""One-time codes: stored first, delivered afterwards. No request waits for the carrier.

A second request while a code is valid delivers the same code again.
"""

import asyncio
from collections.abc import Callable

from seriatim.domain import limits
from seriatim.domain.account import Code, phone_hash
from seriatim.ports.accounts import Accounts
from seriatim.ports.clock import Clock
from seriatim.ports.code_sender import CodeSender
from seriatim.ports.secrets import Secrets
from seriatim.services.audit import AuditObserver


class OtpService:
    """`new_code` makes six digits out of a clock's random bits; tests hand in one that always makes the same."""

    def __init__(
        self,
        *,
        accounts: Accounts,
        secrets: Secrets,
        sender: CodeSender,
        new_code: Callable[[Clock], str],
        clock: Clock,
        observe: AuditObserver,
    ) -> None:
        self._accounts = accounts
        self._secrets = secrets
        self._new_code = new_code
        self._clock = clock
        self._delivery = _CodeDelivery(sender, observe)

    async def request(self, phone_number: str) -> Code:
        """The code that is valid for this phone now. Its delivery has begun, and may fail unseen by the caller."""
        phone = phone_hash(phone_number)
        now_ms = self._clock.now_ms()
        text = self._new_code(self._clock)
        made = self._make(text, phone, now_ms)
        stored = await self._accounts.issue_code(made, now_ms=now_ms, timeout_s=limits.API_TIMEOUT_S)
        self._delivery.start(phone_number, text if stored.mac == made.mac else self._text_of(stored))
        return stored

    async def settled(self) -> None:
        """Returns once no delivery is under way."""
        await self._delivery.settled()

    async def close(self) -> None:
        """Cancels deliveries under way; their users request a code again."""
        await self._delivery.close()

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
        """The text of an earlier code that is still valid; None if no key opens it."""
        sealed = stored.sealed
        return (
            None if sealed is None else self._secrets.unseal(sealed, _context(stored.phone_hash, stored.expires_at_ms))
        )


class _CodeDelivery:
    """One task per code on its way to the carrier; each ends by itself, or with `close`."""

    def __init__(self, sender: CodeSender, observe: AuditObserver) -> None:
        self._sender = sender
        self._observe = observe
        self._tasks: dict[asyncio.Task[None], None] = {}

    def start(self, phone_number: str, text: str | None) -> None:
        if text is None:
            return
        if len(self._tasks) >= limits.CODE_DELIVERIES_MAX:
            self._observe.audit("auth.otp_delivery_failed", {"phone": phone_hash(phone_number), "reason": "queue full"})
            return
        task = asyncio.get_running_loop().create_task(self._deliver(phone_number, text))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await self.settled()

    async def settled(self) -> None:
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _deliver(self, phone_number: str, text: str) -> None:
        try:
            async with asyncio.timeout(limits.CODE_DELIVERY_S):  # a sender is the one port without a deadline
                await self._sender.send(phone_number, text)
        except Exception as failure:
            # Only the kind: a carrier's message may quote the code.
            fields = {"phone": phone_hash(phone_number), "reason": type(failure).__name__}
            self._observe.audit("auth.otp_delivery_failed", fields)


def _context(phone: str, expires_at_ms: int) -> str:
    return f"otp:{phone}:{expires_at_ms}"
