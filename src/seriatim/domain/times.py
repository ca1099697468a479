"""Times on the wire and in rows: UTC, ISO 8601, exactly three decimals, `Z`. In memory: milliseconds since 1970."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(ms: int) -> str:
    """`1769783400000` -> `2026-01-30T14:30:00.000Z`."""
    return f"{_to_the_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=256)  # most times asked for lie within the same few seconds
def _to_the_second(seconds: int) -> str:
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"


def milliseconds(text: str) -> int:
    """The inverse of `iso`; any ISO 8601 time with an offset is understood."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
