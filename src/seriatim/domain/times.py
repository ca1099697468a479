"""Times on the wire and in rows: UTC, ISO 8601, exactly three decimals, `Z`. In memory: milliseconds since 1970."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(ms: int) -> str:
    """`1769783400000` -> `2026-01-30T14:30:00.000Z`."""
    moment = _EPOCH + timedelta(milliseconds=ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def milliseconds(text: str) -> int:
    """The inverse of `iso`; any ISO 8601 time with an offset is understood."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
