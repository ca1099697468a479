"""What every store promises about request keys: one winner, one resource, an outcome that stays, and a day of it."""

import asyncio

from seriatim.domain import limits
from seriatim.domain.errors import OutcomeUnknown
from seriatim.ports.request_keys import Claimed, Taken
from tests.contract.store_data import LATER_MS, NOW_MS, T_S, error_of
from tests.contract.store_engines import StoreEngine

SCOPE, KEY, BODY = "user_ann#POST /chats", "0d9c6a40-0f0e-4c7a-9d1e-000000000001", "body-1"
STALE_MS = NOW_MS + 1000 * limits.REQUEST_CLAIM_S
FREE_MS = NOW_MS + 1000 * limits.REQUEST_KEY_LIFETIME_S


async def of_concurrent_claims_of_one_key_one_wins(store: StoreEngine) -> None:
    """Of two that claim a key one wins. The caller has the key: do the work, then `finish`. The key was used before.
    `status_code` is None while that request is in progress.
    """
    verdicts = await asyncio.gather(*(_claim(store, f"chat_{number}") for number in range(8)))
    winners = [each for each in verdicts if isinstance(each, Claimed)]
    assert len(winners) == 1
    winner = f"chat_{verdicts.index(winners[0])}"
    assert winners == [Claimed(winner, resumed=False)]
    taken = Taken(body_hash=BODY, resource_id=winner, status_code=None)
    assert [each for each in verdicts if isinstance(each, Taken)] == [taken] * 7
    await store.reopen()
    assert await _claim(store, "chat_x") == taken
    assert await _claim(store, "chat_x", now_ms=STALE_MS) == taken


async def a_key_means_nothing_in_another_scope(store: StoreEngine) -> None:
    """`scope` names user, method and route; within it, `key` is the caller's own."""
    await _claim(store, "chat_1")
    for number, (scope, key) in enumerate([("user_bob#POST /chats", KEY), (SCOPE, "key-2"), (SCOPE + "a", KEY[1:])]):
        fresh = await _claim(store, f"chat_{number}", scope=scope, key=key)
        assert fresh == Claimed(f"chat_{number}", resumed=False)
    handle = store.request_keys()
    await handle.finish("user_bob#POST /chats", KEY, status_code=201, timeout_s=T_S)
    await handle.release(SCOPE, "key-2", timeout_s=T_S)
    await handle.abandon(SCOPE + "a", KEY[1:], timeout_s=T_S)
    assert await _claim(store, "chat_x") == Taken(body_hash=BODY, resource_id="chat_1", status_code=None)


async def a_finished_key_answers_with_its_outcome(store: StoreEngine) -> None:
    """From now on the key answers with this outcome. The key was used before."""
    await _claim(store, "chat_1")
    await store.request_keys().finish(SCOPE, KEY, status_code=201, timeout_s=T_S)
    await store.reopen()
    done = Taken(body_hash=BODY, resource_id="chat_1", status_code=201)
    assert await _claim(store, "chat_2") == done
    assert await _claim(store, "chat_2", now_ms=FREE_MS - 1) == done
    assert await _claim(store, "chat_2", body="body-2") == done


async def a_finished_key_stays_finished(store: StoreEngine) -> None:
    """A finished key is neither released, abandoned nor finished again: it stays until it is free again."""
    await _claim(store, "chat_1")
    handle = store.request_keys()
    await handle.finish(SCOPE, KEY, status_code=201, timeout_s=T_S)
    await handle.release(SCOPE, KEY, timeout_s=T_S)
    await handle.abandon(SCOPE, KEY, timeout_s=T_S)
    await handle.finish(SCOPE, KEY, status_code=200, timeout_s=T_S)
    done = Taken(body_hash=BODY, resource_id="chat_1", status_code=201)
    assert await _claim(store, "chat_2", now_ms=FREE_MS - 1) == done
    assert await _claim(store, "chat_2", now_ms=FREE_MS) == Claimed("chat_2", resumed=False)


async def a_key_is_free_again_a_day_after_its_first_claim(store: StoreEngine) -> None:
    """A key is free again after `REQUEST_KEY_LIFETIME_S` from its first claim."""
    await _claim(store, "chat_1")
    assert await _claim(store, "chat_2", now_ms=STALE_MS + 1) == Claimed("chat_1", resumed=True)
    await store.request_keys().finish(SCOPE, KEY, status_code=201, timeout_s=T_S)
    assert isinstance(await _claim(store, "chat_3", now_ms=FREE_MS - 1), Taken)
    fresh = await _claim(store, "chat_3", body="body-3", now_ms=FREE_MS)
    assert fresh == Claimed("chat_3", resumed=False)
    again = await _claim(store, "chat_4", body="body-3", now_ms=FREE_MS + 1)
    assert again == Taken(body_hash="body-3", resource_id="chat_3", status_code=None)


