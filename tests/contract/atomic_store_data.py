"""What the contract of atomic commits uses: one committed transaction, messages to add, and the counter after them."""

import asyncio
from collections.abc import Callable

import msgspec

from seriatim.domain import limits
from seriatim.domain.errors import SeriatimError
from seriatim.domain.message import Message
from seriatim.ports.atomic_store import AtomicTransaction
from seriatim.ports.event_log import Event
from seriatim.ports.message_log import ChatCounter
from tests.contract.atomic_store_engines import SOON_S, AtomicStoreEngine, committing
from tests.contract.event_engines import until
from tests.contract.store_data import NOW_S, entry

LATE_S = 0.1  # an answer is late if a timer for this long after the deadline ran before it


async def committed(
    engine: AtomicStoreEngine, work: Callable[[AtomicTransaction], None], *, within_s: float = SOON_S
) -> SeriatimError | None:
    """What `done` got, which is called once, in time, and not from within."""
    loop = asyncio.get_running_loop()
    asked_at = loop.time()
    deadline = asked_at + within_s
    late: list[bool] = []
    answered_late: list[bool] = []
    too_late = loop.call_at(max(deadline, asked_at) + LATE_S, late.append, True)
    answered: asyncio.Future[SeriatimError | None] = loop.create_future()

    def answer(error: SeriatimError | None) -> None:
        assert not answered.done(), "called twice"
        answered_late.extend(late)
        answered.set_result(error)

    engine.atomic_store().when_ready(committing(work, answer), deadline=deadline)
    assert not answered.done(), "called from within"
    await until(engine, answered.done, "an answer")
    too_late.cancel()
    assert not answered_late, "called after the deadline"
    return answered.result()


def soon() -> float:
    return asyncio.get_running_loop().time() + SOON_S


def add(transaction: AtomicTransaction, *messages: Message, expires_at_s: int = NOW_S + limits.KEY_LIFETIME_S) -> None:
    """Messages at the end of their chats, each with the counter row."""
    for each in messages:
        row = transaction.counter(each.chat_id)
        assert row is not None
        transaction.add(entry(each, expires_at_s=expires_at_s), Event(key=each.chat_id, value=each.message_id.encode()))
        marks = {"allocated": each.sequence, "published_through": each.sequence, "published_message": each.sequence}
        transaction.put_counter(each.chat_id, msgspec.structs.replace(row, **marks))


def counter_at(sequence: int) -> ChatCounter:
    return ChatCounter(
        allocated=sequence,
        published_through=sequence,
        published_message=sequence,
        members_version=1,
        dirty_at_ms=None,
    )
