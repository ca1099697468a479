"""Rows and steps that the account suites share: ann and bob, their phones, codes and sessions."""

from collections.abc import Sequence

import msgspec

from seriatim.domain import limits
from seriatim.domain.account import Code, Session, User, phone_hash
from seriatim.domain.times import iso
from tests.contract.store_data import ANN, BOB, NOW_MS, T_S
from tests.contract.store_engines import StoreEngine

PHONES = {ANN: "+4915112345678", BOB: "+14155550100"}
PHONE = phone_hash(PHONES[ANN])
MAC = "mac-1"
CODE_END_MS = NOW_MS + 1000 * limits.CODE_LIFETIME_S
SESSION_END_MS = NOW_MS + 1000 * limits.SESSION_LIFETIME_S


class People(msgspec.Struct, frozen=True):
    """All that a change of ann or bob may touch."""

    code: Code | None
    users: dict[str, User]
    phones: dict[str, str]
    sessions: dict[str, Session]


def user(user_id: str = ANN, phone_number: str = PHONES[ANN]) -> User:
    return User(
        user_id=user_id,
        phone_number=phone_number,
        display_name=None,
        created_at=iso(NOW_MS),
        updated_at=iso(NOW_MS),
    )


def code(mac: str = MAC, *, created_at_ms: int = NOW_MS, of: str = PHONE) -> Code:
    return Code(
        phone_hash=of,
        mac=mac,
        sealed=b"\x00sealed",
        created_at_ms=created_at_ms,
        expires_at_ms=created_at_ms + 1000 * limits.CODE_LIFETIME_S,
    )


def session(session_id: str = "sess_1", *, user_id: str = ANN, created_at_ms: int = NOW_MS) -> Session:
    return Session(
        session_id=session_id,
        user_id=user_id,
        device_id=f"device-of-{session_id}",
        refresh_digest="digest-1",
        created_at_ms=created_at_ms,
        expires_at_ms=created_at_ms + 1000 * limits.SESSION_LIFETIME_S,
        last_active_at_ms=created_at_ms,
    )


async def issue(store: StoreEngine, issued: Code | None = None, *, now_ms: int = NOW_MS) -> Code:
    return await store.accounts().issue_code(issued or code(), now_ms=now_ms, timeout_s=T_S)


async def sign_in(
    store: StoreEngine,
    opened: Session | None = None,
    new_user: User | None = None,
    *,
    mac: str = MAC,
    replaces: Sequence[str] = (),
    now_ms: int = NOW_MS,
) -> None:
    await store.accounts().sign_in(
        PHONE, mac, opened or session(), new_user, replaces=replaces, now_ms=now_ms, timeout_s=T_S
    )


async def rotate(
    store: StoreEngine,
    *,
    old: str = "digest-1",
    new: str = "digest-2",
    session_id: str = "sess_1",
    now_ms: int = NOW_MS,
) -> bool:
    return await store.accounts().rotate(session_id, old=old, new=new, now_ms=now_ms, timeout_s=T_S)


async def code_of(store: StoreEngine, phone: str = PHONE) -> Code | None:
    return await store.accounts().code(phone, timeout_s=T_S)


async def session_of(store: StoreEngine, session_id: str = "sess_1") -> Session | None:
    return await store.accounts().session(session_id, timeout_s=T_S)


async def sessions_of(store: StoreEngine, user_id: str = ANN) -> list[Session]:
    return list(await store.accounts().sessions_of(user_id, timeout_s=T_S))


async def people(store: StoreEngine) -> People:
    handle = store.accounts()
    sessions = {each: await session_of(store, each) for each in ("sess_1", "sess_2")}
    return People(
        code=await code_of(store),
        users=dict(await handle.users([ANN, BOB], timeout_s=T_S)),
        phones=dict(await handle.users_by_phone(list(PHONES.values()), timeout_s=T_S)),
        sessions={session_id: found for session_id, found in sessions.items() if found is not None},
    )
