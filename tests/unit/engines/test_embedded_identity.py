"""People, codes, sessions and request keys in a folder: which rows they are, and which of them a sweep removes."""

import asyncio

import msgspec
import pytest

from seriatim.domain import limits
from seriatim.domain.account import Spent
from seriatim.domain.errors import InternalError
from seriatim.domain.tokens import new_refresh_token, refresh_digest
from seriatim.engines.embedded.accounts import EmbeddedAccounts
from seriatim.engines.embedded.event_log import EmbeddedEventLog
from seriatim.engines.embedded.request_keys import EmbeddedRequestKeys
from seriatim.engines.embedded.storage import rows
from seriatim.engines.embedded.storage.folder import Folder
from seriatim.engines.embedded.sweep import Sweeper, Swept
from seriatim.engines.shared.request_key_rules import RequestRow
from seriatim.ports.request_keys import Claimed, Taken
from tests.contract.account_data import CODE_END_MS, MAC, PHONE, PHONES, SESSION_END_MS, code, session, user
from tests.contract.store_data import ANN, BOB, NOW_MS, T_S

CODE_KEPT_MS = CODE_END_MS + 1000 * limits.CODE_KEPT_S
REQUEST_END_MS = NOW_MS + 1000 * limits.REQUEST_KEY_LIFETIME_S


# --- rows -------------------------------------------------------------------------------------------------------------


def test_rows_of_format_1_are_still_read() -> None:
    """These bytes lie in folders out there. If this test fails, raise the format and convert; do not edit the bytes."""
    spent = Spent(session_id="s", device_id="d", is_new_user=True)
    request = RequestRow(body_hash="b", resource_id="r", claimed_at_ms=1, expires_at_ms=2, status_code=201)
    assert rows.USER.decode(bytes.fromhex(GOLDEN_USER)) == user()
    assert rows.SESSION.decode(bytes.fromhex(GOLDEN_SESSION)) == session()
    assert rows.CODE.decode(bytes.fromhex(GOLDEN_CODE)) == msgspec.structs.replace(code(), attempts=2, spent=spent)
    assert rows.REQUEST.decode(bytes.fromhex(GOLDEN_REQUEST)) == request
    assert rows.user_key("u").hex() == "41000175"
    assert rows.phone_key("h").hex() == "46000168"
    assert rows.code_key("h").hex() == "51000168"
    assert rows.session_key("s").hex() == "4c000173"
    assert rows.user_session_key("u", "s").hex() == "49000175000173"
    assert rows.request_key("s", "k").hex() == "5200017300016b"


async def test_r18_neither_a_refresh_token_nor_a_phone_number_beside_its_user_is_in_a_row(folder: Folder) -> None:
    token = new_refresh_token("sess_1", 2**255)
    handle = EmbeddedAccounts(folder)
    await handle.issue_code(code(), now_ms=NOW_MS, timeout_s=T_S)
    await handle.sign_in(PHONE, MAC, session(), user(), now_ms=NOW_MS, timeout_s=T_S)
    assert await handle.rotate("sess_1", old="digest-1", new=refresh_digest(token), now_ms=NOW_MS, timeout_s=T_S)
    everything = {table: b"".join(key + value for key, value in folder.rows(table)) for table in rows.TABLES}
    secret = token.partition(".")[2].encode()
    assert [table for table, content in everything.items() if secret in content] == []
    assert [table for table, content in everything.items() if PHONES[ANN].encode() in content] == ["users"]


async def test_a_revoked_session_leaves_no_row_behind(folder: Folder) -> None:
    handle = EmbeddedAccounts(folder)
    await handle.open_session(session(), timeout_s=T_S)
    assert count(folder, "sessions", "user_sessions_index") == [1, 1]
    await handle.revoke("sess_1", timeout_s=T_S)
    assert count(folder, "sessions", "user_sessions_index") == [0, 0]


async def test_a_sign_in_that_mixes_two_people_is_a_bug_and_changes_nothing(folder: Folder) -> None:
    handle = EmbeddedAccounts(folder)
    await handle.issue_code(code(), now_ms=NOW_MS, timeout_s=T_S)
    for wrong in (user(BOB), user(ANN, PHONES[BOB])):
        with pytest.raises(InternalError):
            await handle.sign_in(PHONE, MAC, session(), wrong, now_ms=NOW_MS, timeout_s=T_S)
    assert await handle.code(PHONE, timeout_s=T_S) == code()


# --- sweeping ---------------------------------------------------------------------------------------------------------


async def test_a_code_goes_an_hour_after_its_end(folder: Folder) -> None:
    handle, sweeper = EmbeddedAccounts(folder), await sweeping(folder)
    await handle.issue_code(code(), now_ms=NOW_MS, timeout_s=T_S)
    assert await sweeper.sweep(CODE_KEPT_MS - 1) == Swept(0, 0)
    assert await handle.code(PHONE, timeout_s=T_S) == code()
    assert await sweeper.sweep(CODE_KEPT_MS) == Swept(0, 0, codes=1)
    assert await handle.code(PHONE, timeout_s=T_S) is None


async def test_an_expired_session_goes_with_its_index_row_and_others_stay(folder: Folder) -> None:
    handle, sweeper = EmbeddedAccounts(folder), await sweeping(folder)
    younger = session("sess_2", created_at_ms=NOW_MS + 1)
    for each in (session(), younger):
        await handle.open_session(each, timeout_s=T_S)
    assert await sweeper.sweep(SESSION_END_MS - 1) == Swept(0, 0)
    assert await sweeper.sweep(SESSION_END_MS) == Swept(0, 0, sessions=1)
    assert await handle.session("sess_1", timeout_s=T_S) is None
    assert await handle.sessions_of(ANN, timeout_s=T_S) == [younger]
    assert count(folder, "sessions", "user_sessions_index") == [1, 1]


