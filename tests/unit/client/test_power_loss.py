"""A device that loses power between any two writes of its store goes on where it was.

Nothing is handed out twice, nothing is passed over, and every message the user wrote is in the outbox or at the server.
"""

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seriatim.client.timeline import Timeline
from seriatim.domain.message import Message
from tests.unit.client.session_model import CHATS, READY_STEPS, STEPS, SessionModel, finish, run

Steps = list[tuple[object, ...]]

A, B = CHATS


def posts(chat: str, count: int, *, holes: int = 0, lose: bool = False, names: bool = True) -> Steps:
    return [("post", chat, holes, lose, names)] * count


ANSWERED: Steps = [("answer", False, 0), ("hear_answer",)]
UNANSWERED: Steps = [("tick",), ("tick",), ("tick",), ("tick",)]  # the send is made again, 10 s later

# What happens to a device whose chats are synced. `lossy` worlds lose pushes and name every predecessor.
SCENARIOS: Mapping[str, tuple[bool, Steps]] = {
    "pushes": (False, [*posts(A, 3), ("hear_push",), ("hear_push",), ("hear_push",)]),
    "pages": (False, [("disconnect",), *posts(A, 8, holes=1), *posts(B, 2), ("tick",), *READY_STEPS, *ANSWERED * 5]),
    "a lost push": (True, [*posts(A, 2, lose=True), *posts(A, 1), ("hear_push",), *ANSWERED]),
    "an own message": (False, [("send", A), *ANSWERED, *posts(A, 1), ("hear_push",)]),
    "own messages in two chats": (False, [("send", A), ("send", B), ("send", A), *ANSWERED * 3]),
    "an own message above a hole": (True, [("send", A), *posts(A, 2), *ANSWERED, ("hear_push",), ("hear_push",)]),
    "an own message that a page shows": (
        True,
        [("send", A), *posts(A, 1, lose=True), ("answer", False, 1), *posts(A, 1), ("hear_push",), *ANSWERED * 2],
    ),
    "an own message that failed and was stored": (
        False,
        [("send", A), ("answer", True, 0), ("hear_push",), ("hear_answer",), *UNANSWERED, *ANSWERED],
    ),
    "a refusal, and the user insists": (
        False,
        [("send", A), ("send", A), ("refuse",), ("hear_answer",), ("resend",), *ANSWERED * 2],
    ),
    "a refusal, and the user gives up": (
        False,
        [("send", A), ("refuse",), ("hear_answer",), ("discard",), *posts(A, 2, names=False), *[("hear_push",)] * 2],
    ),
    "given up, and the second try is stored": (
        False,
        [
            *[("send", A), *UNANSWERED, ("refuse",), ("hear_answer",), ("discard",), *ANSWERED],
            *[*posts(A, 1, names=False), ("hear_push",), *ANSWERED * 2],
        ],
    ),
}


def played(lossy: bool, steps: Steps, stops: list[int]) -> SessionModel:
    model = SessionModel(lossy=lossy, stops=stops)
    for step in [*READY_STEPS, *steps]:
        run(model, step)
    finish(model)
    return model


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_write_is_the_last_one_before_power_is_lost_the_device_goes_on_where_it_was(name: str) -> None:
    lossy, steps = SCENARIOS[name]
    writes = played(lossy, steps, []).store.writes
    assert writes > 0
    for first in range(writes):
        played(lossy, steps, [first])
        for second in range(4):  # and again, while what the first left behind is repaired
            played(lossy, steps, [first, second])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    lossy=st.booleans(),
    steps=st.lists(STEPS, max_size=60),
    stops=st.lists(st.integers(0, 12), max_size=6),
)
def test_whatever_happens_and_whenever_power_is_lost_the_device_is_complete_in_the_end(
    lossy: bool, steps: Steps, stops: list[int]
) -> None:
    played(lossy, steps, stops)


# --- the rules that these tests guard ---------------------------------------------------------------------------------


def test_the_loss_of_the_rule_that_messages_are_stored_before_the_cursor_moves_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Timeline._extend

    def extend(self: Timeline, fresh: list[Message], end: int) -> list[Message]:
        self._store.advance_cursor(self.chat_id, end)
        return original(self, fresh, end)

    monkeypatch.setattr(Timeline, "_extend", extend)
    for name in ("pushes", "pages", "a lost push"):
        with pytest.raises(AssertionError):
            test_whatever_write_is_the_last_one_before_power_is_lost_the_device_goes_on_where_it_was(name)
