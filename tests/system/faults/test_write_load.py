"""Those who judge the fault tests: a load counts what belongs to it, and names what was acknowledged and is not there.

No server here: devices are handed the frames of an unlucky moment, and users the history that REST would show them.
"""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from tests.system.faults.write_load import RetryingDevice, WriteLoad
from tests.system.users import Json, User

TALK, EARLIER = "chat_of_this_talk", "chat_of_an_earlier_talk"


class FakeEndpoint:
    host, port = "127.0.0.1", 1


class FakeUser(User):
    """Signed in nowhere. `histories`: what REST would show, by chat."""

    def __init__(self, user_id: str, histories: Mapping[str, Sequence[Json]]) -> None:
        self.user_id = user_id
        self.server = self.gateway = FakeEndpoint()
        self._histories = histories

    def history(self, chat_id: str) -> list[Json]:
        return list(self._histories.get(chat_id, ()))


def message(chat_id: str, sequence: int, sender: str = "ada", name: str = "") -> Json:
    name = name or f"{chat_id}-{sequence}"
    return {
        "message_id": f"msg_{name}",
        "chat_id": chat_id,
        "sequence": sequence,
        "sender_id": sender,
        "client_message_id": f"key of {name}",
        "content": f"text of {name}",
        "content_type": "text/plain",
        "created_at": "2026-01-01T00:00:00.000Z",
    }


def talk_of(histories: Mapping[str, Sequence[Json]]) -> tuple[WriteLoad, RetryingDevice, RetryingDevice]:
    ada, bob = (RetryingDevice(FakeUser(each, histories), [FakeEndpoint()], [TALK]) for each in ("ada", "bob"))
    return WriteLoad([ada, bob], [TALK]), ada, bob


def push(message: Json, *devices: RetryingDevice) -> None:
    for device in devices:
        device._received({"type": "message", **message})


def acknowledge(message: Json, device: RetryingDevice, *, asked: bool = True) -> None:
    if asked:
        device._asked[message["client_message_id"]] = message["chat_id"]
        device.unacked.setdefault(message["chat_id"], {})[message["client_message_id"]] = message["content"]
    names = ("client_message_id", "chat_id", "message_id", "sequence", "created_at")
    device._received({"type": "message_ack", **{name: message[name] for name in names}})


async def test_a_message_that_was_acknowledged_and_seen_by_all_is_no_loss() -> None:
    said = message(TALK, 1)
    load, ada, bob = talk_of({TALK: [said]})
    acknowledge(said, ada)
    push(said, bob)
    await load.check_agreement()
    assert (list(ada.acked_at), list(bob.seen_at)) == ([said["message_id"]], [said["message_id"]])


async def test_what_fanout_pushes_of_an_earlier_talk_is_no_ack_and_no_arrival_of_this_one() -> None:
    """A fanout that was held up, or reads again from its commit, pushes to the devices that are connected by then.

    The connection on which it was sent is gone, so its writer is pushed it, too: no connection owns it any more.
    """
    said, before = message(TALK, 1), message(EARLIER, 7)
    load, ada, bob = talk_of({TALK: [said], EARLIER: [before]})
    acknowledge(said, ada)
    push(said, bob)
    push(before, ada, bob)
    assert (list(ada.acked_at), list(bob.seen_at)) == ([said["message_id"]], [said["message_id"]])
    await load.check_agreement()


async def test_a_late_push_of_an_earlier_message_is_no_progress() -> None:
    load, ada, bob = talk_of({})
    waiting = asyncio.create_task(load.progress())
    await asyncio.sleep(0)
    for sequence in (1, 2, 3):
        push(message(EARLIER, sequence, "ada"), ada)
        push(message(EARLIER, sequence, "bob"), bob)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting, 0.1)


@pytest.mark.parametrize("history", [[], [message(EARLIER, 7, name="another")]], ids=["nothing", "another"])
async def test_a_push_of_an_earlier_talk_that_its_history_does_not_hold_is_a_finding(history: list[Json]) -> None:
    load, ada, _ = talk_of({EARLIER: history})
    push(message(EARLIER, 7), ada)
    with pytest.raises(AssertionError, match=r"not in their history: .*user 0.*msg_chat_of_an_earlier_talk-7"):
        await load.check_agreement()


async def test_an_acknowledged_message_that_the_store_has_lost_is_named() -> None:
    load, ada, bob = talk_of({TALK: []})
    acknowledge(message(TALK, 1, name="lost"), ada)
    push(message(TALK, 1, name="lost"), bob)
    with pytest.raises(AssertionError, match=r"not in the history: .*user 0.*msg_lost.*user 1.*msg_lost"):
        await load.check_agreement()


async def test_an_acknowledged_message_is_missed_although_another_one_is_in_its_place() -> None:
    """All devices and the history agree, since the first to come keeps its place."""
    stored, lost = message(TALK, 1, "bob"), message(TALK, 1, name="lost")
    load, ada, bob = talk_of({TALK: [stored]})
    acknowledge(stored, bob)
    push(stored, ada)
    acknowledge(lost, ada)
    with pytest.raises(AssertionError, match=r"acknowledged and not stored: .*user 0.*msg_lost.*two messages in one"):
        await load.check_agreement()


async def test_an_ack_of_what_was_never_sent_from_here_is_a_fault() -> None:
    _, ada, _ = talk_of({})
    acknowledge(message(EARLIER, 7), ada, asked=False)
    assert [fault.partition(":")[0] for fault in ada.faults] == ["an ack that nobody asked for"]


async def test_a_message_reported_with_two_places_is_a_fault_whether_by_push_or_ack() -> None:
    said, again = message(TALK, 1), {**message(TALK, 1), "sequence": 2, "message_id": "msg_again"}
    for first, second in ((push, acknowledge), (acknowledge, push), (acknowledge, acknowledge), (push, push)):
        _, ada, _ = talk_of({})
        first(said, ada)
        second(again, ada)
        assert [fault.partition(":")[0] for fault in ada.faults] == ["one message in two places"]
