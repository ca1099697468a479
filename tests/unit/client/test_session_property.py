"""Any interleaving of pushes, acks, losses, crashes and syncs: what a device holds up to its cursor is complete."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.client.session_model import READY_STEPS, STEPS, SessionModel, finish, run


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(
    lossy=False,
    connected=True,
    steps=[
        ("send twice and give up", "chat_b"),
        ("answer", False, 0),
        ("post", "chat_b", 0, False, False),
        ("post", "chat_a", 0, False, False),
        ("hear_push",),
    ],
)
@given(lossy=st.booleans(), connected=st.booleans(), steps=st.lists(STEPS, max_size=60))
def test_whatever_happens_the_device_is_complete_up_to_its_cursor_and_in_the_end_altogether(
    lossy: bool, connected: bool, steps: list[tuple[object, ...]]
) -> None:
    model = SessionModel(lossy=lossy)
    for step in [*(READY_STEPS if connected else []), *steps]:
        run(model, step)
    finish(model)
    reported = [key for keys in model.sent.values() for key in keys if key not in model.discarded]
    assert sorted(key for key in model.settled if key not in model.discarded) == sorted(reported)
