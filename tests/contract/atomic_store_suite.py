"""What every store promises that commits whole sends atomically. Each promise quotes ports/atomic_store.py."""

import asyncio

import msgspec

from seriatim.domain.errors import (
    OutcomeUnknown,
    RowUnreadable,
    SeriatimError,
    ServiceUnavailable,
)
from seriatim.domain.sharding import partition
from seriatim.ports import atomic_store as port
from seriatim.ports.atomic_store import AtomicTransaction
from seriatim.ports.event_log import MESSAGES, Record
from seriatim.ports.message_log import ChatCounter, Key
from tests.contract.atomic_store_data import add, committed, counter_at, soon
from tests.contract.atomic_store_engines import PARTITIONS, AtomicStoreEngine, committing
from tests.contract.event_engines import Suite, until
from tests.contract.store_data import (
    ANN,
    BOB,
    CHAT,
    CID,
    DAN,
    NOW_MS,
    NOW_S,
    T_S,
    all_slots,
    counter,
    found_group,
    key_of,
    message,
    seal,
    store_messages,
)

SUITE: Suite[AtomicStoreEngine] = Suite(port)
CHATS = (CHAT, "chat_2", "chat_3")
HASTY_S = 0.1  # how long a transaction that is held may wait


# --- what a transaction does ------------------------------------------------------------------------------------------


@SUITE.promise
async def all_of_a_transaction_is_there_once_it_is_done_even_if_its_process_dies(engine: AtomicStoreEngine) -> None:
    """None: all that the transaction saw and changed survives a crash, and its events can be read.

    Stores a message and its key, and appends its event to the topic of messages. Writes the counter row.
    """
    stored = [message(number, chat_id=chat_id) for chat_id in CHATS for number in (1, 2)]
    for chat_id in CHATS:
        await found_group(engine.store, chat_id)
    assert await committed(engine, lambda transaction: add(transaction, *stored)) is None
    await engine.reopen()
    for chat_id in CHATS:
        mine = [each for each in stored if each.chat_id == chat_id]
        assert await all_slots(engine.store, chat_id) == mine
        names = [each.client_message_id for each in mine]
        found = await engine.store.log().lookup(chat_id, names, [], timeout_s=T_S)
        assert found.keys == {each.client_message_id: key_of(each) for each in mine}
        assert found.counter == counter_at(2)
        places = [(each.partition.number, each.value) for each in engine.events() if each.key == chat_id.encode()]
        number = partition(chat_id, PARTITIONS[MESSAGES])
        assert places == [(number, each.message_id.encode()) for each in mine]


@SUITE.promise
async def a_transaction_finds_its_own_changes(engine: AtomicStoreEngine) -> None:
    """The rows as one transaction finds them, its own changes included."""
    await found_group(engine.store)
    found: list[object] = []

    def work(transaction: AtomicTransaction) -> None:
        transaction.expect([(CHAT, "key-1")])
        found.extend((transaction.key(CHAT, "key-1"), transaction.counter(CHAT)))
        add(transaction, message(1))
        found.extend((transaction.key(CHAT, "key-1"), transaction.counter(CHAT)))
        found.extend(transaction.is_member(CHAT, user_id) for user_id in (ANN, BOB, DAN))

    assert await committed(engine, work) is None
    assert found == [None, counter_at(0), key_of(message(1)), counter_at(1), True, True, False]


@SUITE.promise
async def transactions_and_other_changes_do_not_come_between_each_other(engine: AtomicStoreEngine) -> None:
    """Nothing else is decided meanwhile.

    Its slot is above the counter, so it is free.
    """
    await found_group(engine.store)
    numbers: list[int] = []

    def next_one(transaction: AtomicTransaction) -> None:
        row = transaction.counter(CHAT)
        assert row is not None
        numbers.append(row.allocated + 1)
        add(transaction, message(row.allocated + 1))

    joining = engine.store.catalog()
    await asyncio.gather(
        *(committed(engine, next_one) for _ in range(10)),
        *(joining.mute(CHAT, CID, None, timeout_s=T_S) for _ in range(3)),
        joining.remove_member(CHAT, CID, by=ANN, now_ms=NOW_MS, timeout_s=T_S),
    )
    assert sorted(numbers) == list(range(1, 11))
    assert await counter(engine.store) == msgspec.structs.replace(counter_at(10), members_version=2)
    assert [each.value for each in engine.events()] == [message(each).message_id.encode() for each in range(1, 11)]


@SUITE.promise
async def a_transaction_finds_what_was_answered_before(engine: AtomicStoreEngine) -> None:
    """The rows as one transaction finds them, its own changes included."""
    await found_group(engine.store)
    await engine.store.catalog().remove_member(CHAT, BOB, by=ANN, now_ms=NOW_MS, timeout_s=T_S)
    await store_messages(engine.store, message(1, sender=CID))
    found: list[object] = []
    assert await committed(engine, lambda transaction: found.append(transaction.key(CHAT, "key-1"))) is None
    assert await committed(engine, lambda transaction: found.append(transaction.is_member(CHAT, BOB))) is None
    assert found == [key_of(message(1, sender=CID)), False]


