"""`Revocations` within one process. Complete since the process started, or since an entry was last dropped.

Dropping is safe: every token issued before a dropped revocation is `UNSURE` from then on.
"""

from collections import OrderedDict

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.ports.clock import Clock
from seriatim.ports.revocations import Revocations, Verdict

_KEPT_S = limits.ACCESS_TOKEN_S + limits.TOKEN_ISSUED_LEEWAY_S


class InProcessRevocations(Revocations):
    def __init__(self, clock: Clock, *, entries_max: int = limits.REVOCATIONS_MAX) -> None:
        self._clock = clock
        self._entries_max = entries_max
        self._complete_since_s = self._now_s()
        self._revoked: OrderedDict[str, float] = OrderedDict()  # when, oldest first

    async def revoke(self, session_id: str, token_id: str | None, *, timeout_s: float) -> None:
        _check_time_left(timeout_s)
        self._add(f"session:{session_id}")
        if token_id is not None:
            self._add(f"token:{token_id}")
        self._sweep()

    async def check(self, session_id: str, token_id: str, issued_at_s: int, *, timeout_s: float) -> Verdict:
        _check_time_left(timeout_s)
        if f"session:{session_id}" in self._revoked or f"token:{token_id}" in self._revoked:
            return Verdict.REVOKED
        # The issuer's clock may be fast: within the leeway the issue time proves nothing.
        if issued_at_s < self._complete_since_s + limits.TOKEN_ISSUED_LEEWAY_S:
            return Verdict.UNSURE
        return Verdict.CLEAR

    def __len__(self) -> int:
        return len(self._revoked)

    def _add(self, name: str) -> None:
        self._revoked[name] = self._now_s()
        self._revoked.move_to_end(name)

    def _sweep(self) -> None:
        """Runs with every revocation, which adds at most two: up to three are dropped, so it never takes long."""
        ended_s = self._now_s() - _KEPT_S
        for _ in range(3):
            revoked_s = next(iter(self._revoked.values()))
            if revoked_s > ended_s and len(self._revoked) <= self._entries_max:
                return
            self._revoked.popitem(last=False)
            self._complete_since_s = max(self._complete_since_s, revoked_s)

    def _now_s(self) -> float:
        return self._clock.now_ms() / 1000


def _check_time_left(timeout_s: float) -> None:
    if timeout_s <= 0:
        raise OutcomeUnknown("no time left to check revocations; try again")
