"""`Idempotency-Key`: done once, however often it is asked for (docs/spec/rest.md#idempotency-key)."""

import asyncio
from typing import Any

import pytest

from seriatim.api.core.idempotency import IdempotencyGuard
from seriatim.api.core.route import NOTHING, ApiRequest, ApiResponse
from seriatim.domain.errors import (
    KeyReused,
    NotFound,
    OutcomeUnknown,
    StillInProgress,
    UserNotFound,
    ValidationFailed,
)
from seriatim.domain.tokens import new_claims
from seriatim.simulation.stores.request_keys import MemoryRequestKeys
from seriatim.simulation.stores.tables import MemoryStore
from tests.support.manual_clock import ManualClock
from tests.support.rest import FailingWire

KEY = "0b9fbb1c-3a52-4c1e-8f0e-5a1f5f4c2d10"
ROUTE = "POST /chats"


class Works:
    """Counts how often the work is done, and with which ids."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.wire = FailingWire()
        self.guard = IdempotencyGuard(MemoryRequestKeys(MemoryStore(), self.wire), self.clock)
        self.done: list[tuple[str, bool]] = []
        self.failures: list[BaseException] = []

    async def work(self, resource_id: str, resumed: bool) -> ApiResponse:
        self.done.append((resource_id, resumed))
        if self.failures:
            raise self.failures.pop(0)
        return ApiResponse(status=201, data={"id": resource_id})

    async def replay(self, resource_id: str) -> object:
        return {"id": resource_id, "now": True}

    async def ask(
        self, new_id: str, *, key: str | None = KEY, body: str = "b", user: str = "u", route: str = ROUTE
    ) -> ApiResponse:
        return await self.guard.run(call(key, body, user), route, new_id, self.work, self.replay)


def call(
    key: str | None, body_hash: str = "b", user: str = "u", headers: dict[str, str] | None = None
) -> ApiRequest[Any, Any]:
    return ApiRequest(
        claims=new_claims(user_id=user, session_id="s", device_id="d", token_id="t", now_s=0),
        path={},
        body=NOTHING,
        query=NOTHING,
        headers=headers or {},
        body_hash=body_hash,
        request_id="r",
        client_ip="",
        idempotency_key=key,
    )


@pytest.fixture
def works() -> Works:
    return Works()


async def test_without_a_key_the_work_is_done_each_time(works: Works) -> None:
    await works.ask("1", key=None)
    await works.ask("2", key=None)
    assert works.done == [("1", False), ("2", False)]


async def test_a_repeated_request_gets_the_first_id_and_status_and_the_current_state(works: Works) -> None:
    first = await works.ask("1")
    again = await works.ask("2")
    assert works.done == [("1", False)]
    assert (first.status, first.headers) == (201, {})
    assert (again.status, again.data) == (201, {"id": "1", "now": True})
    assert again.headers == {"x-idempotent-replay": "true"}


async def test_another_user_or_route_is_another_operation(works: Works) -> None:
    await works.ask("1")
    await works.ask("2", user="other")
    await works.ask("3", route="POST /chats/{chat_id}/members")
    assert [each for each, _ in works.done] == ["1", "2", "3"]


async def test_409_idempotency_key_reused_for_another_body(works: Works) -> None:
    await works.ask("1")
    with pytest.raises(KeyReused):
        await works.ask("2", body="other")


async def test_409_conflict_while_the_twin_is_still_being_served(works: Works) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(resource_id: str, resumed: bool) -> ApiResponse:
        reached.set()
        await go_on.wait()
        return ApiResponse(status=201)

    first = asyncio.create_task(works.guard.run(call(KEY), ROUTE, "1", slow, works.replay))
    await reached.wait()
    with pytest.raises(StillInProgress) as caught:
        await works.ask("2")
    assert caught.value.retry_after_seconds == 1
    go_on.set()
    assert (await first).status == 201


async def test_a_refused_request_gives_the_key_back(works: Works) -> None:
    works.failures = [UserNotFound("who")]
    with pytest.raises(UserNotFound):
        await works.ask("1")
    await works.ask("2", body="mended")
    assert works.done == [("1", False), ("2", False)]


@pytest.mark.parametrize("failure", [OutcomeUnknown("?"), RuntimeError("bug"), asyncio.CancelledError()])
async def test_an_unknown_outcome_is_taken_over_with_the_same_id(works: Works, failure: BaseException) -> None:
    works.failures = [failure]
    with pytest.raises(type(failure)):
        await works.ask("1")
    assert (await works.ask("2")).data == {"id": "1"}
    assert works.done == [("1", False), ("1", True)]


async def test_a_resumed_request_that_is_refused_keeps_its_id(works: Works) -> None:
    works.failures = [OutcomeUnknown("?"), NotFound("gone")]
    with pytest.raises(OutcomeUnknown):
        await works.ask("1")
    with pytest.raises(NotFound):
        await works.ask("2")
    await works.ask("3")
    assert works.done == [("1", False), ("1", True), ("1", True)]


async def test_work_that_was_done_is_answered_even_if_that_cannot_be_noted(works: Works) -> None:
    works.wire.broken["finish"] = OutcomeUnknown("down")
    assert (await works.ask("1")).status == 201


async def test_a_key_that_cannot_be_claimed_means_no_work(works: Works) -> None:
    works.wire.broken["claim"] = OutcomeUnknown("down")
    with pytest.raises(OutcomeUnknown):
        await works.ask("1")
    assert not works.done


async def test_a_key_is_free_again_after_a_day(works: Works) -> None:
    await works.ask("1")
    works.clock.advance(86_401)
    await works.ask("2")
    assert [each for each, _ in works.done] == ["1", "2"]


async def test_a_malformed_key_is_refused_before_anything_is_done(works: Works) -> None:
    with pytest.raises(ValidationFailed):
        await works.guard.run(call(None, headers={"idempotency-key": "x"}), ROUTE, "1", works.work, works.replay)
    assert not works.done
