"""Access tokens: made by the REST edge alone, checked by it and by every gateway."""

from typing import Protocol

from seriatim.domain.tokens import Claims


class TokenSigner(Protocol):
    def sign(self, claims: Claims) -> str:
        """A token that every authenticator with the public keys accepts until it expires or is revoked."""
        ...


class Authenticator(Protocol):
    def verify(self, token: str, *, expired_too: bool = False) -> Claims:
        """What the token vouches for, by signature and times alone.

        Raises `Unauthorized` with `details.reason` `token_invalid` or `token_expired`; no other algorithm or key than
        those of this deployment is accepted, whatever the token asks for. `expired_too` waives the expiry and nothing
        else.
        """
        ...

    async def check_revoked(self, claims: Claims, *, timeout_s: float) -> None:
        """Raises `Unauthorized` with `details.reason` `token_revoked` when token or session was revoked.

        The fast answer is used only when it is sure; otherwise the authority decides. When neither answers, it raises
        `ServiceUnavailable`: closed, not open.
        """
        ...
