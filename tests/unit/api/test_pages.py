"""The small parts that lists share: pages, batches of names, reads a few at a time."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.api.core.pages import page_of
from seriatim.api.core.route import Pagination
from seriatim.api.display_names import DisplayNames
from seriatim.concurrency.bounded_gather import bounded_gather
from seriatim.domain import limits
from seriatim.domain.account import User
from seriatim.domain.errors import ServiceUnavailable
from seriatim.engines.inprocess.wire import Wire
from seriatim.simulation.stores.accounts import MemoryAccounts
from seriatim.simulation.stores.tables import MemoryStore

ITEMS = st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True).map(sorted)


@given(ITEMS, st.integers(1, 5))
def test_R3_pages_forward_are_every_item_once_and_back_again(items: list[str], limit: int) -> None:
    page, pagination = _page(items, limit, None)
    pages = [page]
    assert pagination.prev_cursor is None
    while pagination.next_cursor is not None:
        assert pagination.has_more
        page, pagination = _page(items, limit, pagination.next_cursor)
        pages.append(page)
    assert not pagination.has_more
    assert [item for page in pages for item in page] == items
    assert all(len(page) == limit for page in pages[:-1])
    assert all(pages) or not items
    for expected in reversed(pages[:-1]):
        page, pagination = _page(items, limit, pagination.prev_cursor)
        assert page == expected
        assert pagination.has_more
    assert pagination.prev_cursor is None


@given(ITEMS, ITEMS, st.integers(1, 5))
def test_items_that_come_and_go_move_no_other_item(before: list[str], after: list[str], limit: int) -> None:
    page, pagination = _page(before, limit, None)
    if pagination.next_cursor is not None:
        following, _ = _page(after, limit, pagination.next_cursor)
        assert following == [item for item in after if item > page[-1]][:limit]


async def test_names_of_more_people_than_one_batch_holds_are_all_found() -> None:
    store, ids = MemoryStore(), [f"user_{number}" for number in range(limits.LOOKUP_KEYS_MAX + 1)]
    for user_id in ids:
        user = User(user_id=user_id, phone_number="+4930123456", display_name=user_id, created_at="", updated_at="")
        store.accounts.put_user(user, user_id)
    names = DisplayNames(MemoryAccounts(store, Wire()))
    assert await names.of([*ids, *ids, "user_x"]) == {**{each: each for each in ids}, "user_x": None}
    assert await names.missing([*ids, "user_x"]) == ["user_x"]


async def test_work_is_done_a_few_at_a_time_and_answered_in_order() -> None:
    busy, most = 0, 0

    async def work(number: int) -> int:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        for _ in range(number % 3):
            await asyncio.sleep(0)
        busy -= 1
        return -number

    assert await bounded_gather(work, range(20), at_once=4) == [-number for number in range(20)]
    assert most == 4
    assert await bounded_gather(work, [], at_once=4) == []


async def test_the_first_failure_ends_the_rest_and_is_raised_as_it_is() -> None:
    begun: list[int] = []

    async def work(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(0)
        if number == 1:
            raise ServiceUnavailable("the store is away")
        return number

    with pytest.raises(ServiceUnavailable):
        await bounded_gather(work, range(100), at_once=2)
    assert len(begun) < 10


def _page(items: Sequence[str], limit: int, cursor: str | None) -> tuple[Sequence[str], Pagination]:
    """The cursor is the item at the edge, after the way to go."""
    return page_of(
        items,
        limit,
        key=lambda item: item,
        edge=None if cursor is None else cursor[1:],
        back=cursor is not None and cursor[0] == "<",
        cursor=lambda item, back: ("<" if back else ">") + item,
    )
