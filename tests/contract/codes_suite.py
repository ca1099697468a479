"""What every store promises about one-time codes: one at a time, few tries, and a sign-in that is whole or nothing."""

import asyncio

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.domain.account import Spent
from seriatim.domain.errors import AlreadyExists, InvalidOtp
from tests.contract.account_data import (
    CODE_END_MS,
    MAC,
    PHONE,
    PHONES,
    People,
    code,
    code_of,
    issue,
    people,
    session,
    session_of,
    sessions_of,
    sign_in,
    user,
)
from tests.contract.store_data import ANN, BOB, LATER_MS, NOW_MS, T_S, error_of, eventually
from tests.contract.store_engines import StoreEngine

# --- codes ------------------------------------------------------------------------------------------------------------


async def of_concurrent_codes_for_a_phone_one_is_pending(store: StoreEngine) -> None:
    """At most one pending code per phone. Returns the phone's pending code: this one, or the first."""
    answers = await asyncio.gather(*(issue(store, code(f"mac-{number}")) for number in range(8)))
    assert answers == [answers[0]] * 8
    await store.reopen()
    assert await code_of(store) == answers[0]
    assert await issue(store, code("late"), now_ms=CODE_END_MS - 1) == answers[0]
    another_phone = code("other", of="0" * 64)
    assert await issue(store, another_phone) == another_phone
    assert await code_of(store) == answers[0]


async def a_code_that_took_tries_is_still_the_pending_one(store: StoreEngine) -> None:
    """At most one pending code per phone."""
    await issue(store)
    for _ in range(limits.CODE_ATTEMPTS_MAX):
        assert await _try(store)
    worn = msgspec.structs.replace(code(), attempts=limits.CODE_ATTEMPTS_MAX)
    assert await issue(store, code("mac-2")) == worn
    assert await code_of(store) == worn


async def a_code_that_expired_or_was_spent_is_replaced_at_once(store: StoreEngine) -> None:
    """Returns the phone's pending code: this one, or the first."""
    await issue(store)
    await _try(store)
    second = code("mac-2", created_at_ms=CODE_END_MS)
    assert await issue(store, second, now_ms=CODE_END_MS) == second
    assert await code_of(store) == second
    await sign_in(store, mac="mac-2", now_ms=CODE_END_MS)
    third = code("mac-3", created_at_ms=CODE_END_MS + 1)
    assert await issue(store, third, now_ms=CODE_END_MS + 1) == third
    assert await code_of(store) == third


async def the_last_code_is_found_pending_spent_and_expired(store: StoreEngine) -> None:
    """The phone's last code as of now, pending, spent or expired. It is kept until `CODE_KEPT_S` after its end."""
    assert await code_of(store) is None
    await issue(store)
    assert await code_of(store) == code()
    await sign_in(store)
    spent = msgspec.structs.replace(
        code(), spent=Spent(session_id="sess_1", device_id="device-of-sess_1", is_new_user=False)
    )
    assert await code_of(store) == spent
    for number in range(10):  # a store that tidies up does it at such times
        await issue(store, code(of=f"{number:064}"), now_ms=CODE_END_MS + 1000 * limits.CODE_KEPT_S - 1)
    assert await code_of(store) == spent
    await store.reopen()
    assert await code_of(store) == spent


async def tries_are_counted_up_to_the_limit_and_no_further(store: StoreEngine) -> None:
    """Counts one try at the phone's code, a spent one too. False, and nothing counted, when there is none, it has
    expired or `CODE_ATTEMPTS_MAX` tries are used up.
    """
    await issue(store)
    await issue(store, code(of="0" * 64))
    counted = await asyncio.gather(*(_try(store) for _ in range(limits.CODE_ATTEMPTS_MAX + 4)))
    assert sorted(counted) == [False] * 4 + [True] * limits.CODE_ATTEMPTS_MAX
    await store.reopen()
    assert not await _try(store)
    assert await code_of(store) == msgspec.structs.replace(code(), attempts=limits.CODE_ATTEMPTS_MAX)
    assert await code_of(store, "0" * 64) == code(of="0" * 64)


async def tries_at_a_spent_code_count_and_at_an_expired_or_unknown_one_do_not(store: StoreEngine) -> None:
    """Counts one try at the phone's code, a spent one too. False, and nothing counted, when there is none, it has
    expired or `CODE_ATTEMPTS_MAX` tries are used up.
    """
    assert not await _try(store)
    assert await code_of(store) is None
    await issue(store)
    await sign_in(store)
    assert await _try(store, now_ms=CODE_END_MS - 1)
    before = await code_of(store)
    assert before is not None
    assert (before.attempts, before.spent is not None) == (1, True)
    assert not await _try(store, now_ms=CODE_END_MS)
    assert await code_of(store) == before


# --- signing in -------------------------------------------------------------------------------------------------------


async def a_sign_in_spends_the_code_and_creates_session_and_user_at_once(store: StoreEngine) -> None:
    """Spends the pending code and creates the session, and the user if one is given: all or nothing."""
    await issue(store)
    signed_in = People(
        code=msgspec.structs.replace(
            code(), spent=Spent(session_id="sess_1", device_id="device-of-sess_1", is_new_user=True)
        ),
        users={ANN: user()},
        phones={PHONES[ANN]: ANN},
        sessions={"sess_1": session()},
    )
    before = await people(store)
    signing_in = asyncio.create_task(sign_in(store, session(), user()))
    visible = False
    while not visible:  # any of it
        finished = signing_in.done()
        visible = await people(store) != before
        assert visible or not finished
    assert await people(store) == signed_in
    await signing_in
    await store.reopen()
    assert await people(store) == signed_in


