"""What every store promises about sessions: found until revoked, one refresh token at a time, and gone for good."""

import asyncio
from functools import partial

import msgspec

from seriatim.domain.account import Session
from seriatim.domain.errors import AlreadyExists
from tests.contract.account_data import (
    SESSION_END_MS,
    code,
    issue,
    people,
    rotate,
    session,
    session_of,
    sessions_of,
    sign_in,
)
from tests.contract.store_data import ANN, BOB, LATER_MS, NOW_MS, T_S, error_of, eventually
from tests.contract.store_engines import StoreEngine


async def a_session_is_as_of_now_for_gateways_too(store: StoreEngine) -> None:
    """The session as of now, expired or not; None when there is none, or it was revoked."""
    gateway = store.sessions()
    assert await gateway.session("sess_1", timeout_s=T_S) is None
    await _open(store)
    assert await gateway.session("sess_1", timeout_s=T_S) == session()
    assert await rotate(store)
    found = await gateway.session("sess_1", timeout_s=T_S)
    assert found is not None
    assert found.refresh_digest == "digest-2"
    await store.accounts().revoke("sess_1", timeout_s=T_S)
    assert await gateway.session("sess_1", timeout_s=T_S) is None


async def a_gateways_handle_cannot_write(store: StoreEngine) -> None:
    """All that a gateway may ask of this authority."""
    writes = ("issue_code", "count_attempt", "sign_in", "open_session", "rotate", "reissue", "touch", "revoke")
    people_too = ("add_user", "rename_user", "users", "users_by_phone", "code", "sessions_of")
    handle = store.sessions()
    assert [name for name in writes + people_too if hasattr(handle, name)] == []
    assert [name for name in writes + people_too if not hasattr(store.accounts(), name)] == []