@SUITE.promise
async def a_counter_that_is_missing_or_below_its_slots_is_not_trusted(engine: AtomicStoreEngine) -> None:
    """None: there is no counter, or slots above it are filled, so nothing may be added in this way."""
    for chat_id in CHATS:
        await found_group(engine.store, chat_id)
    await seal(engine.store.log(), 5)
    await engine.store.lose_counter("chat_2")
    found: list[ChatCounter | None] = []
    asked = (*CHATS, "chat_none")
    assert (
        await committed(engine, lambda transaction: found.extend(transaction.counter(each) for each in asked)) is None
    )
    assert found == [None, None, counter_at(0), None]


@SUITE.promise
async def keys_are_found_expected_or_not_and_expired_or_not(engine: AtomicStoreEngine) -> None:
    """Present, if expired too.

    These (chat, client_message_id) will be asked for: an engine may fetch them together.
    """
    for chat_id in CHATS[:2]:
        await found_group(engine.store, chat_id)
    old, other = message(1), message(1, chat_id="chat_2")
    expired = NOW_S - 1

    def store(transaction: AtomicTransaction) -> None:
        add(transaction, old, expires_at_s=expired)
        add(transaction, other)

    found: list[Key | None] = []

    def look(transaction: AtomicTransaction) -> None:
        transaction.expect([(CHAT, "key-1"), ("chat_2", "key-2"), (CHAT, "key-1")])
        found.extend(transaction.key(chat_id, key) for chat_id in CHATS[:2] for key in ("key-1", "key-2"))

    assert await committed(engine, store) is None
    assert await committed(engine, look) is None
    assert found == [key_of(old, expires_at_s=expired), None, key_of(other), None]


@SUITE.promise
async def a_row_that_cannot_be_read_fails_its_own_chat_only(engine: AtomicStoreEngine) -> None:
    """A row that cannot be read raises `RowUnreadable` where it is asked for, and fails nothing else of the
    transaction.

    These (chat, client_message_id) will be asked for: an engine may fetch them together.
    """
    for chat_id in CHATS[:2]:
        await found_group(engine.store, chat_id)
    await engine.store.damage_counter(CHAT)
    asked: list[type[object]] = []

    def work(transaction: AtomicTransaction) -> None:
        transaction.expect([(CHAT, "key-1"), ("chat_2", "key-1")])
        try:
            transaction.counter(CHAT)
        except SeriatimError as error:
            asked.append(type(error))
        add(transaction, message(1, chat_id="chat_2"))

    assert await committed(engine, work) is None
    assert asked == [RowUnreadable]
    assert await all_slots(engine.store, "chat_2") == [message(1, chat_id="chat_2")]


@SUITE.promise
async def a_new_message_takes_the_place_of_an_expired_key(engine: AtomicStoreEngine) -> None:
    """Stores a message and its key, and appends its event to the topic of messages."""
    await found_group(engine.store)
    assert await committed(engine, lambda transaction: add(transaction, message(1), expires_at_s=NOW_S - 1)) is None
    again = message(2, key="key-1")
    found: list[Key | None] = []

    def work(transaction: AtomicTransaction) -> None:
        transaction.expect([(CHAT, "key-1")])
        add(transaction, again)
        found.append(transaction.key(CHAT, "key-1"))

    assert await committed(engine, work) is None
    assert found == [key_of(again)]
    looked = await engine.store.log().lookup(CHAT, ["key-1"], [], timeout_s=T_S)
    assert looked.keys == {"key-1": key_of(again)}


# --- when it begins and is done ---------------------------------------------------------------------------------------


@SUITE.promise
async def begin_and_done_are_called_once_and_never_from_within(engine: AtomicStoreEngine) -> None:
    """Calls `begin` once, soon, and never from within: with a transaction, or with the error why there is none.

    `begin` reads and changes rows by plain calls, and commits before it returns.
    Ends the transaction. Calls `done` once, never from within, at the latest at the deadline.
    """
    await found_group(engine.store)
    heard: list[str] = []
    engine.atomic_store().when_ready(
        committing(lambda transaction: heard.append("begun"), lambda error: heard.append(f"{error}")), deadline=soon()
    )
    assert heard == []
    await until(engine, lambda: len(heard) >= 2, "an answer")
    await asyncio.sleep(0.05)
    assert heard == ["begun", "None"]


