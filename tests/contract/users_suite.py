"""What every store promises about users: one per phone, for ever; and what no call of an account store does: wait."""

import asyncio

import msgspec

from seriatim.domain.errors import AlreadyExists, OutcomeUnknown, UserNotFound
from seriatim.domain.times import iso
from tests.contract.account_data import MAC, PHONE, PHONES, code, issue, people, session, sign_in, user
from tests.contract.store_data import ANN, BOB, LATER_MS, T_S, error_of
from tests.contract.store_engines import StoreEngine


async def a_phone_has_one_user_for_ever(store: StoreEngine) -> None:
    """One user per phone, for ever. Returns the id of the phone's user: this one, or the first."""
    ids = [f"user_{number}" for number in range(8)]
    answers = await asyncio.gather(*(store.accounts().add_user(user(each), timeout_s=T_S) for each in ids))
    assert list(dict.fromkeys(answers)) == [answers[0]]
    await store.reopen()
    assert await store.accounts().add_user(user("user_late"), timeout_s=T_S) == answers[0]
    assert list(await store.accounts().users([*ids, "user_late"], timeout_s=T_S)) == [answers[0]]
    assert await _by_phone(store) == {PHONES[ANN]: answers[0]}
    assert await store.accounts().add_user(user(BOB, PHONES[BOB]), timeout_s=T_S) == BOB


async def who_signed_in_first_has_the_phone(store: StoreEngine) -> None:
    """One user per phone, for ever."""
    await issue(store)
    await sign_in(store, session(), user())
    assert await store.accounts().add_user(user(BOB, PHONES[ANN]), timeout_s=T_S) == ANN
    assert await _by_phone(store) == {PHONES[ANN]: ANN}
    assert list(await store.accounts().users([ANN, BOB], timeout_s=T_S)) == [ANN]


async def an_id_is_not_given_to_a_second_phone(store: StoreEngine) -> None:
    """An id that another phone's user has raises `AlreadyExists`. A refused change raises the reason and
    leaves every row as it was.
    """
    await store.accounts().add_user(user(), timeout_s=T_S)
    before = await people(store)
    stolen = user(ANN, PHONES[BOB])
    assert await error_of(lambda: store.accounts().add_user(stolen, timeout_s=T_S)) is AlreadyExists
    assert await people(store) == before
    assert await store.accounts().add_user(user(BOB, PHONES[BOB]), timeout_s=T_S) == BOB


async def whoever_exists_is_found_by_id_and_by_phone(store: StoreEngine) -> None:
    """Those of them that exist, as of now. The ids of the users with one of these numbers, by number, as of now."""
    handle = store.accounts()
    assert await handle.users([ANN, BOB], timeout_s=T_S) == {}
    assert await _by_phone(store) == {}
    await store.accounts().add_user(user(), timeout_s=T_S)
    assert await handle.users([BOB, ANN, ANN, PHONE, "user_none"], timeout_s=T_S) == {ANN: user()}
    assert await _by_phone(store) == {PHONES[ANN]: ANN}
    await store.accounts().add_user(user(BOB, PHONES[BOB]), timeout_s=T_S)
    assert await handle.users([BOB, ANN], timeout_s=T_S) == {ANN: user(), BOB: user(BOB, PHONES[BOB])}
    assert await _by_phone(store) == {PHONES[ANN]: ANN, PHONES[BOB]: BOB}
    assert await handle.users([], timeout_s=T_S) == {}
    assert await handle.users_by_phone([], timeout_s=T_S) == {}


async def a_renamed_user_is_found_as_changed(store: StoreEngine) -> None:
    """Returns the user as changed. Those of them that exist, as of now."""
    for each in (ANN, BOB):
        await store.accounts().add_user(user(each, PHONES[each]), timeout_s=T_S)
    renamed = await store.accounts().rename_user(ANN, "Ann \N{SNOWMAN}", now_ms=LATER_MS, timeout_s=T_S)
    assert renamed == msgspec.structs.replace(user(), display_name="Ann \N{SNOWMAN}", updated_at=iso(LATER_MS))
    await store.reopen()
    assert await store.accounts().users([ANN, BOB], timeout_s=T_S) == {ANN: renamed, BOB: user(BOB, PHONES[BOB])}
    assert await _by_phone(store) == {PHONES[ANN]: ANN, PHONES[BOB]: BOB}


async def an_unknown_user_is_not_renamed_into_being(store: StoreEngine) -> None:
    """An unknown user raises `UserNotFound`."""
    rename = lambda: store.accounts().rename_user(ANN, "Ann", now_ms=LATER_MS, timeout_s=T_S)  # noqa: E731
    assert await error_of(rename) is UserNotFound
    assert await store.accounts().users([ANN], timeout_s=T_S) == {}


async def a_call_of_the_accounts_without_time_left_ends_at_once(store: StoreEngine) -> None:
    """Every call that leaves the process takes `timeout_s` and promises: it answers within that time or raises
    `OutcomeUnknown`; `Throttled` and `Conflict` mean that nothing was applied.
    """
    handle = store.accounts()
    for call in (
        lambda: handle.session("sess_1", timeout_s=0),
        lambda: store.sessions().session("sess_1", timeout_s=0),
        lambda: handle.issue_code(code(), now_ms=LATER_MS, timeout_s=0),
        lambda: handle.code(PHONE, timeout_s=0),
        lambda: handle.count_attempt(PHONE, now_ms=LATER_MS, timeout_s=0),
        lambda: handle.sign_in(PHONE, MAC, session(), user(), now_ms=LATER_MS, timeout_s=0),
        lambda: handle.sessions_of(ANN, timeout_s=0),
        lambda: handle.open_session(session(), timeout_s=0),
        lambda: handle.rotate("sess_1", old="a", new="b", now_ms=LATER_MS, timeout_s=0),
        lambda: handle.reissue("sess_1", digest="b", now_ms=LATER_MS, timeout_s=0),
        lambda: handle.touch("sess_1", now_ms=LATER_MS, timeout_s=0),
        lambda: handle.revoke("sess_1", timeout_s=0),
        lambda: handle.add_user(user(), timeout_s=0),
        lambda: handle.users([ANN], timeout_s=0),
        lambda: handle.users_by_phone([PHONES[ANN]], timeout_s=0),
        lambda: handle.rename_user(ANN, "Ann", now_ms=LATER_MS, timeout_s=0),
    ):
        assert await error_of(call) is OutcomeUnknown


async def _by_phone(store: StoreEngine) -> dict[str, str]:
    return dict(await store.accounts().users_by_phone([*PHONES.values(), "+999999999"], timeout_s=T_S))
