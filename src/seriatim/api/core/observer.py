"""What the REST API reports about itself. Counters and logs override these methods."""

from seriatim.domain.errors import SeriatimError
from seriatim.services.audit import AuditObserver


class ApiObserver(AuditObserver):
    """Does nothing; override what you want to see. No token, code, text or full phone number ever gets here."""

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request was answered. `route` is its template, or `unmatched`: never what the caller wrote."""

    def unavailable(self, request_id: str, route: str, error: SeriatimError) -> None:
        """An engine failed: the caller was asked to retry, and `error.log_reason` says why."""

    def failed(self, request_id: str, error: BaseException) -> None:
        """A bug of this server: the caller saw INTERNAL_ERROR and this id."""
