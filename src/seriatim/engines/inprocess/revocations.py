"""`Revocations` within one process. It began to remember when it was made, or when it last had to forget.

Forgetting is safe because it is admitted: whatever was issued before a forgotten revocation is unsure from then on.
"""

from collections import OrderedDict

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.ports.clock import Clock
from seriatim.ports.revocations import Revocations, Verdict

_KEPT_S = limits.ACCESS_TOKEN_S + limits.TOKEN_ISSUED_LEEWAY_S


class LocalRevocations(Revocations):
    def __init__(self, clock: Clock, *, entries_max: int = limits.REVOCATIONS_MAX) -> None:
        self._clock = clock
        self._entries_max = entries_max
        self._remembers_since_s = self._now_s()
        self._revoked: OrderedDict[str, float] = OrderedDict()  # when, oldest first

    async def revoke(self, session_id: str, token_id: str | None, *, timeout_s: float) -> None:
        _check_time_left(timeout_s)
        self._note(f"session:{session_id}")
        if token_id is not None:
            self._note(f"token:{token_id}")
        self._sweep()

    async def check(self, session_id: str, token_id: str, issued_at_s: int, *, timeout_s: float) -> Verdict:
        _check_time_left(timeout_s)
        if f"session:{session_id}" in self._revoked or f"token:{token_id}" in self._revoked:
            return Verdict.REVOKED
        # Whoever issued it may have had a fast clock: within the tolerance its word proves nothing.
        if issued_at_s < self._remembers_since_s + limits.TOKEN_ISSUED_LEEWAY_S:
            return Verdict.UNSURE
        return Verdict.CLEAR

    def __len__(self) -> int:
        return len(self._revoked)

    def _note(self, name: str) -> None:
        self._revoked[name] = self._now_s()
        self._revoked.move_to_end(name)

    def _sweep(self) -> None:
        """Runs with every revocation, which adds at most two: up to three leave, so there is never a stall."""
        ended_s = self._now_s() - _KEPT_S
        for _ in range(3):
            revoked_s = next(iter(self._revoked.values()))
            if revoked_s > ended_s and len(self._revoked) <= self._entries_max:
                return
            self._revoked.popitem(last=False)
            self._remembers_since_s = max(self._remembers_since_s, revoked_s)

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


def _check_time_left(timeout_s: float) -> None:
    if timeout_s <= 0:
        raise OutcomeUnknown("no time left to ask for revocations; try again")