@SUITE.promise
async def done_may_ask_for_the_next_transaction(engine: AtomicStoreEngine) -> None:
    """Calls `begin` once, soon, and never from within: with a transaction, or with the error why there is none."""
    await found_group(engine.store)
    answers: list[SeriatimError | None] = []

    def again(error: SeriatimError | None) -> None:
        answers.append(error)
        if len(answers) < 4:
            number = len(answers) + 1
            engine.atomic_store().when_ready(
                committing(lambda transaction: add(transaction, message(number)), again), deadline=soon()
            )

    engine.atomic_store().when_ready(
        committing(lambda transaction: add(transaction, message(1)), again), deadline=soon()
    )
    await until(engine, lambda: len(answers) == 4, "four answers")
    assert answers == [None] * 4
    assert await counter(engine.store) == counter_at(4)


@SUITE.promise
async def events_are_read_once_it_is_done_and_not_while_it_is_decided(engine: AtomicStoreEngine) -> None:
    """None: all that the transaction saw and changed survives a crash, and its events can be read."""
    await found_group(engine.store)
    before: list[Record] = []
    after: list[list[Record]] = []

    def work(transaction: AtomicTransaction) -> None:
        add(transaction, message(1))
        before.extend(engine.events())

    engine.atomic_store().when_ready(
        committing(work, lambda error: after.append(list(engine.events()))), deadline=soon()
    )
    await until(engine, lambda: bool(after), "an answer")
    assert before == []
    assert [record.value for record in after[0]] == [message(1).message_id.encode()]


@SUITE.promise
async def a_transaction_that_has_not_begun_by_its_deadline_never_begins(engine: AtomicStoreEngine) -> None:
    """`deadline`, of the event loop's clock, holds for `begin` and for `done`: a transaction that has not begun by
    then never begins.
    """
    await found_group(engine.store)
    begun: list[AtomicTransaction] = []
    await engine.hold()
    errors = [await committed(engine, begun.append, within_s=each) for each in (HASTY_S, 0.0, -1.0)]
    assert [type(each) for each in errors] == [OutcomeUnknown] * 3
    engine.release()
    assert await committed(engine, lambda transaction: add(transaction, message(1))) is None
    assert begun == []


@SUITE.promise
async def a_transaction_of_unknown_outcome_is_there_as_a_whole_or_not_at_all(engine: AtomicStoreEngine) -> None:
    """An error: nothing was changed, or, with `OutcomeUnknown`, all of it or nothing, now or later."""
    await found_group(engine.store)
    engine.hold_answers()
    begun: list[AtomicTransaction] = []

    def work(transaction: AtomicTransaction) -> None:
        begun.append(transaction)
        add(transaction, message(1), message(2))

    assert isinstance(await committed(engine, work, within_s=HASTY_S), OutcomeUnknown)
    assert len(begun) == 1
    engine.release()
    assert await committed(engine, lambda transaction: None) is None
    left = [each.sequence for each in await all_slots(engine.store)]
    assert left in ([], [1, 2])
    assert await counter(engine.store) == counter_at(len(left))
    assert [each.value for each in engine.events()] == [message(each).message_id.encode() for each in left]


@SUITE.promise
async def a_transaction_without_a_commit_leaves_nothing(engine: AtomicStoreEngine) -> None:
    """A transaction without a `commit` has changed nothing.

    If `begin` raises, the loop's exception handler gets the error, and other transactions go on.
    """
    await found_group(engine.store)
    caught: list[object] = []
    loop, bug = asyncio.get_running_loop(), RuntimeError("a bug")
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: caught.append(context.get("exception")))

    def dropped(transaction: AtomicTransaction | SeriatimError) -> None:
        assert not isinstance(transaction, SeriatimError)
        add(transaction, message(1, content="spoilt"))

    def failing(transaction: AtomicTransaction | SeriatimError) -> None:
        dropped(transaction)
        raise bug

    for begin in (dropped, failing):
        engine.atomic_store().when_ready(begin, deadline=soon())
    assert await committed(engine, lambda transaction: add(transaction, message(1))) is None
    loop.set_exception_handler(handler)
    assert caught == [bug]
    assert await all_slots(engine.store) == [message(1)]
    assert [each.value for each in engine.events()] == [message(1).message_id.encode()]


@SUITE.promise
async def a_store_that_cannot_write_says_so_and_leaves_nothing(engine: AtomicStoreEngine) -> None:
    """An error: nothing was changed, or, with `OutcomeUnknown`, all of it or nothing, now or later."""
    await found_group(engine.store)
    engine.fail()
    begun: list[AtomicTransaction] = []
    errors = [
        await committed(engine, lambda transaction: add(transaction, message(1))),
        await committed(engine, begun.append),
    ]
    assert all(isinstance(each, ServiceUnavailable) for each in errors)
    assert (begun, engine.events()) == ([], [])


@SUITE.promise
async def a_closed_store_refuses_and_begins_nothing(engine: AtomicStoreEngine) -> None:
    """An error: nothing was changed, or, with `OutcomeUnknown`, all of it or nothing, now or later."""
    begun: list[AtomicTransaction] = []
    await engine.shut()
    assert type(await committed(engine, begun.append)) is ServiceUnavailable
    assert begun == []