async def test_a_request_key_goes_a_day_after_its_first_claim(folder: Folder) -> None:
    handle, sweeper = EmbeddedRequestKeys(folder), await sweeping(folder)
    await claim(handle, "key", NOW_MS)
    await handle.finish("scope", "key", status_code=201, timeout_s=T_S)
    assert await sweeper.sweep(REQUEST_END_MS - 1) == Swept(0, 0)
    assert await claim(handle, "key", NOW_MS) == Taken(body_hash="body", resource_id="r", status_code=201)
    assert await sweeper.sweep(REQUEST_END_MS) == Swept(0, 0, requests=1)
    assert count(folder, "api_idempotency") == [0]


async def test_users_are_for_ever(folder: Folder) -> None:
    handle, sweeper = EmbeddedAccounts(folder), await sweeping(folder)
    await handle.add_user(user(), timeout_s=T_S)
    assert await sweeper.sweep(NOW_MS * 2) == Swept(0, 0)
    assert await handle.users_by_phone([PHONES[ANN]], timeout_s=T_S) == {PHONES[ANN]: ANN}
    assert await handle.users([ANN], timeout_s=T_S) == {ANN: user()}


async def test_a_sweep_of_people_is_bounded_and_the_next_one_takes_up_the_rest(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_ROWS_MAX", 3)
    accounts, keys, sweeper = EmbeddedAccounts(folder), EmbeddedRequestKeys(folder), await sweeping(folder)
    for number in range(4):
        await accounts.issue_code(code(of=f"{number:064}"), now_ms=NOW_MS, timeout_s=T_S)
        await accounts.open_session(session(f"sess_{number}"), timeout_s=T_S)
        await claim(keys, f"key-{number}", NOW_MS)
    await accounts.open_session(session("sess_9", created_at_ms=NOW_MS * 2), timeout_s=T_S)
    swept = [await sweeper.sweep(NOW_MS * 2) for _ in range(3)]
    assert [(each.codes, each.sessions, each.requests) for each in swept] == [(3, 3, 3), (1, 1, 1), (0, 0, 0)]
    assert count(folder, "otp_requests", "sessions", "user_sessions_index", "api_idempotency") == [0, 1, 1, 0]


async def test_what_is_renewed_while_the_sweep_reads_is_kept(folder: Folder) -> None:
    accounts, keys, sweeper = EmbeddedAccounts(folder), EmbeddedRequestKeys(folder), await sweeping(folder)
    late_ms = SESSION_END_MS
    await accounts.issue_code(code(), now_ms=NOW_MS, timeout_s=T_S)
    await claim(keys, "key", NOW_MS)
    renewed = code("mac-2", created_at_ms=late_ms)
    renewing = asyncio.gather(
        accounts.issue_code(renewed, now_ms=late_ms, timeout_s=T_S), claim(keys, "key", late_ms, resource_id="r2")
    )
    await asyncio.sleep(0)  # decided, and perhaps not yet to be seen by who reads
    assert await sweeper.sweep(late_ms) == Swept(0, 0)
    assert list(await renewing) == [renewed, Claimed("r2", resumed=False)]
    assert await accounts.code(PHONE, timeout_s=T_S) == renewed
    assert await claim(keys, "key", late_ms) == Taken(body_hash="body", resource_id="r2", status_code=None)


async def sweeping(folder: Folder) -> Sweeper:
    return Sweeper(folder, await EmbeddedEventLog.open(folder, {}))


async def claim(handle: EmbeddedRequestKeys, key: str, now_ms: int, *, resource_id: str = "r") -> Claimed | Taken:
    return await handle.claim("scope", key, body_hash="body", resource_id=resource_id, now_ms=now_ms, timeout_s=T_S)


def count(folder: Folder, *tables: str) -> list[int]:
    return [sum(1 for _ in folder.rows(table)) for table in tables]


GOLDEN_USER = (
    "85a7757365725f6964a8757365725f616e6eac70686f6e655f6e756d626572ae2b34393135313132333435363738ac64"
    "6973706c61795f6e616d65c0aa637265617465645f6174b8323033332d30352d31385430333a33333a32302e3030305a"
    "aa757064617465645f6174b8323033332d30352d31385430333a33333a32302e3030305a"
)
GOLDEN_SESSION = (
    "8aaa73657373696f6e5f6964a6736573735f31a7757365725f6964a8757365725f616e6ea96465766963655f6964b064"
    "65766963652d6f662d736573735f31ae726566726573685f646967657374a86469676573742d31ad637265617465645f"
    "61745f6d73cf000001d1a94a2000ad657870697265735f61745f6d73cf000001d243c8e800b16c6173745f6163746976"
    "655f61745f6d73cf000001d1a94a2000af70726576696f75735f646967657374c0ad726f74617465645f61745f6d73c0"
    "aa67656e65726174696f6e01"
)
GOLDEN_CODE = (
    "87aa70686f6e655f68617368d94035333661666435323365313964633833666363626138323265663565346361363436"
    "313131333134616166306161323836363637633562656131386464373062a36d6163a56d61632d31a67365616c6564c4"
    "07007365616c6564ad637265617465645f61745f6d73cf000001d1a94a2000ad657870697265735f61745f6d73cf0000"
    "01d1a94eb3e0a8617474656d70747302a57370656e7483aa73657373696f6e5f6964a173a96465766963655f6964a164"
    "ab69735f6e65775f75736572c3"
)
GOLDEN_REQUEST = (
    "86a9626f64795f68617368a162ab7265736f757263655f6964a172ad636c61696d65645f61745f6d7301ad6578706972"
    "65735f61745f6d7302ab7374617475735f636f6465ccc9a96162616e646f6e6564c2"
)