async def the_sessions_of_a_user_are_found_oldest_first(store: StoreEngine) -> None:
    """The user's sessions, oldest first, expired ones too. May lag behind."""
    ages = {"sess_b": 2, "sess_c": 1, "sess_a": 3}
    for session_id, age in ages.items():
        await _open(store, session_id, created_at_ms=NOW_MS + age)
    await _open(store, "sess_x", user_id=BOB)
    expired = session("sess_old", created_at_ms=NOW_MS - SESSION_END_MS // 2)
    await store.accounts().open_session(expired, timeout_s=T_S)

    async def ids(user_id: str) -> list[str]:
        return [each.session_id for each in await sessions_of(store, user_id)]

    await eventually(lambda: ids(ANN), ["sess_old", "sess_c", "sess_b", "sess_a"])
    await eventually(lambda: ids(BOB), ["sess_x"])
    await eventually(lambda: ids("user_"), list[str]())  # not every user whose id begins like this
    await store.accounts().revoke("sess_b", timeout_s=T_S)
    await eventually(lambda: ids(ANN), ["sess_old", "sess_c", "sess_a"])
    await store.reopen()
    await eventually(lambda: ids(ANN), ["sess_old", "sess_c", "sess_a"])


async def a_list_of_sessions_shows_them_as_they_are(store: StoreEngine) -> None:
    """The user's sessions, oldest first, expired ones too."""
    await _open(store)
    await rotate(store, now_ms=LATER_MS)
    now = await session_of(store)
    assert now is not None
    await eventually(lambda: sessions_of(store), [now])


async def of_concurrent_sessions_of_one_id_one_is_opened(store: StoreEngine) -> None:
    """A session without a code, for operators. A taken id raises `AlreadyExists`."""
    users = [f"user_{number}" for number in range(6)]
    outcomes = await asyncio.gather(
        *(store.accounts().open_session(session(user_id=each), timeout_s=T_S) for each in users),
        return_exceptions=True,
    )
    assert [type(each) for each in outcomes if each is not None] == [AlreadyExists] * 5
    winner = users[outcomes.index(None)]
    await store.reopen()
    assert await session_of(store) == session(user_id=winner)
    for each in users:
        expected = [session(user_id=winner)] if each == winner else []
        await eventually(partial(sessions_of, store, each), expected)
    again = session(user_id=winner, created_at_ms=LATER_MS)
    assert await error_of(lambda: store.accounts().open_session(again, timeout_s=T_S)) is AlreadyExists
    assert await session_of(store) == session(user_id=winner)


async def what_an_opened_session_replaces_goes_with_it_and_stays_if_it_is_refused(store: StoreEngine) -> None:
    """The sessions of these ids that it `replaces` are gone with it, and stay if it is refused."""
    await _open(store, "sess_a")
    await _open(store, "sess_b")
    taken, fresh = session("sess_b", created_at_ms=LATER_MS), session("sess_c")
    opening = store.accounts().open_session
    assert await error_of(lambda: opening(taken, replaces=["sess_a"], timeout_s=T_S)) is AlreadyExists
    await eventually(lambda: _ids(store), ["sess_a", "sess_b"])
    await opening(fresh, replaces=["sess_a", "sess_nobody_has"], timeout_s=T_S)
    await store.reopen()
    await eventually(lambda: _ids(store), ["sess_b", "sess_c"])


async def of_concurrent_rotations_of_one_digest_one_wins(store: StoreEngine) -> None:
    """Says whether it did. Of two that rotate the same digest one wins."""
    await _open(store)
    outcomes = await asyncio.gather(*(rotate(store, new=f"new-{number}") for number in range(8)))
    assert sorted(outcomes) == [False] * 7 + [True]
    await store.reopen()
    found = await session_of(store)
    assert found is not None
    assert found.refresh_digest == f"new-{outcomes.index(True)}"
    assert found.generation == 2


async def a_rotation_keeps_the_old_digest_as_the_previous_one(store: StoreEngine) -> None:
    """Replaces the refresh digest if it is still `old` and the session is not expired; `old` becomes the previous
    one.
    """
    await _open(store)
    assert await rotate(store, now_ms=LATER_MS)
    once = msgspec.structs.replace(
        session(),
        refresh_digest="digest-2",
        previous_digest="digest-1",
        rotated_at_ms=LATER_MS,
        last_active_at_ms=LATER_MS,
        generation=2,
    )
    assert await session_of(store) == once
    assert await rotate(store, old="digest-2", new="digest-3", now_ms=LATER_MS + 5)
    twice = msgspec.structs.replace(
        once,
        refresh_digest="digest-3",
        previous_digest="digest-2",
        rotated_at_ms=LATER_MS + 5,
        last_active_at_ms=LATER_MS + 5,
        generation=3,
    )
    assert await session_of(store) == twice


async def nothing_but_the_current_digest_of_a_living_session_is_rotated(store: StoreEngine) -> None:
    """Replaces the refresh digest if it is still `old` and the session is not expired; `old` becomes the previous one.
    Says whether it did.
    """
    await _open(store)
    assert await rotate(store)
    before = await session_of(store)
    for digest in ("digest-1", "digest-9", "", "digest-2x"):
        assert not await rotate(store, old=digest, new="digest-3")
    assert not await rotate(store, old="digest-2", new="digest-3", session_id="sess_2")
    assert not await rotate(store, old="digest-2", new="digest-3", now_ms=SESSION_END_MS)
    assert await session_of(store) == before
    assert await session_of(store, "sess_2") is None
    assert await rotate(store, old="digest-2", new="digest-3", now_ms=SESSION_END_MS - 1)


async def a_reissue_replaces_any_digest_and_leaves_no_previous_one(store: StoreEngine) -> None:
    """Replaces the refresh digest whatever it is, and forgets the previous one. False when the session is gone or has
    expired.
    """
    await _open(store)
    assert await rotate(store)
    assert await _reissue(store, now_ms=LATER_MS)
    await store.reopen()
    found = await session_of(store)
    assert found is not None
    assert (found.refresh_digest, found.previous_digest, found.rotated_at_ms) == ("digest-9", None, None)
    assert (found.expires_at_ms, found.device_id) == (session().expires_at_ms, session().device_id)
    assert not await _reissue(store, now_ms=SESSION_END_MS)
    assert await session_of(store) == found
    await store.accounts().revoke("sess_1", timeout_s=T_S)
    assert not await _reissue(store, now_ms=LATER_MS)
    assert await session_of(store) is None


async def a_touch_notes_the_last_use_and_nothing_else(store: StoreEngine) -> None:
    """The session was used at `now_ms`. A session that is gone stays gone."""
    await _open(store)
    for now_ms in (LATER_MS, NOW_MS):  # the second arrives late
        await store.accounts().touch("sess_1", now_ms=now_ms, timeout_s=T_S)
        assert await session_of(store) == msgspec.structs.replace(session(), last_active_at_ms=LATER_MS)
    await store.accounts().revoke("sess_1", timeout_s=T_S)
    await store.accounts().touch("sess_1", now_ms=LATER_MS + 1, timeout_s=T_S)
    assert await session_of(store) is None
    await eventually(lambda: sessions_of(store), list[Session]())


async def a_revoked_session_is_found_by_nobody(store: StoreEngine) -> None:
    """Once it returns, the session is not found any more. Revoking twice is fine."""
    await issue(store)
    await sign_in(store)
    await _open(store, "sess_2")
    before = await people(store)
    await store.accounts().revoke("sess_1", timeout_s=T_S)
    assert await session_of(store) is None
    assert await store.sessions().session("sess_1", timeout_s=T_S) is None
    assert not await rotate(store)
    await store.reopen()
    assert await session_of(store) is None
    await eventually(lambda: sessions_of(store), [session("sess_2")])
    await store.accounts().revoke("sess_1", timeout_s=T_S)
    await store.accounts().revoke("sess_none", timeout_s=T_S)
    assert await session_of(store, "sess_2") == session("sess_2")
    assert (await people(store)).code == before.code


async def a_session_that_loses_a_race_with_its_revocation_stays_revoked(store: StoreEngine) -> None:
    """Once it returns, the session is not found any more. A session that is gone stays gone."""
    await _open(store)
    handle = store.accounts()
    await asyncio.gather(
        rotate(store),
        handle.touch("sess_1", now_ms=LATER_MS, timeout_s=T_S),
        handle.revoke("sess_1", timeout_s=T_S),
        handle.touch("sess_1", now_ms=LATER_MS + 1, timeout_s=T_S),
        _reissue(store, now_ms=LATER_MS),
    )
    assert await session_of(store) is None
    await issue(store, code("mac-2"))  # the store works on
    assert await session_of(store) is None


async def _ids(store: StoreEngine) -> list[str]:
    return [each.session_id for each in await sessions_of(store, ANN)]


async def _open(
    store: StoreEngine, session_id: str = "sess_1", *, user_id: str = ANN, created_at_ms: int = NOW_MS
) -> None:
    opened = session(session_id, user_id=user_id, created_at_ms=created_at_ms)
    await store.accounts().open_session(opened, timeout_s=T_S)


async def _reissue(store: StoreEngine, *, now_ms: int) -> bool:
    return await store.accounts().reissue("sess_1", digest="digest-9", now_ms=now_ms, timeout_s=T_S)