async def a_claim_left_without_outcome_is_taken_over_by_one(store: StoreEngine) -> None:
    """A claim with the same body that was abandoned, or is older than `REQUEST_CLAIM_S` without an outcome, is taken
    over together with its resource id. `resource_id` is the id to use, its own or an earlier attempt's.
    """
    await _claim(store, "chat_1")
    assert isinstance(await _claim(store, "chat_2", now_ms=STALE_MS), Taken)
    assert isinstance(await _claim(store, "chat_2", body="body-2", now_ms=STALE_MS + 1), Taken)
    verdicts = await asyncio.gather(*(_claim(store, f"chat_{number}", now_ms=STALE_MS + 1) for number in range(2, 8)))
    assert verdicts.count(Claimed("chat_1", resumed=True)) == 1
    assert verdicts.count(Taken(body_hash=BODY, resource_id="chat_1", status_code=None)) == 5
    await store.reopen()
    # Who took over has as much time as the first had.
    assert isinstance(await _claim(store, "chat_9", now_ms=STALE_MS + 1 + 1000 * limits.REQUEST_CLAIM_S), Taken)


async def an_abandoned_claim_is_taken_over_at_once_by_one(store: StoreEngine) -> None:
    """The outcome is unknown: the next claim with the same body takes over at once, with the same resource id."""
    await _claim(store, "chat_1")
    await store.request_keys().abandon(SCOPE, KEY, timeout_s=T_S)
    await store.reopen()
    other = await _claim(store, "chat_2", body="body-2")
    assert other == Taken(body_hash=BODY, resource_id="chat_1", status_code=None)
    verdicts = await asyncio.gather(*(_claim(store, f"chat_{number}") for number in range(2, 8)))
    assert verdicts.count(Claimed("chat_1", resumed=True)) == 1
    assert verdicts.count(Taken(body_hash=BODY, resource_id="chat_1", status_code=None)) == 5


async def a_released_key_is_as_if_never_used(store: StoreEngine) -> None:
    """The request was refused and changed nothing: the key is as if it had never been used."""
    await _claim(store, "chat_1")
    await store.request_keys().release(SCOPE, KEY, timeout_s=T_S)
    await store.reopen()
    assert await _claim(store, "chat_2", body="body-2", now_ms=LATER_MS) == Claimed("chat_2", resumed=False)
    late = await _claim(store, "chat_3", body="body-2", now_ms=FREE_MS)  # its day began with the second claim
    assert late == Claimed("chat_2", resumed=True)


async def a_key_that_nobody_claimed_stays_free(store: StoreEngine) -> None:
    """The request was refused and changed nothing: the key is as if it had never been used."""
    handle = store.request_keys()
    await handle.release(SCOPE, KEY, timeout_s=T_S)
    await handle.abandon(SCOPE, KEY, timeout_s=T_S)
    await handle.finish(SCOPE, KEY, status_code=201, timeout_s=T_S)
    assert await _claim(store, "chat_1") == Claimed("chat_1", resumed=False)


async def a_call_of_the_request_keys_without_time_left_ends_at_once(store: StoreEngine) -> None:
    """Every call that leaves the process takes `timeout_s` and promises: it answers within that time or raises
    `OutcomeUnknown`; `Throttled` and `Conflict` mean that nothing was applied.
    """
    handle = store.request_keys()
    for call in (
        lambda: handle.claim(SCOPE, KEY, body_hash=BODY, resource_id="chat_1", now_ms=NOW_MS, timeout_s=0),
        lambda: handle.finish(SCOPE, KEY, status_code=201, timeout_s=0),
        lambda: handle.release(SCOPE, KEY, timeout_s=0),
        lambda: handle.abandon(SCOPE, KEY, timeout_s=0),
    ):
        assert await error_of(call) is OutcomeUnknown


async def _claim(
    store: StoreEngine, resource_id: str, *, scope: str = SCOPE, key: str = KEY, body: str = BODY, now_ms: int = NOW_MS
) -> Claimed | Taken:
    return await store.request_keys().claim(
        scope, key, body_hash=body, resource_id=resource_id, now_ms=now_ms, timeout_s=T_S
    )
