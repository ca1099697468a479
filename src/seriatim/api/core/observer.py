"""What the REST edge tells of itself. Whoever counts or logs overrides these; by default nobody listens."""

from collections.abc import Mapping


class ApiObserver:
    """Does nothing; override what you want to see. No token, code, text or full phone number ever gets here."""

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request was answered. `route` is its template, or `unmatched`: never what the caller wrote."""

    def failed(self, request_id: str, error: BaseException) -> None:
        """A bug of ours: the caller saw INTERNAL_ERROR and this id."""

    def audit(self, event: str, fields: Mapping[str, object]) -> None:
        """Something that security may ask about later, such as `auth.refresh_token_reuse` or `users.lookup`."""
