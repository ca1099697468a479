"""Fanout waits between tries; these tests check that it tries again, not how long it waits."""

import pytest

from seriatim.domain import limits


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOWNSTREAM_BACKOFF_S", "RECORD_RETRY_S", "DEAD_LETTER_RETRY_S", "COMMIT_RETRY_S", "POLL_RETRY_S"):
        monkeypatch.setattr(limits, name, 0.0)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run is longer than one record."""
    monkeypatch.setattr(limits, "RUN_RECORDS_MAX", 1)