async def of_concurrent_sign_ins_with_one_code_one_wins(store: StoreEngine) -> None:
    """Spends the pending code and creates the session, and the user if one is given: all or nothing. Raises
    `InvalidOtp` when the code is not pending, expired or another one, or when the phone has another user by now.
    """
    await issue(store)
    ids = [f"user_{number}" for number in range(8)]
    outcomes = await asyncio.gather(
        *(sign_in(store, session(f"sess_of_{each}", user_id=each), user(each)) for each in ids), return_exceptions=True
    )
    assert [type(each) for each in outcomes if each is not None] == [InvalidOtp] * 7
    winner = ids[outcomes.index(None)]
    await store.reopen()
    handle = store.accounts()
    assert list(await handle.users(ids, timeout_s=T_S)) == [winner]
    assert await handle.users_by_phone([PHONES[ANN]], timeout_s=T_S) == {PHONES[ANN]: winner}
    opened = [each for each in ids if await session_of(store, f"sess_of_{each}") is not None]
    assert opened == [winner]
    spent = await code_of(store)
    assert spent is not None
    assert spent.spent is not None
    assert spent.spent.session_id == f"sess_of_{winner}"


async def a_known_user_signs_in_with_as_many_devices_as_codes(store: StoreEngine) -> None:
    """Spends the pending code and creates the session, and the user if one is given: all or nothing."""
    await store.accounts().add_user(user(), timeout_s=T_S)
    for number in range(3):
        assert await issue(store, code(f"mac-{number}")) == code(f"mac-{number}")
        await sign_in(store, session(f"sess_{number}"), mac=f"mac-{number}")
    await eventually(lambda: sessions_of(store), [session(f"sess_{number}") for number in range(3)])
    assert await store.accounts().users([ANN], timeout_s=T_S) == {ANN: user()}


async def only_the_pending_code_signs_in(store: StoreEngine) -> None:
    """Raises `InvalidOtp` when the code is not pending, expired or another one, or when the phone has another user by
    now. A refused change raises the reason and leaves every row as it was.
    """
    before = await people(store)
    assert await error_of(lambda: sign_in(store, session(), user())) is InvalidOtp
    assert await people(store) == before
    await issue(store)
    issued = await people(store)
    for mac, now_ms in (("mac-2", NOW_MS), ("", NOW_MS), (MAC[:-1], NOW_MS), (MAC, CODE_END_MS)):
        refused = await _refused(store, mac, now_ms)
        assert refused is InvalidOtp, (mac, now_ms)
        assert await people(store) == issued
    await sign_in(store, now_ms=CODE_END_MS - 1)
    signed_in = await people(store)
    assert await _refused(store, MAC, NOW_MS) is InvalidOtp
    assert await people(store) == signed_in


async def who_finds_the_phone_taken_does_not_sign_in(store: StoreEngine) -> None:
    """Raises `InvalidOtp` when the code is not pending, expired or another one, or when the phone has another user by
    now.
    """
    await issue(store)
    assert await store.accounts().add_user(user(BOB, PHONES[ANN]), timeout_s=T_S) == BOB
    before = await people(store)
    with pytest.raises(InvalidOtp):
        await sign_in(store, session(), user())
    assert await people(store) == before
    await sign_in(store, session(user_id=BOB))
    assert await session_of(store) == session(user_id=BOB)


async def a_taken_id_is_not_signed_in_with(store: StoreEngine) -> None:
    """A taken session or user id raises `AlreadyExists`. A refused change raises the reason and leaves
    every row as it was.
    """
    await issue(store)
    await store.accounts().add_user(user(BOB, PHONES[BOB]), timeout_s=T_S)
    await store.accounts().open_session(session(user_id=BOB), timeout_s=T_S)
    before = await people(store)
    assert await error_of(lambda: sign_in(store, session(), user())) is AlreadyExists
    assert await people(store) == before
    as_bob = session("sess_2", user_id=BOB)
    assert await error_of(lambda: sign_in(store, as_bob, user(BOB, PHONES[ANN]))) is AlreadyExists
    assert await people(store) == before
    await sign_in(store, session("sess_2"), user())
    assert (await people(store)).users[ANN] == user()


async def what_a_sign_in_replaces_goes_with_it_and_stays_if_it_is_refused(store: StoreEngine) -> None:
    """The sessions of these ids that it `replaces` are gone with it, and stay if it is refused."""
    await issue(store)
    await store.accounts().add_user(user(), timeout_s=T_S)
    for session_id in ("sess_a", "sess_b", "sess_c"):
        await store.accounts().open_session(session(session_id), timeout_s=T_S)
    replaces = ["sess_a", "sess_c", "sess_before_has"]
    with pytest.raises(InvalidOtp):
        await sign_in(store, session("sess_d"), mac="another", replaces=replaces)
    assert await _there(store) == ["sess_a", "sess_b", "sess_c"]
    await sign_in(store, session("sess_d"), replaces=replaces)
    await store.reopen()
    assert await _there(store) == ["sess_b", "sess_d"]


async def _there(store: StoreEngine) -> list[str]:
    ids = ("sess_a", "sess_b", "sess_c", "sess_d")
    return [each for each in ids if await store.sessions().session(each, timeout_s=T_S) is not None]


async def _try(store: StoreEngine, *, now_ms: int = LATER_MS) -> bool:
    return await store.accounts().count_attempt(PHONE, now_ms=now_ms, timeout_s=T_S)


async def _refused(store: StoreEngine, mac: str, now_ms: int) -> type[Exception] | None:
    return await error_of(lambda: sign_in(store, session("sess_2"), user(), mac=mac, now_ms=now_ms))
