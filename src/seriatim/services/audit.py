"""What security may ask about later. The audit log and its counter override this."""

from collections.abc import Mapping


class AuditObserver:
    """Does nothing; override what you want to see. No token, code, text or full phone number ever gets here."""

    def audit(self, event: str, fields: Mapping[str, object]) -> None:
        """An event such as `auth.refresh_token_reuse`, `auth.otp_delivery_failed` or `users.lookup`."""
